"""A lease in a process: how long it may be trusted, when its host may be requested again, which visits are open.

The lease holder owns it. The lease renewer's thread writes only `trusted_until_mono`, `renewed_mono` and `lost`.
"""

from __future__ import annotations

import asyncio

import msgspec

from shoal.frontier import mono
from shoal.model.lease import Lease
from shoal.model.visit import Visit

# The clocks of two machines run at slightly different speeds: a gap lasts a little longer than required.
_SLACK = 1.01


class HeldLease:
    """One leased host.

    lease               what the frontier returned, with the latest renewal
    trusted_until_mono  no request may be open after this time
    lost                the frontier has given the host to another process
    open                visits that are neither acknowledged nor released, by number
    more                the host may have more visits than these
    closed              its holder makes no more visits under it
    released            the host is free again, while open visits wait for an output
    adaptive_seconds    the delay that follows from the last response time
    finished_mono       when the last request finished; None before the first
    success             whether the host responded well to that request; None: it says nothing about the host
    response_seconds    how long that request took
    """

    __slots__ = (
        "_floor_seconds",
        "_succeeded",
        "adaptive_seconds",
        "closed",
        "finished_mono",
        "lease",
        "lost",
        "more",
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
        self.open: dict[int, Visit] = {visit.number: visit for visit in lease.visits}
        self.more = True
        self.closed = False
        self.released = False
        self._floor_seconds = lease.delay_seconds
        self.adaptive_seconds: float | None = None
        self.finished_mono: float | None = None
        self._succeeded = False
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
        """From the end of a request to the next: the lease's delay, or more for a server that responds slowly."""
        return max(self._floor_seconds, self.adaptive_seconds or 0.0)

    def require_delay(self, crawl_delay_seconds: float) -> None:
        """Apply the Crawl-delay of a robots.txt that was read under this lease."""
        self._floor_seconds = max(self._floor_seconds, crawl_delay_seconds)

    @property
    def gap_seconds(self) -> float:
        """How long until the next request to the host is allowed."""
        if self.finished_mono is None or self.delay_seconds <= 0:
            return 0.0
        return max(0.0, self.finished_mono + self.delay_seconds * _SLACK - mono())

    async def keep_gap(self) -> bool:
        """Wait until the host may be requested; False if the lease expires first."""
        while (wait := self.gap_seconds) > 0:
            if wait >= self.seconds_left:
                return False
            await asyncio.sleep(wait)
        return self.seconds_left > 0

    def finish(self, *, success: bool | None, response_seconds: float | None) -> None:
        """Record that a request has finished now."""
        self.finished_mono = mono()
        self.success = success
        self._succeeded = self._succeeded or success is True
        self.response_seconds = response_seconds

    def succeed(self) -> None:
        """Record that the last request was a success, whatever was reported when it finished."""
        self.success = self._succeeded = True

    def take_success(self) -> bool:
        """Whether a request has succeeded since the last call. An acknowledgement reports only the last request."""
        succeeded, self._succeeded = self._succeeded, False
        return succeeded

    @property
    def finished_ago_seconds(self) -> float | None:
        return None if self.finished_mono is None else max(0.0, mono() - self.finished_mono)

    def extend(self, lease: Lease) -> None:
        """Take over a renewal, with the visits it added."""
        self.lease = lease
        self.trusted_until_mono = lease.trusted_until_mono
        self.renewed_mono = mono()
        self.more = bool(lease.visits)
        self.open.update({visit.number: visit for visit in lease.visits})

    def has_room(self, batch_seconds: float) -> bool:
        """Whether a renewal can add a visit: it adds no more than fit into the time of a batch."""
        pace_seconds = self.delay_seconds + (self.response_seconds or 0.0)
        return self.more and (len(self.open) + 1) * pace_seconds <= batch_seconds
