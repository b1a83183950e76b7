"""IndexNow: sites report pages that they have added, changed or deleted (indexnow.org).

Owns the rules of the protocol and the check of a key. A report counts only if the site has a file with the key: this
proves that the sender owns the site. The file is requested once a day for a host and key, and only if a crawl that
accepts reports covers the host. The request goes through Shoal's fetcher, which refuses private addresses. It goes to
the host of the report, follows no redirect, and the sender does not see its response. Meanwhile, the fleet sends no
other request to the host.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence

import msgspec

from shoal.errors import CrawlEnded, FetchError, InvalidInput, InvalidUrl, UnknownCrawl
from shoal.fetch import Fetcher, Request
from shoal.frontier import Frontier
from shoal.frontier.inspect import store_seconds
from shoal.frontier.signals import SignalKind
from shoal.model.crawl import Crawl
from shoal.model.crawl_spec import CrawlSpec
from shoal.operations.touch import MAX_URLS as TOUCHED_AT_ONCE
from shoal.operations.touch import check_touchable, touch
from shoal.settings import Settings
from shoal.urls.canonical import Target, canonical
from shoal.worker.crawl_context import CrawlContext

# The protocol's own limit.
MAX_URLS = 10_000
_KEY = re.compile(r"[A-Za-z0-9-]{8,128}\Z")
_KEY_FILE_BYTES = 1000
# The timeout of the request for a key, the time that it first waits for open requests to the host, and how often it
# checks them.
_FETCH_SECONDS, _FREE_SECONDS, _POLL_SECONDS = 5.0, 4.0, 0.2
# How long the result of a check applies: of a valid key, and of an invalid key.
_VALID_SECONDS, _INVALID_SECONDS = 86400.0, 600.0
# A sender that tries keys must not make Shoal request them all.
_NEXT_KEY_SECONDS = 5.0
_REMEMBERED = 10_000
_REASON = "key of IndexNow"
_FETCHES = 10


class Refused(Exception):
    """A report that is refused; `status` is the HTTP status that the protocol defines."""

    def __init__(self, status: int, text: str, retry_after_seconds: int = 0) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after_seconds = retry_after_seconds


class IndexNow:
    """Accepts reports for the crawls in `api.indexnow`. Belongs to one event loop."""

    def __init__(self, frontier: Frontier, settings: Settings) -> None:
        self._frontier = frontier
        self._settings = settings
        self._fetcher: Fetcher | None = None
        # (host, location of the key) -> whether the key is valid, and until when that is known.
        self._keys: dict[tuple[str, str], tuple[bool, float]] = {}
        self._requested_mono: dict[str, float] = {}
        self._fetches = asyncio.Semaphore(_FETCHES)

    @property
    def names(self) -> list[str]:
        """The crawls that accept reports. If there are none, IndexNow is off."""
        return [name.strip() for name in self._settings.api.indexnow.split(",") if name.strip()]

    async def accept(self, urls: Sequence[str], key: str, *, host: str = "", location: str = "") -> bool:
        """Accept a report of URLs of one host. Returns False if no crawl covers them; raises Refused."""
        if not urls or len(urls) > MAX_URLS:
            raise Refused(400, f"Send 1 to {MAX_URLS:,} URLs.")
        if not _KEY.match(key):
            raise Refused(422, "The key must have 8 to 128 letters, digits or dashes.")
        targets = _targets(urls, host)
        file = _key_file(targets, key, location)
        crawls = [crawl for crawl in await self._crawls() if _covers(crawl, targets)]
        if not crawls:
            return False
        if not await self._is_valid(crawls[0], file, key):
            raise Refused(403, f"The key was not found at {file.url}.")
        for crawl in crawls:
            for start in range(0, len(targets), TOUCHED_AT_ONCE):
                part = [target.url for target in targets[start : start + TOUCHED_AT_ONCE]]
                try:
                    await touch(self._frontier, crawl, part, SignalKind.INDEXNOW)
                except CrawlEnded:
                    break
        return True

    async def _crawls(self) -> list[Crawl]:
        crawls = []
        for name in self.names:
            try:
                crawl = await self._frontier.crawls.get(name)
                check_touchable(crawl)
            except (UnknownCrawl, InvalidInput, CrawlEnded):
                continue
            crawls.append(crawl)
        return crawls

    async def _is_valid(self, crawl: Crawl, file: Target, key: str) -> bool:
        cache_key = (file.host, file.url)
        known = self._keys.get(cache_key)
        if known is not None and known[1] > time.monotonic():
            return known[0]
        before = self._requested_mono.get(file.host)
        if self._fetches.locked() or (before is not None and time.monotonic() - before < _NEXT_KEY_SECONDS):
            raise Refused(429, "Another key is being checked; retry later.", int(_NEXT_KEY_SECONDS))
        for cache in (self._keys, self._requested_mono):
            if len(cache) >= _REMEMBERED:
                cache.clear()
        self._requested_mono[file.host] = time.monotonic()
        async with self._fetches:
            await self._wait_for_host(file.host)
            valid = await self._fetch(crawl, file, key)
        self._keys[cache_key] = valid, time.monotonic() + (_VALID_SECONDS if valid else _INVALID_SECONDS)
        return valid

    async def _wait_for_host(self, name: str) -> None:
        """Postpone the fleet's requests to the host, and wait until its open requests and its delay have ended."""
        hosts = self._frontier.hosts
        host, now = await hosts.get(name), await store_seconds(self._frontier)
        if host.blocked or host.backoff_until > now:
            raise Refused(429, "The host cannot be requested now; retry later.", 60)
        await hosts.postpone(name, _FREE_SECONDS + 1, reason=_REASON)
        deadline = time.monotonic() + _FREE_SECONDS
        while host.leases or host.gate_at > now:
            if time.monotonic() > deadline:
                raise Refused(429, "The host is busy; retry later.", 30)
            await asyncio.sleep(_POLL_SECONDS)
            host, now = await hosts.get(name), await store_seconds(self._frontier)
        await hosts.postpone(name, _FETCH_SECONDS + 1, reason=_REASON)

    async def _fetch(self, crawl: Crawl, file: Target, key: str) -> bool:
        if self._fetcher is None:
            # Not from the cache for development: a cached response would stay valid.
            self._fetcher = Fetcher(msgspec.structs.replace(self._settings.fetch, cache=""))
        request = Request(
            url=file.url, headers=(("User-Agent", CrawlSpec.of(crawl).user_agent),),
            timeout_seconds=_FETCH_SECONDS, body_bytes=_KEY_FILE_BYTES, cut=True,
        )  # fmt: skip
        try:
            response = await self._fetcher.fetch(request)
        except (FetchError, InvalidInput):
            return False
        return response.status == 200 and response.body.strip(b"\xef\xbb\xbf \t\r\n") == key.encode()


