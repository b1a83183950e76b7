"""A lease in a worker's hands: until when it may be trusted, and when its host may be asked again.

Owned by the holder of the lease; the lease keeper's thread only writes `trusted_until_mono` and `lost`.
"""

from __future__ import annotations

import asyncio

import msgspec

from shoal.errors import FetchError
from shoal.fetch import Fetcher, Request
from shoal.frontier import mono
from shoal.model.lease import Lease
from shoal.model.page import Page
from shoal.model.visit import Visit
from shoal.politeness.backoff import Fault
from shoal.settings import masked

# Clocks of two machines run at speeds of their own: a gap is kept a little longer than asked.
_SLACK = 1.01


class Hold:
    __slots__ = (
        "_floor_seconds",
        "adaptive_seconds",
        "finished_mono",
        "lease",
        "left",
        "lost",
        "more",
        "open",
        "pausing",
        "released",
        "renewed_mono",
        "response_seconds",
        "success",
        "trusted_until_mono",
    )

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.trusted_until_mono = lease.trusted_until_mono
        self.renewed_mono = mono()
        self.lost = False
        self._floor_seconds = lease.delay_seconds
        # Of the last request: when it ended, whether the host did well, how long it took.
        self.finished_mono: float | None = None
        self.success: bool | None = None
        self.response_seconds: float | None = None
        # Visits that are not acknowledged or given back yet, by number.
        self.open: dict[int, Visit] = {visit.number: visit for visit in lease.visits}
        # Its host may have more visits than these.
        self.more = True
        # The host's delay by its last response time.
        self.adaptive_seconds: float | None = None
        # The host is to be left alone for a while: no further visit of this lease is made.
        self.pausing = False
        # Its holder has left; its place was given back while records still wait for an output.
        self.left = self.released = False

    def extend(self, lease: Lease) -> None:
        """It was renewed, and perhaps topped up."""
        self.lease = lease
        self.trusted_until_mono = lease.trusted_until_mono
        self.renewed_mono = mono()
        self.more = bool(lease.visits)
        self.open.update({visit.number: visit for visit in lease.visits})

    @property
    def claim(self) -> Lease:
        """The lease with the visits that are still open."""
        return msgspec.structs.replace(self.lease, visits=tuple(self.open.values()))

    @property
    def seconds_left(self) -> float:
        return 0.0 if self.lost else self.trusted_until_mono - mono()

    @property
    def delay_seconds(self) -> float:
        """From the end of a request to the next: what the lease says, or more for a server that takes long."""
        return max(self._floor_seconds, self.adaptive_seconds or 0.0)

    def wants(self, crawl_delay_seconds: float) -> None:
        """Its robots.txt, read under this lease, asks for a delay."""
        self._floor_seconds = max(self._floor_seconds, crawl_delay_seconds)

    @property
    def gap_seconds(self) -> float:
        """How long the host must still be left alone."""
        if self.finished_mono is None or self.delay_seconds <= 0:
            return 0.0
        return self.finished_mono + self.delay_seconds * _SLACK - mono()

    async def keep_gap(self) -> bool:
        """Wait until the host may be asked; False when the lease cannot be trusted any more."""
        while (wait := self.gap_seconds) > 0:
            if wait >= self.seconds_left:
                return False
            await asyncio.sleep(wait)
        return self.seconds_left > 0

    async def fetch(self, fetcher: Fetcher, request: Request) -> Page:
        """Fetch for as long as the lease can be trusted: what is open then is aborted, as FetchError `timed out`."""
        if request.timeout_seconds <= self.seconds_left:
            return await fetcher.fetch(request)
        # It may take longer than what is left now; whether it may go on is for the next renewals to say.
        fetching = asyncio.ensure_future(fetcher.fetch(request))
        try:
            while not fetching.done() and (left := self.seconds_left) > 0:
                await asyncio.wait((fetching,), timeout=left)
            if fetching.done():
                return fetching.result()
        finally:
            if not fetching.done():
                fetching.cancel()
                await asyncio.wait((fetching,))
        raise FetchError(
            f"{masked(request.url)} was not fetched: the lease of its host ran out.",
            fault=Fault.TIMED_OUT, reason="timed out",
        )  # fmt: skip

    def finish(self, *, success: bool | None, response_seconds: float | None) -> None:
        """A request has ended now."""
        self.finished_mono = mono()
        self.success = success
        self.response_seconds = response_seconds

    @property
    def finished_ago_seconds(self) -> float | None:
        return None if self.finished_mono is None else max(0.0, mono() - self.finished_mono)
