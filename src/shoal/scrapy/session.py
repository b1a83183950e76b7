"""One connection to the store for all components of a crawler. The last component to leave closes it."""

from __future__ import annotations

import asyncio
import logging
import weakref
from typing import Any

from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings

from shoal.errors import SettingsError
from shoal.frontier import Frontier
from shoal.scrapy import scrapy_redis_settings
from shoal.settings import Settings, load

try:
    from scrapy.utils.asyncio import is_asyncio_available
except ImportError:  # Scrapy 2.13
    from scrapy.utils.reactor import is_asyncio_reactor_installed as is_asyncio_available

log = logging.getLogger("shoal.scrapy")
_sessions: weakref.WeakKeyDictionary[Crawler, Session] = weakref.WeakKeyDictionary()

# Scrapy settings that override shoal.toml and the SHOAL_* environment variables.
_SHOAL_SETTINGS = {
    "SHOAL_STORE_URL": "store.url",
    "SHOAL_STORE_FOLDER": "store.folder",
    "SHOAL_STORE_NAMESPACE": "store.namespace",
    "SHOAL_FRONTIER_LEASE_SECONDS": "frontier.lease_seconds",
    "SHOAL_FRONTIER_BATCH_SECONDS": "frontier.batch_seconds",
}


class Session:
    def __init__(self, crawler: Crawler) -> None:
        self.settings = settings_of(crawler)
        self._users = 0
        self._opening: asyncio.Task[Frontier] | None = None

    @classmethod
    def of(cls, crawler: Crawler) -> Session:
        session = _sessions.get(crawler)
        if session is None:
            session = _sessions[crawler] = cls(crawler)
        return session

    async def join(self) -> Frontier:
        """The crawler's frontier. Every `join` needs a `leave`."""
        self._users += 1
        if self._opening is None:
            self._opening = asyncio.ensure_future(Frontier.from_settings(self.settings, on_warning=log.warning))
        try:
            return await asyncio.shield(self._opening)
        except BaseException:
            self._users -= 1
            raise

    async def leave(self) -> None:
        self._users -= 1
        if not self._users and self._opening is not None:
            opening, self._opening = self._opening, None
            await (await opening).close()


def settings_of(crawler: Crawler) -> Settings:
    """Shoal's settings for a crawler. One that reads its start URLs from Redis uses localhost by default."""
    spider = crawler.spider or crawler.spidercls
    return load_settings(crawler.settings, reads_start_urls=getattr(spider, "redis_key", None) is not None)


def load_settings(scrapy_settings: BaseSettings, *, reads_start_urls: bool = False) -> Settings:
    """Shoal's settings. The Scrapy project's settings override shoal.toml and SHOAL_*."""
    if not is_asyncio_available():
        raise SettingsError(
            "Shoal requires Scrapy's asyncio reactor: set TWISTED_REACTOR to "
            "'twisted.internet.asyncioreactor.AsyncioSelectorReactor', which is Scrapy's default."
        )
    flags: dict[str, Any] = {}
    for setting, key in _SHOAL_SETTINGS.items():
        if (value := scrapy_settings.get(setting)) is not None:
            flags[key] = value
    loaded = load(flags=flags)
    for warning in loaded.warnings:
        log.warning(warning)
    settings = loaded.settings
    if "store.url" not in flags:
        reads = reads_start_urls and not settings.store.url
        url = scrapy_redis_settings.store_url(scrapy_settings, reads_start_urls=reads)
        if url is not None:
            settings = load(flags={**flags, "store.url": url}).settings
    return settings
