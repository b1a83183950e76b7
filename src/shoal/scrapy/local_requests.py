"""Requests that only this process can make: the frontier cannot hold them.

These are URLs without a host (file:, data:) and requests that are too large for the store. A large request waits for
its host's turn like any other (`unscheduled.py`), and `held_back.py` ensures that a crash does not lose it.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler

from shoal.scrapy.request_identity import RequestTooLarge

log = logging.getLogger("shoal.scrapy")


class LocalRequests:
    def __init__(self, crawler: Crawler, dupefilter: Any) -> None:
        self._crawler = crawler
        self._filter = dupefilter
        self._waiting: deque[Request] = deque()
        self._seen: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: Request) -> None:
        self._waiting.append(request)

    def add_large(self, request: Request, error: RequestTooLarge) -> bool:
        """Add a request that is too large for the store. False if this process has already made it."""
        fingerprint = self._crawler.request_fingerprinter.fingerprint(request)
        if not request.dont_filter and fingerprint in self._seen:
            self._filter.log(request, self._crawler.spider)
            return False
        if not self._seen:
            extra = {"spider": self._crawler.spider}
            log.warning("%s Such requests stay in the process that yields them.", error, extra=extra)
        self._seen.add(fingerprint)
        self._crawler.stats.inc_value("scheduler/too_large")
        self._waiting.append(request)
        return True

    def next(self) -> Request | None:
        return self._waiting.popleft() if self._waiting else None
