"""The duplicate filter. The frontier itself filters, in the same step in which it queues a request.

Owns which class decides. Scrapy's, scrapy-redis' and Shoal's filters leave it to the frontier, with their own
fingerprint if they define one. Any other class decides by itself, through its `request_seen`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter, RFPDupeFilter
from scrapy.utils.misc import build_from_crawler, load_object

from shoal.scrapy import scrapy_redis_settings
from shoal.scrapy.request_identity import is_default

log = logging.getLogger("shoal.scrapy")


class DupeFilter(BaseDupeFilter):
    """DUPEFILTER_CLASS = "shoal.scrapy.DupeFilter". Override `request_fingerprint` to define equality."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self.debug = crawler.settings.getbool("DUPEFILTER_DEBUG")
        self.logdupes = True
        self._seen: set[str] = set()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def request_seen(self, request: Request) -> bool:
        """For another scheduler, in this process only. Shoal's scheduler does not call it: the frontier filters."""
        fingerprint = self.request_fingerprint(request)
        if fingerprint in self._seen:
            return True
        self._seen.add(fingerprint)
        return False

    def request_fingerprint(self, request: Request) -> str:
        fingerprint: bytes = self._crawler.request_fingerprinter.fingerprint(request)
        return fingerprint.hex()

    def log(self, request: Request, spider: Spider) -> None:
        if self.debug:
            log.debug("Filtered duplicate request: %s", request, extra={"spider": spider})
        elif self.logdupes:
            log.debug(
                "Filtered duplicate request: %s - no more duplicates will be shown "
                "(see DUPEFILTER_DEBUG to show all duplicates)", request, extra={"spider": spider},
            )  # fmt: skip
            self.logdupes = False
        self._crawler.stats.inc_value("dupefilter/filtered")


class ChosenFilter(NamedTuple):
    filter: Any
    # None: the frontier's own fingerprint applies.
    fingerprint: Callable[[Request], bytes] | None
    # The filter decides by itself; otherwise the frontier does.
    decides: bool


def choose_filter(crawler: Crawler) -> ChosenFilter:
    own = None if is_default(crawler.request_fingerprinter) else crawler.request_fingerprinter.fingerprint
    if scrapy_redis_settings.filtered_by_frontier(crawler.settings):
        return ChosenFilter(DupeFilter(crawler), own, decides=False)
    kind: Any = load_object(crawler.settings["DUPEFILTER_CLASS"])
    root = next((known for known in _known_filters(kind) if issubclass(kind, known)), None)
    if root is None or kind.request_seen is not root.request_seen:
        return ChosenFilter(build_from_crawler(kind, crawler), None, decides=True)
    dupefilter = DupeFilter(crawler) if kind is root and root is not DupeFilter else build_from_crawler(kind, crawler)
    if kind.request_fingerprint is not root.request_fingerprint:
        return ChosenFilter(dupefilter, lambda request: _bytes(dupefilter.request_fingerprint(request)), decides=False)
    return ChosenFilter(dupefilter, own, decides=False)


def _known_filters(kind: type) -> list[Any]:
    """The filters that the frontier replaces, including scrapy-redis' where the project's class derives from it."""
    scrapy_redis = ("scrapy_redis.dupefilter", "RFPDupeFilter")
    bases = [base for base in kind.__mro__ if (base.__module__, base.__name__) == scrapy_redis]
    return [DupeFilter, RFPDupeFilter, *bases]


def _bytes(fingerprint: str | bytes) -> bytes:
    if isinstance(fingerprint, bytes):
        return fingerprint
    try:
        return bytes.fromhex(fingerprint)
    except ValueError:
        return fingerprint.encode()
