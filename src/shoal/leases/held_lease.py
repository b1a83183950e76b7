"""A lease in a process's hands: until when it may be trusted, and when its host may be asked again.

Owned by its holder; the lease keeper's thread only writes `trusted_until_mono`, `renewed_mono` and `lost`.
"""

from __future__ import annotations

import asyncio

import msgspec

from shoal.frontier import mono
from shoal.model.lease import Lease
from shoal.model.visit import Visit

# Clocks of two machines run at speeds of their own: a gap is kept a little longer than asked.
_SLACK = 1.01


class HeldLease:
    __slots__ = (
        "_floor_seconds",
        "adaptive_seconds",
        "finished_mono",
        "lease",
        "lost",
        "open",
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
        # The host's delay by its last response time.
        self.adaptive_seconds: float | None = None
        # Visits that are not acknowledged or given back yet, by number.
        self.open: dict[int, Visit] = {visit.number: visit for visit in lease.visits}
        # Its place was given back while records or items still wait for an output.
        self.released = False
        # Of the last request: when it ended, whether the host did well, how long it took.
        self.finished_mono: float | None = None
        self.success: bool | None = None
        self.response_seconds: float | None = None

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
        return max(0.0, self.finished_mono + self.delay_seconds * _SLACK - mono())

    async def keep_gap(self) -> bool:
        """Wait until the host may be asked; False when the lease cannot be trusted any more."""
        while (wait := self.gap_seconds) > 0:
            if wait >= self.seconds_left:
                return False
            await asyncio.sleep(wait)
        return self.seconds_left > 0

    def finish(self, *, success: bool | None, response_seconds: float | None) -> None:
        """A request has ended now."""
        self.finished_mono = mono()
        self.success = success
        self.response_seconds = response_seconds

    @property
    def finished_ago_seconds(self) -> float | None:
        return None if self.finished_mono is None else max(0.0, mono() - self.finished_mono)
