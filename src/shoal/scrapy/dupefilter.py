"""The duplicate filter. The frontier filters, in the same step in which it queues a request; here is the rest.

Owns which class decides: Scrapy's, scrapy-redis' and ours leave it to the frontier, with their own idea of a
fingerprint if they have one. Any other class is asked itself.
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
    """DUPEFILTER_CLASS = "shoal.scrapy.DupeFilter". Override `request_fingerprint` to say what is the same request."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self.debug = crawler.settings.getbool("DUPEFILTER_DEBUG")
        self.logdupes = True
        self._seen: set[str] = set()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def request_seen(self, request: Request) -> bool:
        """For a scheduler that asks, in this process alone. Ours does not: the frontier knows it for all at once."""
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


class Judge(NamedTuple):
    """`fingerprint` is None where the frontier's own is right; `asked` means that the filter decides by itself."""

    filter: Any
    fingerprint: Callable[[Request], bytes] | None
    asked: bool


def judge(crawler: Crawler) -> Judge:
    own = None if is_default(crawler.request_fingerprinter) else crawler.request_fingerprinter.fingerprint
    if scrapy_redis_settings.filtered_by_frontier(crawler.settings):
        return Judge(DupeFilter(crawler), own, asked=False)
    kind: Any = load_object(crawler.settings["DUPEFILTER_CLASS"])
    root = next((one for one in _roots(kind) if issubclass(kind, one)), None)
    if root is None or kind.request_seen is not root.request_seen:
        return Judge(build_from_crawler(kind, crawler), None, asked=True)
    made = DupeFilter(crawler) if kind is root and root is not DupeFilter else build_from_crawler(kind, crawler)
    if kind.request_fingerprint is not root.request_fingerprint:
        return Judge(made, lambda request: _bytes(made.request_fingerprint(request)), asked=False)
    return Judge(made, own, asked=False)


def _roots(kind: type) -> list[Any]:
    """The filters whose work the frontier does, scrapy-redis' too where the project's class comes from it."""
    theirs = [
        one for one in kind.__mro__ if (one.__module__, one.__name__) == ("scrapy_redis.dupefilter", "RFPDupeFilter")
    ]
    return [DupeFilter, RFPDupeFilter, *theirs]


def _bytes(fingerprint: str | bytes) -> bytes:
    if isinstance(fingerprint, bytes):
        return fingerprint
    try:
        return bytes.fromhex(fingerprint)
    except ValueError:
        return fingerprint.encode()
