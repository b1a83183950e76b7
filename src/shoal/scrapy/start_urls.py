"""Start URLs that come in through Redis: a list, a set or a sorted set under a key of the user's own.

A message stays under its key until its requests are in the frontier. Processes take turns: a batch is claimed for some
seconds in a hash beside the key; whoever finds a claim that ran out takes the same batch over under the same name, so
that what its requests are does not depend on who died when.
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
# Long enough to put a batch into the frontier. Short is safe: a batch that is taken over stays the same batch.
_CLAIM_MS = 2000
_AGAIN_SECONDS = 5.0
_BECAUSE = {
    "list": "neither REDIS_START_URLS_AS_SET nor REDIS_START_URLS_AS_ZSET is set",
    "set": "REDIS_START_URLS_AS_SET is set",
    "zset": "REDIS_START_URLS_AS_ZSET is set",
}
Push = Callable[[Request, bytes], None]


class StartUrls:
    def __init__(
        self, spider: Any, crawler: Crawler, frontier: Frontier, outbox: Outbox, push: Push, ended: Callable[[], bool]
    ) -> None:
        settings = crawler.settings
        self._spider = spider
        self._server = ScrapyRedisKeys(frontier)
        self._outbox = outbox
        self._push = push
        self._ended = ended
        keys = spider.redis_key
        named = [keys] if isinstance(keys, str | bytes) else list(keys)
        self._keys = [str(key) % {"name": spider.name, "spider": spider.name} for key in named]
        self._batch = batch_size(spider, crawler)
        as_set, as_zset = (
            settings.getbool(name, bool(scrapy_redis_settings.NAMES[name].default))
            for name in ("REDIS_START_URLS_AS_SET", "REDIS_START_URLS_AS_ZSET")
        )
        self._kind = "set" if as_set else "zset" if as_zset else "list"
        idle = getattr(spider, "max_idle_time", None)
        self._most_idle = int(
            scrapy_redis_settings.value(settings, "MAX_IDLE_TIME_BEFORE_CLOSE") if idle is None else idle
        )
        self._last = time.monotonic()
        self.busy = False

    @classmethod
    def take_over(
        cls, spider: Spider, crawler: Crawler, frontier: Frontier, outbox: Outbox, push: Push, ended: Callable[[], bool]
    ) -> StartUrls | None:
        """Read the start URLs of any spider that has a `redis_key`, scrapy-redis' own included; None for others."""
        one: Any = spider
        if not getattr(one, "redis_key", None) or not hasattr(one, "make_request_from_data"):
            return None
        starts = cls(one, crawler, frontier, outbox, push, ended)
        # scrapy-redis' spiders would pop in start_requests and when idle: both are ours now.
        if hasattr(one, "next_requests"):
            one.fetch_data = _nothing
        if not _has_own_start(type(one)):
            one.start_requests = lambda: iter(())
        if hasattr(one, "spider_idle"):
            crawler.signals.disconnect(one.spider_idle, signal=signals.spider_idle)
        crawler.signals.connect(starts.keep_open, signal=signals.spider_idle)
        return starts

    def keep_open(self) -> None:
        """Such a spider waits for more, unless it has waited long enough."""
        if self._ended():
            return
        if self.busy or not self._most_idle or time.monotonic() - self._last < self._most_idle:
            raise DontCloseSpider

    async def run(self) -> None:
        while not self._ended():
            taken = 0
            try:
                for key in self._keys:
                    taken += await self._take(key)
            except ShoalError as error:
                log.error("Start URLs cannot be read: %s", error)
                await asyncio.sleep(_AGAIN_SECONDS)
            if not taken:
                await asyncio.sleep(scrapy_redis_settings.SLOW_TO_NOTICE_SECONDS)

    async def _take(self, key: str) -> int:
        try:
            batch = await self._server.claim(key, self._kind, self._batch, _CLAIM_MS)
        except StoreCorrupt:
            await self._check_kind(key)
            raise
        if batch is None:
            return 0
        # As long as there is something under the key, the spider is not idle.
        self._last = time.monotonic()
        if not batch.id:
            return 0
        self.busy = True
        try:
            for number, request in enumerate(self._requests(key, batch.messages)):
                self._push(request, b"%s %s %d" % (key.encode(), batch.id, number))
            # In the frontier first; only then it leaves its list.
            await self._outbox.empty()
            await self._server.remove(key, self._kind, batch.id)
        finally:
            self.busy = False
        return len(batch.messages)

    async def _check_kind(self, key: str) -> None:
        kind = await self._server.type_of(key)
        if kind not in (self._kind, "none"):
            raise SettingsError(f"{key!r} is a {kind} and is read as a {self._kind}, because {_BECAUSE[self._kind]}.")

    def _requests(self, key: str, messages: list[bytes]) -> Iterable[Request]:
        """What the spider makes of messages, by its own `next_requests` or `make_request_from_data`."""
        spider = self._spider
        if getattr(type(spider), "next_requests", None) is None:
            for message in messages:
                yield from self._guarded(lambda: _listed(spider.make_request_from_data(message)))  # noqa: B023
            return
        try:
            for message in messages:
                spider.fetch_data = lambda *_: [message]  # noqa: B023 - used in this turn
                yield from self._guarded(spider.next_requests)
        finally:
            spider.fetch_data = _nothing

    def _guarded(self, make: Callable[[], Iterable[Any]]) -> Iterable[Request]:
        """A message the spider cannot read costs itself alone."""
        try:
            yield from (one for one in make() if isinstance(one, Request))
        except Exception:
            log.exception("A start URL of spider %s cannot be read and is dropped.", self._spider.name)


def _nothing(*_: Any) -> list[bytes]:
    """What a spider finds under its key by itself."""
    return []


def _has_own_start(kind: type) -> bool:
    """Whether the project has written its `start_requests`, such as for a login; scrapy-redis' own only pops."""
    where = next((one.__module__ for one in kind.__mro__ if "start_requests" in vars(one)), "")
    return where.partition(".")[0] not in ("", "scrapy", "scrapy_redis")


def batch_size(spider: Any, crawler: Crawler) -> int:
    size = getattr(spider, "redis_batch_size", None)
    if size is None:
        size = crawler.settings.get("REDIS_START_URLS_BATCH_SIZE") or scrapy_redis_settings.value(
            crawler.settings, "CONCURRENT_REQUESTS"
        )
    try:
        return max(1, min(1000, int(size)))
    except (TypeError, ValueError):
        raise ValueError("redis_batch_size must be an integer") from None


def _listed(made: Any) -> list[Any]:
    if made is None:
        return []
    return [made] if isinstance(made, Request) else list(made)
