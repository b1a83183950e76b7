"""RedisPipeline: append items to a Redis list, under scrapy-redis' names. A request is acknowledged after its items."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property
from typing import Any, Self

from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.utils.misc import load_object
from scrapy.utils.serialize import ScrapyJSONEncoder

from shoal.frontier.scrapy_redis_keys import ScrapyRedisKeys
from shoal.scrapy import scrapy_redis_settings
from shoal.scrapy.redis_client import server_of
from shoal.scrapy.session import Session


class RedisPipeline:
    """ITEM_PIPELINES = {"shoal.scrapy.RedisPipeline": 300}."""

    _server: ScrapyRedisKeys

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        # Signals, because Scrapy 2.13 does not support coroutines as open_spider and close_spider.
        crawler.signals.connect(self._opened, signal=signals.spider_opened)
        crawler.signals.connect(self._closed, signal=signals.spider_closed)
        self.key = str(scrapy_redis_settings.value(crawler.settings, "REDIS_ITEMS_KEY"))
        path = crawler.settings.get("REDIS_ITEMS_SERIALIZER")
        self.serialize: Callable[[Any], str | bytes] = load_object(path) if path else ScrapyJSONEncoder().encode

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    async def _opened(self) -> None:
        self._server = ScrapyRedisKeys(await Session.of(self._crawler).join())

    @cached_property
    def server(self) -> Any:
        """A redis-py client of the store, for subclasses."""
        return server_of(self._crawler)

    async def process_item(self, item: Any, spider: Spider | None = None) -> Any:
        if type(self)._process_item is not RedisPipeline._process_item:
            # A subclass stores items itself, in a thread as in scrapy-redis.
            return await asyncio.to_thread(self._process_item, item, spider or self._crawler.spider)
        key = self.item_key(item, spider or self._crawler.spider)
        await self._server.append_item(key, self.serialize(item))
        return item

    def _process_item(self, item: Any, spider: Any) -> Any:
        """Override this as in scrapy-redis, to store items in another way. It may block."""
        self.server.rpush(self.item_key(item, spider), self.serialize(item))
        return item

    def item_key(self, item: Any, spider: Any) -> str:
        """Override this to use another key for some items."""
        return scrapy_redis_settings.key_of(self.key, spider.name)

    async def _closed(self) -> None:
        await Session.of(self._crawler).leave()
