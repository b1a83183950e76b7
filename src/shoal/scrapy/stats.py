"""Statistics of all processes together in a Redis hash, by scrapy-redis' names: counted here, sent once a second.

A counter is added to what the others have counted; what is no whole number is set as this process has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import datetime
from typing import Any, Self

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.statscollectors import StatsCollector

from shoal.errors import ShoalError
from shoal.scrapy import names
from shoal.scrapy.session import Session

log = logging.getLogger("shoal.scrapy")
_EVERY_SECONDS = 1.0


class RedisStatsCollector(StatsCollector):
    """STATS_CLASS = "shoal.scrapy.RedisStatsCollector"."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._crawler = crawler
        self._sent: dict[str, Any] = {}
        self._task: asyncio.Task[None] | None = None
        crawler.signals.connect(self._opened, signal=signals.spider_opened)
        crawler.signals.connect(self._closed, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

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
                log.error("Statistics cannot be sent: %s", error)

    async def _send(self) -> None:
        session = Session.of(self._crawler)
        frontier = await session.join()
        try:
            spider: Any = self._crawler.spider or self._crawler.spidercls
            key = str(names.value(self._crawler.settings, "STATS_KEY")) % {"spider": spider.name, "name": spider.name}
            changed = {name: value for name, value in self._stats.items() if self._sent.get(name) != value}
            calls = []
            for name, value in changed.items():
                if type(value) is int:
                    calls.append(("HINCRBY", key, name, value - self._sent.get(name, 0)))
                else:
                    shown = value.timestamp() if isinstance(value, datetime) else value
                    calls.append(("HSET", key, name, str(shown)))
            await asyncio.gather(*(frontier.shards.store.command(*call, key=key) for call in calls))
            self._sent.update(changed)
        finally:
            await session.leave()
