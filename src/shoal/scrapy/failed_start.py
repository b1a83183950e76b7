"""A start that fails for a known reason is logged as one sentence.

Scrapy logs such an exception several times with a traceback, and so do asyncio or Twisted, because nobody awaits the
crawl. Those records are dropped here. The exception itself still reaches Scrapy, which sets the exit code. With another
reactor than asyncio's, Twisted also writes it to standard error.
"""

from __future__ import annotations

import logging
from typing import Any

from scrapy import Request, Spider
from scrapy.core.scheduler import BaseScheduler
from scrapy.crawler import Crawler
from scrapy.extensions.corestats import CoreStats

from shoal.errors import ShoalError

log = logging.getLogger("shoal.scrapy")
_LOGGERS = ("asyncio", "scrapy.core.engine", "scrapy.crawler", "scrapy.utils.signal", "twisted")
# Twisted logs this line on its own, before the exception.
_HEADING = "Unhandled error in Deferred"


def report(error: ShoalError, crawler: Crawler) -> None:
    """Log the sentence, and drop the records of other loggers about the same exception."""
    log.critical("%s", error, extra={"spider": crawler.spider})
    dropped = _Dropped(error)
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(dropped)
    # Its handler of spider_closed expects that spider_opened was sent.
    for extension in getattr(crawler.extensions, "middlewares", ()):
        if isinstance(extension, CoreStats) and extension.start_time is None and crawler.spider is not None:
            extension.spider_opened(crawler.spider)


class FailedScheduler(BaseScheduler):
    """Replaces a scheduler that cannot be created: Scrapy can only close a scheduler that it has tried to open."""

    def __init__(self, error: ShoalError, crawler: Crawler) -> None:
        self._error = error
        self._crawler = crawler

    def open(self, spider: Spider) -> None:
        report(self._error, self._crawler)
        raise self._error

    def has_pending_requests(self) -> bool:
        return False

    def enqueue_request(self, request: Request) -> bool:
        return False

    def next_request(self) -> None:
        return None


class _Dropped(logging.Filter):
    def __init__(self, error: ShoalError) -> None:
        super().__init__()
        self._error = error
        self._heading = True

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == "twisted" and self._heading and _HEADING in record.getMessage():
            self._heading = False
            return False
        return not (record.exc_info and self._is_about(record.exc_info[1]))

    def _is_about(self, exception: Any) -> bool:
        while exception is not None:
            if exception is self._error:
                return True
            exception = exception.__cause__ or exception.__context__
        return False
