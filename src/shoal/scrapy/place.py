"""A place of a host in this process's hands: its visits one after the other, the host's gap between them.

The lease keeper's thread only writes `trusted_until_mono`, `renewed_mono` and `lost`.
"""

from __future__ import annotations

import asyncio
from collections import deque

import msgspec
from scrapy import Request

from shoal.frontier import mono
from shoal.model.lease import Lease
from shoal.model.visit import Visit

# Scrapy's own slot for requests that the frontier paces: it must neither wait nor queue.
SLOT = "shoal"
SLOT_SETTINGS = {"concurrency": 100_000, "delay": 0.0}
# Clocks of two machines run at speeds of their own: a gap is kept a little longer than asked.
_SLACK = 1.01


class Place:
    __slots__ = (
        "_floor_seconds",
        "adaptive_seconds",
        "finished_mono",
        "learning",
        "lease",
        "lost",
        "open",
        "queue",
        "released",
        "renewed_mono",
        "request",
        "response_seconds",
        "status",
        "success",
        "trusted_until_mono",
    )

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.trusted_until_mono = lease.trusted_until_mono
        self.renewed_mono = mono()
        self.lost = False
        self._floor_seconds = lease.delay_seconds
        # The host's delay by its response times (AutoThrottle).
        self.adaptive_seconds: float | None = None
        # Visits that were not asked for yet, and those that are not acknowledged or given back, by number.
        self.queue: deque[Visit] = deque(lease.visits)
        self.open: dict[int, Visit] = {visit.number: visit for visit in lease.visits}
        # What it is asking for now, and what the answer's status was.
        self.request: Request | None = None
        self.status = 0
        # Its robots.txt is being read.
        self.learning = False
        # The place was given back while items still wait in a pipeline.
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
    def spent(self) -> bool:
        """Nothing more will be asked under this lease."""
        return not self.queue and self.request is None and not self.learning

    @property
    def trusted(self) -> bool:
        return not self.lost and self.trusted_until_mono > mono()

    @property
    def delay_seconds(self) -> float:
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
        await asyncio.sleep(self.gap_seconds)
        return self.trusted

    @property
    def free_in_seconds(self) -> float:
        """When it may ask for its next visit: 0 is now, infinite while it is asking or has nothing to ask for."""
        if not self.queue or self.request is not None or self.learning:
            return float("inf")
        return self.gap_seconds

    @property
    def resting(self) -> bool:
        """It only waits for the host's gap to pass."""
        return 0 < self.free_in_seconds < float("inf")

    def start(self, request: Request) -> None:
        self.request = request
        self.status = 0

    def finish(self, *, success: bool | None, response_seconds: float | None) -> None:
        """A request has ended now."""
        self.finished_mono = mono()
        self.success = success
        self.response_seconds = response_seconds

    @property
    def finished_ago_seconds(self) -> float | None:
        return None if self.finished_mono is None else max(0.0, mono() - self.finished_mono)
