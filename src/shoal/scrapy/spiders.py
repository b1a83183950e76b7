"""Spiders with scrapy-redis' names that get their start URLs from Redis. start_urls.py reads the URLs."""

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

_REQUEST_FIELDS = (
    "method",
    "headers",
    "cookies",
    "body",
    "meta",
    "priority",
    "dont_filter",
    "cb_kwargs",
    "encoding",
    "flags",
)


class RedisMixin:
    """`redis_key` is a key, a template with %(name)s, or a list of them."""

    redis_key: str | list[str] | tuple[str, ...] | None = None
    redis_batch_size: int | None = None
    redis_encoding: str | None = None
    max_idle_time: int | None = None
    name: str
    logger: Any
    crawler: Crawler

    @cached_property
    def server(self) -> Any:
        """A redis-py client of the store for the spider's own use, created on first access."""
        try:
            return server_of(self.crawler)
        except SettingsError as error:
            # Code that goes through a spider's attributes, e.g. Scrapy's search for callbacks, expects AttributeError.
            raise AttributeError(str(error)) from None

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        spider: Self = super().from_crawler(crawler, *args, **kwargs)  # type: ignore[misc]
        spider.setup_redis(crawler)
        return spider

    def setup_redis(self, crawler: Crawler | None = None) -> None:
        """Set the attributes that the class does not define from the settings."""
        crawler = crawler or getattr(self, "crawler", None)
        if crawler is None:
            raise ValueError("crawler is required")
        if self.redis_key is None:
            self.redis_key = str(scrapy_redis_settings.value(crawler.settings, "REDIS_START_URLS_KEY"))
        if isinstance(self.redis_key, str):
            self.redis_key = scrapy_redis_settings.key_of(self.redis_key, self.name)
        if not self.redis_key or (isinstance(self.redis_key, str) and not self.redis_key.strip()):
            raise ValueError("redis_key must not be empty")
        self.redis_batch_size = batch_size(self, crawler)
        if self.max_idle_time is None:
            self.max_idle_time = scrapy_redis_settings.value(crawler.settings, "MAX_IDLE_TIME_BEFORE_CLOSE")
        try:
            self.max_idle_time = int(self.max_idle_time)
        except (TypeError, ValueError):
            raise ValueError("max_idle_time must be an integer") from None
        if self.redis_encoding is None:
            self.redis_encoding = str(scrapy_redis_settings.value(crawler.settings, "REDIS_ENCODING"))
        self.logger.info(
            "Reading start URLs from redis key %r (batch size: %s, encoding: %s)",
            self.redis_key, self.redis_batch_size, self.redis_encoding,
        )  # fmt: skip

    def fetch_data(self, redis_key: str, batch_size: int) -> list[bytes]:
        """The messages for `next_requests`. The scheduler replaces this method."""
        return []

    def next_requests(self) -> Iterable[Request]:
        """The requests of the messages that `fetch_data` returns."""
        for data in self.fetch_data(str(self.redis_key), self.redis_batch_size or 1):
            requests = self.make_request_from_data(data)
            if isinstance(requests, Request):
                yield requests
            elif requests:
                yield from requests
            else:
                self.logger.debug("Request not made from data: %r", data[:200])

    def make_request_from_data(self, data: bytes) -> Request | Iterable[Request] | None:
        """The request of a message: a URL, or JSON with `url` and arguments of Request. Other keys are form fields."""
        text = data.decode(self.redis_encoding or "utf-8") if isinstance(data, bytes) else data
        try:
            fields = json.loads(text)
        except ValueError:
            fields = None
        if not isinstance(fields, dict):
            return Request(text.strip(), dont_filter=True)
        url = fields.pop("url", None)
        if not url:
            self.logger.warning("A message in %s has no url.", self.redis_key)
            return None
        arguments = {name: fields.pop(name) for name in _REQUEST_FIELDS if name in fields}
        arguments.setdefault("dont_filter", True)
        if not fields:
            return Request(url, **arguments)
        # FormRequest defaults to POST; scrapy-redis sends a GET query unless the message has a method.
        arguments.setdefault("method", "GET")
        return FormRequest(url, formdata=fields, **arguments)


class RedisSpider(RedisMixin, Spider):
    """Like scrapy_redis.spiders.RedisSpider."""


class RedisCrawlSpider(RedisMixin, CrawlSpider):
    """Like scrapy_redis.spiders.RedisCrawlSpider."""
