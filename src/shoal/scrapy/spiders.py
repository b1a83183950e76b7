"""Spiders that read their start URLs from Redis, by scrapy-redis' names. The scheduler does the reading (starts.py)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Self

from scrapy import FormRequest, Request
from scrapy.crawler import Crawler
from scrapy.spiders import CrawlSpider, Spider

from shoal.errors import SettingsError
from shoal.scrapy import scrapy_redis_settings
from shoal.scrapy.redis_client import server_of
from shoal.scrapy.start_urls import batch_size

_REQUEST = ("method", "headers", "cookies", "body", "meta", "priority", "dont_filter", "cb_kwargs", "encoding", "flags")


class RedisMixin:
    """`redis_key` is a key, a template with %(name)s, or a list of these."""

    redis_key: str | list[str] | tuple[str, ...] | None = None
    redis_batch_size: int | None = None
    redis_encoding: str | None = None
    max_idle_time: int | None = None
    name: str
    logger: Any
    crawler: Crawler

    @cached_property
    def server(self) -> Any:
        """A client of the store, of the package redis, for what a spider does there itself; made when it is used."""
        try:
            return server_of(self.crawler)
        except SettingsError as error:
            # Whoever looks through a spider's attributes, as Scrapy does for callbacks, is not stopped by this one.
            raise AttributeError(str(error)) from None

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        spider: Self = super().from_crawler(crawler, *args, **kwargs)  # type: ignore[misc]
        spider.setup_redis(crawler)
        return spider

    def setup_redis(self, crawler: Crawler | None = None) -> None:
        """Fill in from the settings what the class leaves open."""
        crawler = crawler or getattr(self, "crawler", None)
        if crawler is None:
            raise ValueError("crawler is required")
        if self.redis_key is None:
            self.redis_key = str(scrapy_redis_settings.value(crawler.settings, "REDIS_START_URLS_KEY"))
        if isinstance(self.redis_key, str):
            self.redis_key = self.redis_key % {"name": self.name, "spider": self.name}
        if not self.redis_key or (isinstance(self.redis_key, str) and not self.redis_key.strip()):
            raise ValueError("redis_key must not be empty")
        self.redis_batch_size = batch_size(self, crawler)
        if self.redis_encoding is None:
            self.redis_encoding = str(scrapy_redis_settings.value(crawler.settings, "REDIS_ENCODING"))
        self.logger.info(
            "Reading start URLs from redis key %r (batch size: %s, encoding: %s)",
            self.redis_key, self.redis_batch_size, self.redis_encoding,
        )  # fmt: skip

    def fetch_data(self, redis_key: str, batch_size: int) -> list[bytes]:
        """Messages for `next_requests`; the scheduler sets this."""
        return []

    def next_requests(self) -> Iterable[Request]:
        """The requests of the messages that are there."""
        for data in self.fetch_data(str(self.redis_key), self.redis_batch_size or 1):
            made = self.make_request_from_data(data)
            if isinstance(made, Request):
                yield made
            elif made:
                yield from made
            else:
                self.logger.debug("Request not made from data: %r", data[:200])

    def make_request_from_data(self, data: bytes) -> Request | Iterable[Request] | None:
        """The request of a message: a URL, or JSON with url and what a request takes; other names are form fields."""
        text = data.decode(self.redis_encoding or "utf-8") if isinstance(data, bytes) else data
        try:
            fields = json.loads(text)
        except ValueError:
            fields = None
        if not isinstance(fields, dict):
            return Request(text.strip(), dont_filter=True)
        url = fields.pop("url", None)
        if not url:
            self.logger.warning("A message under %s has no url.", self.redis_key)
            return None
        given = {name: fields.pop(name) for name in _REQUEST if name in fields}
        given.setdefault("dont_filter", True)
        if not fields:
            return Request(url, **given)
        # A form alone would be sent as POST; scrapy-redis means a query unless the message names the method.
        given.setdefault("method", "GET")
        return FormRequest(url, formdata=fields, **given)


class RedisSpider(RedisMixin, Spider):
    """As scrapy_redis.spiders.RedisSpider."""


class RedisCrawlSpider(RedisMixin, CrawlSpider):
    """As scrapy_redis.spiders.RedisCrawlSpider."""
