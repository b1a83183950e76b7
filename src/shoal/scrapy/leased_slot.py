"""One leased slot of a host: its visits one after the other, as Scrapy requests them."""

from __future__ import annotations

from collections import deque

from scrapy import Request

from shoal.leases.held_lease import HeldLease
from shoal.model.lease import Lease
from shoal.model.visit import Visit

# The download slot in Scrapy for requests that the frontier paces: it must neither delay nor queue them.
SLOT = "shoal"
SLOT_SETTINGS = {"concurrency": 100_000, "delay": 0.0}


class LeasedSlot(HeldLease):
    __slots__ = ("learning", "queue", "request", "status")

    def __init__(self, lease: Lease) -> None:
        super().__init__(lease)
        # Visits that were not requested yet.
        self.queue: deque[Visit] = deque(lease.visits)
        # The open request, and the status of its response.
        self.request: Request | None = None
        self.status = 0
        # A robots.txt is being fetched.
        self.learning = False

    @property
    def spent(self) -> bool:
        """No more requests are made under this lease."""
        return not self.queue and self.request is None and not self.learning

    @property
    def trusted(self) -> bool:
        return self.seconds_left > 0

    @property
    def free_in_seconds(self) -> float:
        """When the next visit may be made: 0 is now, infinite while a request is open or no visit is left."""
        if not self.queue or self.request is not None or self.learning:
            return float("inf")
        return self.gap_seconds

    @property
    def resting(self) -> bool:
        """Only the host's delay is missing."""
        return 0 < self.free_in_seconds < float("inf")

    def start(self, request: Request) -> None:
        self.request = request
        self.status = 0