def _targets(urls: Sequence[str], host: str) -> list[Target]:
    """The unique URLs. Raises Refused unless all of them belong to the host."""
    targets: dict[str, Target] = {}
    for url in urls:
        try:
            target = canonical(url)
        except InvalidUrl:
            raise Refused(400, f"{url[:200]!r} is not a URL.") from None
        targets[target.url] = target
    unique = list(targets.values())
    try:
        report_host = canonical(f"http://{host}/").host if host else unique[0].host
    except InvalidUrl:
        raise Refused(400, "The host is not valid.") from None
    if any(
        target.host != report_host or target.scheme not in ("http", "https") or "@" in target.origin
        for target in unique
    ):
        raise Refused(422, "All URLs must belong to the host.")
    return unique


def _key_file(targets: Sequence[Target], key: str, location: str) -> Target:
    """The file that must contain the key. It covers only URLs in its folder or below."""
    origins = {target.origin for target in targets}
    origin = next((origin for origin in origins if origin.startswith("https:")), targets[0].origin)
    try:
        file = canonical(location or f"{origin}/{key}.txt")
    except InvalidUrl:
        raise Refused(400, "keyLocation is not a URL.") from None
    folder = file.path.partition("?")[0].rpartition("/")[0] + "/"
    if file.origin not in origins or any(not target.path.startswith(folder) for target in targets):
        raise Refused(422, "The key file must be on the host, and the URLs in its folder or below.")
    return file


def _covers(crawl: Crawl, targets: Sequence[Target]) -> bool:
    scope = CrawlContext(crawl, {}, {}).scope
    return any(not scope.verdict(target, seed=True) for target in targets[:TOUCHED_AT_ONCE])
