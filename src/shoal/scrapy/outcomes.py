"""The outcome of a finished request's visit: stored, failed with its reason, or repeated by Scrapy."""

from __future__ import annotations

from scrapy import Request

from shoal.model.visit import Outcome, Visit
from shoal.scrapy.unscheduled import is_unscheduled


class Outcomes:
    def __init__(self) -> None:
        self._faults: dict[Request, str] = {}
        # URL and number of the retry.
        self._retried: set[tuple[str, int]] = set()

    def fault(self, request: Request, reason: str) -> None:
        """A request has failed, unless Scrapy retries it."""
        self._faults[request] = reason

    def retries(self, request: Request) -> None:
        """A retry was enqueued: the visit that it repeats has not failed."""
        if times := request.meta.get("retry_times"):
            self._retried.add((request.url, times))

    def of(self, request: Request, visit: Visit) -> Outcome:
        """The outcome of a request that Scrapy has finished."""
        reason = self._faults.pop(request, "")
        if is_unscheduled(visit):
            return visit.stored()
        again = (request.url, request.meta.get("retry_times", 0) + 1)
        if again in self._retried:
            self._retried.discard(again)
            return visit.excluded("retried")
        return visit.failed(reason) if reason else visit.stored()
