"""Start URLs from Redis: a list, a set or a sorted set under a key that the project chooses.

A message stays under its key until its requests are in the frontier. Processes take turns: a batch is claimed for two
seconds in a hash beside the key. A process that finds an expired claim takes over the same batch under the same id, so
the resulting requests do not depend on which process died when.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import DontCloseSpider

from shoal.errors import SettingsError, ShoalError, StoreCorrupt
from shoal.frontier import Frontier
from shoal.frontier.scrapy_redis_keys import ScrapyRedisKeys
from shoal.scrapy import scrapy_redis_settings
from shoal.scrapy.outbox import Outbox

log = logging.getLogger("shoal.scrapy")
# Long enough to add a batch to the frontier. A short time is safe: a batch that is taken over stays the same batch.
_CLAIM_MS = 2000
_RETRY_SECONDS = 5.0
# A claim is one call of HSET, and Lua limits the number of its arguments.
_MAX_BATCH = 1000
# How many bytes of a message the log shows.
_MAX_SHOWN = 200
_REASONS = {
    "list": "neither REDIS_START_URLS_AS_SET nor REDIS_START_URLS_AS_ZSET is set",
    "set": "REDIS_START_URLS_AS_SET is set",
    "zset": "REDIS_START_URLS_AS_ZSET is set",
}
Push = Callable[[Request, bytes], None]


class StartUrls:
    def __init__(
        self,
        spider: Any,
        crawler: Crawler,
        frontier: Frontier,
        outbox: Outbox,
        push: Push,
        has_ended: Callable[[], bool],
    ) -> None:
        settings = crawler.settings
        self._spider = spider
        self._server = ScrapyRedisKeys(frontier)
        self._outbox = outbox
        self._push = push
        self._has_ended = has_ended
        # Messages of the current batch that the spider cannot handle.
        self._rejected: list[bytes] = []
        keys = spider.redis_key
        templates = [keys] if isinstance(keys, str | bytes) else list(keys)
        self._keys = [scrapy_redis_settings.key_of(template, spider.name) for template in templates]
        self._batch = min(_MAX_BATCH, batch_size(spider, crawler))
        as_set, as_zset = (
            settings.getbool(name, bool(scrapy_redis_settings.NAMES[name].default))
            for name in ("REDIS_START_URLS_AS_SET", "REDIS_START_URLS_AS_ZSET")
        )
        self._kind = "set" if as_set else "zset" if as_zset else "list"
        idle = getattr(spider, "max_idle_time", None)
        self._max_idle_seconds = int(
            scrapy_redis_settings.value(settings, "MAX_IDLE_TIME_BEFORE_CLOSE") if idle is None else idle
        )
        self._last_message_mono = time.monotonic()
        self.busy = False

    @classmethod
    def take_over(
        cls,
        spider: Spider,
        crawler: Crawler,
        frontier: Frontier,
        outbox: Outbox,
        push: Push,
        has_ended: Callable[[], bool],
    ) -> StartUrls | None:
        """Read the start URLs of any spider with a `redis_key`, including scrapy-redis' spiders; None for others."""
        redis_spider: Any = spider
        if not getattr(redis_spider, "redis_key", None) or not hasattr(redis_spider, "make_request_from_data"):
            return None
        start_urls = cls(redis_spider, crawler, frontier, outbox, push, has_ended)
        # scrapy-redis' spiders would pop URLs in start_requests and when idle.
        if hasattr(redis_spider, "next_requests"):
            redis_spider.fetch_data = _no_messages
        # A project's own start_requests, e.g. for a login, stays; scrapy-redis' own only pops URLs.
        if not _project_defines(type(redis_spider), "start_requests"):
            redis_spider.start_requests = lambda: iter(())
        if hasattr(redis_spider, "spider_idle"):
            if _project_defines(type(redis_spider), "spider_idle"):
                log.warning(
                    "spider_idle of %s is not called: Shoal reads the start URLs; MAX_IDLE_TIME_BEFORE_CLOSE sets when "
                    "an idle spider closes.", spider.name,
                )  # fmt: skip
            crawler.signals.disconnect(redis_spider.spider_idle, signal=signals.spider_idle)
        crawler.signals.connect(start_urls.keep_open, signal=signals.spider_idle)
        return start_urls

    def keep_open(self) -> None:
        """Keep an idle spider open for more start URLs, until the maximum idle time has passed."""
        if self._has_ended():
            return
        if (
            self.busy
            or not self._max_idle_seconds
            or time.monotonic() - self._last_message_mono < self._max_idle_seconds
        ):
            raise DontCloseSpider

    async def run(self) -> None:
        while not self._has_ended():
            received = 0
            try:
                for key in self._keys:
                    received += await self._receive(key)
            except ShoalError as error:
                log.error("Cannot read start URLs: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
            if not received:
                await asyncio.sleep(scrapy_redis_settings.POLL_SECONDS)

    async def _receive(self, key: str) -> int:
        try:
            batch = await self._server.claim(key, self._kind, self._batch, _CLAIM_MS)
        except StoreCorrupt:
            await self._check_kind(key)
            raise
        if batch is None:
            return 0
        # While there are messages under the key, the spider is not idle.
        self._last_message_mono = time.monotonic()
        if not batch.id:
            return 0
        self.busy = True
        try:
            for number, request in enumerate(self._requests(key, batch.messages)):
                self._push(request, b"%s %s %d" % (key.encode(), batch.id, number))
            # The messages leave their key only after their requests are in the frontier.
            await self._outbox.empty()
            rejected, self._rejected = self._rejected, []
            for message in rejected:
                await self._server.append_item(f"{key}:dead", message)
            await self._server.remove(key, self._kind, batch.id)
        finally:
            self.busy = False
        return len(batch.messages)

    async def _check_kind(self, key: str) -> None:
        kind = await self._server.type_of(key)
        if kind not in (self._kind, "none"):
            raise SettingsError(f"{key!r} is a {kind}, but is read as a {self._kind} because {_REASONS[self._kind]}.")

    def _requests(self, key: str, messages: list[bytes]) -> Iterable[Request]:
        """The requests of messages, by the spider's own `next_requests` or `make_request_from_data`."""
        spider = self._spider
        if getattr(type(spider), "next_requests", None) is None:
            for message in messages:
                yield from self._guarded(key, message, lambda: _as_list(spider.make_request_from_data(message)))  # noqa: B023
            return
        try:
            for message in messages:
                spider.fetch_data = lambda *_: [message]  # noqa: B023 - used in this iteration
                yield from self._guarded(key, message, spider.next_requests)
        finally:
            spider.fetch_data = _no_messages

    def _guarded(self, key: str, message: bytes, make: Callable[[], Iterable[Any]]) -> Iterable[Request]:
        """A message that the spider cannot handle is moved to the list KEY:dead and does not affect the others."""
        try:
            yield from (request for request in make() if isinstance(request, Request))
        except Exception:
            self._rejected.append(message)
            shown = message[:_MAX_SHOWN].decode(errors="replace") + ("..." if len(message) > _MAX_SHOWN else "")
            log.exception(
                "Spider %s cannot handle the start URL %r. It is now in %s:dead.", self._spider.name, shown, key
            )


def _no_messages(*_: Any) -> list[bytes]:
    """The spider itself receives no messages."""
    return []


def _project_defines(kind: type, method: str) -> bool:
    """Whether a class of the project has the method, not Scrapy's or scrapy-redis'."""
    module = next((base.__module__ for base in kind.__mro__ if method in vars(base)), "")
    return module.partition(".")[0] not in ("", "scrapy", "scrapy_redis")


def batch_size(spider: Any, crawler: Crawler) -> int:
    size = getattr(spider, "redis_batch_size", None)
    if size is None:
        size = crawler.settings.get("REDIS_START_URLS_BATCH_SIZE") or scrapy_redis_settings.value(
            crawler.settings, "CONCURRENT_REQUESTS"
        )
    try:
        return max(1, int(size))
    except (TypeError, ValueError):
        raise ValueError("redis_batch_size must be an integer") from None


def _as_list(requests: Any) -> list[Any]:
    if requests is None:
        return []
    return [requests] if isinstance(requests, Request) else list(requests)
