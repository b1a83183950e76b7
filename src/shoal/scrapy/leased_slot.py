"""A place of a host in this process's hands: its visits one after the other, as Scrapy asks for them."""

from __future__ import annotations

from collections import deque

from scrapy import Request

from shoal.leases.held_lease import HeldLease
from shoal.model.lease import Lease
from shoal.model.visit import Visit

# Scrapy's own slot for requests that the frontier paces: it must neither wait nor queue.
SLOT = "shoal"
SLOT_SETTINGS = {"concurrency": 100_000, "delay": 0.0}


class LeasedSlot(HeldLease):
    __slots__ = ("learning", "queue", "request", "status")

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease)
        # Visits that were not asked for yet.
        self.queue: deque[Visit] = deque(lease.visits)
        # What it is asking for now, and what the answer's status was.
        self.request: Request | None = None
        self.status = 0
        # Its robots.txt is being read.
        self.learning = False

    @property
    def spent(self) -> bool:
        """Nothing more will be asked under this lease."""
        return not self.queue and self.request is None and not self.learning

    @property
    def trusted(self) -> bool:
        return self.seconds_left > 0

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
