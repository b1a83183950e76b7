"""RedisStatsCollector: statistics of all processes in one Redis hash, under scrapy-redis' names, sent every second.

Increments are added to the counts of the other processes, maxima and minima are compared with theirs, and any other
value is overwritten by this process's value.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import datetime
from typing import Any, Self

from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.statscollectors import StatsCollector

from shoal.errors import ShoalError
from shoal.frontier.scrapy_redis_keys import ScrapyRedisKeys
from shoal.scrapy import scrapy_redis_settings
from shoal.scrapy.session import Session

log = logging.getLogger("shoal.scrapy")
_EVERY_SECONDS = 1.0


class RedisStatsCollector(StatsCollector):
    """STATS_CLASS = "shoal.scrapy.RedisStatsCollector"."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._crawler = crawler
        self._sent: dict[str, Any] = {}
        # How a value is merged: add, max or min; other values are set.
        self._how: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None
        crawler.signals.connect(self._opened, signal=signals.spider_opened)
        crawler.signals.connect(self._closed, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def inc_value(self, key: str, count: int = 1, start: int = 0, spider: Spider | None = None) -> None:
        self._how[key] = "add"
        super().inc_value(key, count, start)

    def max_value(self, key: str, value: Any, spider: Spider | None = None) -> None:
        self._how[key] = "max"
        super().max_value(key, value)

    def min_value(self, key: str, value: Any, spider: Spider | None = None) -> None:
        self._how[key] = "min"
        super().min_value(key, value)

    async def _opened(self) -> None:
        await Session.of(self._crawler).join()
        self._task = asyncio.ensure_future(self._run())

    async def _closed(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        with contextlib.suppress(ShoalError):
            await self._send()
        await Session.of(self._crawler).leave()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            try:
                await self._send()
            except ShoalError as error:
                log.error("Cannot send statistics: %s", error)

    async def _send(self) -> None:
        session = Session.of(self._crawler)
        frontier = await session.join()
        try:
            spider: Any = self._crawler.spider or self._crawler.spidercls
            template = scrapy_redis_settings.value(self._crawler.settings, "STATS_KEY")
            key = scrapy_redis_settings.key_of(template, spider.name)
            changed = {name: value for name, value in self._stats.items() if self._sent.get(name) != value}
            server = ScrapyRedisKeys(frontier)
            await asyncio.gather(*(self._write(server, key, name, value) for name, value in changed.items()))
            self._sent.update(changed)
        finally:
            await session.leave()

    async def _write(self, server: ScrapyRedisKeys, key: str, name: str, value: Any) -> None:
        how = self._how.get(name)
        if type(value) not in (int, float) or how is None:
            shown = value.timestamp() if isinstance(value, datetime) else value
            await server.set_stat(key, name, str(shown))
        elif how == "add":
            await server.add_to_stat(key, name, value - self._sent.get(name, 0))
        else:
            await server.compare_stat(key, name, value, how)
