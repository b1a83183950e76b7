"""The module `scrapy_redis.dupefilter` of the shim, for classes of a project that derive from its filter.

Under Shoal's scheduler the frontier filters, with the `request_fingerprint` of such a class (`dupefilter.py`). With any
other scheduler, the filter works as in scrapy-redis: on a set in Redis, through the package redis.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Self

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter
from scrapy.settings import BaseSettings
from scrapy.utils.request import fingerprint

from shoal.scrapy import scrapy_redis_settings
from shoal.scrapy.redis_client import get_redis_from_settings

_ONE_RUN_KEY = "dupefilter:%(timestamp)s"


class RFPDupeFilter(BaseDupeFilter):
    """Like scrapy_redis.dupefilter.RFPDupeFilter."""

    __module__ = "scrapy_redis.dupefilter"
    logger = logging.getLogger("shoal.scrapy")

    def __init__(self, server: Any, key: str, debug: bool = False) -> None:
        self._server = server
        self._connect: Callable[[], Any] | None = None
        self.key = key
        self.debug = debug
        self.logdupes = True

    @property
    def server(self) -> Any:
        """A client of Redis, created on first use: Shoal's scheduler does not need it."""
        if self._server is None and self._connect is not None:
            self._server = self._connect()
        return self._server

    @classmethod
    def from_settings(cls, settings: BaseSettings) -> Self:
        return cls._made(settings, _ONE_RUN_KEY % {"timestamp": int(time.time())})

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls.from_settings(crawler.settings)

    @classmethod
    def from_spider(cls, spider: Spider) -> Self:
        template = scrapy_redis_settings.value(spider.settings, "SCHEDULER_DUPEFILTER_KEY")
        return cls._made(spider.settings, scrapy_redis_settings.key_of(template, spider.name))

    @classmethod
    def _made(cls, settings: BaseSettings, key: str) -> Self:
        made = cls(None, key, settings.getbool("DUPEFILTER_DEBUG"))
        made._connect = lambda: get_redis_from_settings(settings)
        return made

    def request_seen(self, request: Request) -> bool:
        return bool(self.server.sadd(self.key, self.request_fingerprint(request)) == 0)

    def request_fingerprint(self, request: Request) -> str:
        return fingerprint(request).hex()

    def clear(self) -> None:
        self.server.delete(self.key)

    def close(self, reason: str = "") -> None:
        self.clear()

    def log(self, request: Request, spider: Spider) -> None:
        if not self.debug and not self.logdupes:
            return
        note = "" if self.debug else " - no more duplicates will be shown (see DUPEFILTER_DEBUG to show all duplicates)"
        self.logger.debug("Filtered duplicate request: %s%s", request, note, extra={"spider": spider})
        self.logdupes = False
