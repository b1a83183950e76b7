"""A lease in a worker's hands, and the requests that are made under it."""

from __future__ import annotations

import asyncio

from shoal.errors import FetchError
from shoal.fetch import Fetcher, Request
from shoal.frontier import mono
from shoal.leases.held_lease import HeldLease
from shoal.model.lease import Lease
from shoal.model.response import Response
from shoal.politeness.backoff import Fault
from shoal.settings import masked


class ProxyUnavailable(Exception):
    """The forward proxy cannot be used: no host was asked."""


class Hold(HeldLease):
    __slots__ = ("left", "more", "pausing")

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease)
        # Its host may have more visits than these.
        self.more = True
        # The host is to be left alone for a while: no further visit of this lease is made.
        self.pausing = False
        # Its holder has left.
        self.left = False

    def extend(self, lease: Lease) -> None:
        """It was renewed, and perhaps topped up."""
        self.lease = lease
        self.trusted_until_mono = lease.trusted_until_mono
        self.renewed_mono = mono()
        self.more = bool(lease.visits)
        self.open.update({visit.number: visit for visit in lease.visits})

    def has_room(self, batch_seconds: float) -> bool:
        """Whether a lease may have another visit now: `renew` gives no more than fit into a batch's time."""
        pace_seconds = self.delay_seconds + (self.response_seconds or 0.0)
        return self.more and (len(self.open) + 1) * pace_seconds <= batch_seconds

    async def fetch(self, fetcher: Fetcher, request: Request) -> Response:
        """Fetch for as long as the lease can be trusted: what is open then is aborted, as FetchError `timed out`."""
        try:
            return await self._fetch(fetcher, request)
        except FetchError as error:
            if error.fault == Fault.PROXY:
                raise ProxyUnavailable(f"no request gets through the proxy ({error.reason}); waiting") from None
            raise

    async def _fetch(self, fetcher: Fetcher, request: Request) -> Response:
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
