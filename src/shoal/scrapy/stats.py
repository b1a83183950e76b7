"""RedisStatsCollector: statistics of all processes in one Redis hash, under scrapy-redis' names, sent every second.

Increments are added to the counts of the other processes, maxima and minima are compared with theirs, and any other
value is overwritten by this process's value. `get_value` and `get_stats` return the values of all processes as of the
last second, with this process's own changes since then. As in scrapy-redis, the hash is deleted when the spider closes
without SCHEDULER_PERSIST; here only the last process of the spider does so.
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
from shoal.scrapy.peers import others_of
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
        # The hash, and what this process had sent when it was read.
        self._fleet: dict[str, Any] = {}
        self._in_fleet: dict[str, Any] = {}
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

    def get_value(self, key: str, default: Any = None, spider: Spider | None = None) -> Any:
        if key not in self._fleet:
            return self._stats.get(key, default)
        fleet, how = self._fleet[key], self._how.get(key)
        if key not in self._stats:
            return fleet
        own = self._stats[key]
        if how is None or type(own) not in (int, float) or type(fleet) not in (int, float):
            return own
        return (
            fleet + own - self._in_fleet.get(key, 0)
            if how == "add"
            else max(fleet, own)
            if how == "max"
            else min(fleet, own)
        )

    def get_stats(self, spider: Spider | None = None) -> dict[str, Any]:
        return {key: self.get_value(key) for key in {**self._fleet, **self._stats}}

    async def _opened(self) -> None:
        await Session.of(self._crawler).join()
        self._task = asyncio.ensure_future(self._run())

    async def _closed(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        with contextlib.suppress(ShoalError):
            await self._send(last=True)
        await Session.of(self._crawler).leave()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            try:
                await self._send()
            except ShoalError as error:
                log.error("Cannot send statistics: %s", error)

    async def _send(self, *, last: bool = False) -> None:
        session = Session.of(self._crawler)
        frontier = await session.join()
        try:
            spider: Any = self._crawler.spider or self._crawler.spidercls
            template = scrapy_redis_settings.value(self._crawler.settings, "STATS_KEY")
            key = scrapy_redis_settings.key_of(template, spider.name)
            server = ScrapyRedisKeys(frontier)
            if (
                last
                and not self._crawler.settings.getbool("SCHEDULER_PERSIST")
                and not await others_of(frontier, spider)
            ):
                await server.remove_stats(key)
                return
            changed = {name: value for name, value in self._stats.items() if self._sent.get(name) != value}
            await asyncio.gather(*(self._write(server, key, name, value) for name, value in changed.items()))
            self._sent.update(changed)
            in_fleet = dict(self._sent)
            self._fleet = {name: _number(text) for name, text in (await server.stats(key)).items()}
            self._in_fleet = in_fleet
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


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text
