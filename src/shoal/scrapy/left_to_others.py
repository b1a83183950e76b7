"""Requests that this process cannot make, because its spider lacks their callback, errback or a class.

During a rolling deployment, processes with the old and the new code work on one crawl. Such a request stays in the
frontier, so that a process that has the method makes it. This process closes when nothing else is left to do.
"""

from __future__ import annotations

import logging

from scrapy.crawler import Crawler

from shoal.model.crawl import Counts
from shoal.model.visit import Outcome, Visit

log = logging.getLogger("shoal.scrapy")
# How long a request that was left to others waits before any process leases it again.
_WAIT_SECONDS = 5.0
REASON = "missing_callback"


class LeftToOthers:
    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._reported: set[str] = set()
        self._visits: set[tuple[str, str, bytes, int]] = set()

    def leave(self, visit: Visit, problem: str) -> Outcome:
        """Leave a visit to other processes. The problem is logged once."""
        self._visits.add((visit.url, visit.method, visit.body, visit.depth))
        self._crawler.stats.inc_value("scheduler/left_to_others")
        if problem not in self._reported:
            self._reported.add(problem)
            log.error(
                "%s They stay in the store for processes that can.", problem, extra={"spider": self._crawler.spider}
            )
        return visit.retry(_WAIT_SECONDS)

    def is_all(self, counts: Counts) -> bool:
        """Whether the crawl has only requests that this process cannot make, and no other process is working."""
        return bool(self._visits) and counts.leased == 0 and counts.open <= len(self._visits)
