"""robots.txt for the fleet: fetched once by whoever holds the host, through Scrapy's downloader, and kept in the store.

Takes the place of the parser in Scrapy's RobotsTxtMiddleware, which goes on to refuse what is forbidden. The copies are
those of Shoal's own workers. A robots.txt that cannot be reached means "not now", never "allowed".
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections import OrderedDict
from typing import Any

import ada_url
import msgspec
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.http import Response
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future

from shoal.errors import InvalidUrl, SettingsError, StoreCorrupt
from shoal.frontier import Frontier, mono
from shoal.politeness.backoff import Failure, Fault, failure_of, pause_seconds
from shoal.politeness.robots_parser import DISALLOW_ALL, MAX_BYTES, Rules, check_token
from shoal.politeness.robots_policy import MAX_HOPS, Meaning, RobotsCopy, settle, standing, verdict
from shoal.scrapy.downloads import DownloadAborted
from shoal.scrapy.leased_slot import SLOT, LeasedSlot
from shoal.urls.canonical import Target, canonical

log = logging.getLogger("shoal.scrapy")
_REMEMBERED = 20_000
_VERSION = 1


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """As shoal.worker.robots_gate keeps it."""

    version: int = _VERSION
    copy: bytes = b""
    unreachable_at: float = 0.0
    pending_until: float = 0.0


class ScrapyRobots:
    def __init__(self, frontier: Frontier, crawler: Crawler) -> None:
        self._frontier = frontier
        self._crawler = crawler
        agent = crawler.settings.get("ROBOTSTXT_USER_AGENT") or crawler.settings.get("USER_AGENT") or ""
        try:
            self._token = check_token(str(agent).partition("/")[0].partition(" ")[0]).lower()
        except SettingsError:
            # No robots.txt can name such an agent: the rules for all robots place.
            self._token = "scrapy"  # noqa: S105 - a product token
        self._rules: OrderedDict[str, tuple[int, Rules]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[Any]] = {}

    @classmethod
    def take_over(cls, frontier: Frontier, crawler: Crawler) -> ScrapyRobots | None:
        """Put the fleet's rules into Scrapy's middleware; None where robots.txt is not obeyed."""
        middleware: Any = crawler.get_downloader_middleware(RobotsTxtMiddleware)
        if middleware is None:
            return None
        robots = cls(frontier, crawler)

        if inspect.iscoroutinefunction(RobotsTxtMiddleware.robot_parser):
            middleware.robot_parser = robots._parser
        else:
            middleware.robot_parser = lambda request, spider: deferred_from_coro(robots._parser(request))
        return robots

    def knows(self, place: LeasedSlot, url: str) -> bool:
        known = self._rules.get(origin(canonical(url)))
        return known is not None and known[0] == place.lease.robots_version

    async def learn(self, place: LeasedSlot, url: str) -> bool:
        """Know the rules for this URL's site. False when they cannot be had now; then its host is left alone."""
        target = canonical(url)
        answer = await self._find(target, place)
        if answer is None:
            return True
        if answer is Fault.ABORTED:
            # The lease is over, which says nothing of the host.
            return False
        failure = failure_of(answer) or Failure.BROKEN
        failures = (await self._frontier.hosts.get(target.host)).failures + 1
        pause = pause_seconds(failure, failures, jitter=random.random())
        what = f"status {answer}" if isinstance(answer, int) else answer.value
        await self._frontier.hosts.postpone(target.host, pause, failed=True, reason=f"robots.txt: {what}")
        log.warning("robots.txt of %s cannot be had (%s): nothing is asked there for %.0f s.", target.host, what, pause)
        return False

    async def _parser(self, request: Request, spider: Any = None) -> Any:
        """For Scrapy's middleware: what it asks `allowed`. A leased request's rules are known by now."""
        try:
            target = canonical(request.url)
        except InvalidUrl:
            return None
        site = origin(target)
        if site not in self._rules:
            # One that did not come from the frontier, such as a media pipeline's; many of them ask once.
            asking = self._asking.get(site)
            if asking is None:
                asking = self._asking[site] = asyncio.ensure_future(self._find(target, None))
                asking.add_done_callback(lambda _: self._asking.pop(site, None))
            await asyncio.shield(asking)
        known = self._rules.get(site)
        return _Parser(known[1] if known else DISALLOW_ALL)

    async def _find(self, target: Target, place: LeasedSlot | None) -> int | Fault | None:
        """Read the fleet's copy, or fetch it. None when the rules are known now, else what went wrong."""
        site = origin(target)
        name = f"{site} {self._token}"
        called = mono()
        kept, store_seconds = await self._frontier.robots.read(target.host, name)
        found, copy = _unpacked(kept)
        version = place.lease.robots_version if place else 0
        holds = standing(copy, token=self._token, now=store_seconds, unreachable=found.unreachable_at > 0)
        if holds.rules is not None and not holds.fetch:
            self._remember(site, version, holds.rules)
            return None
        answer, body = await self._fetch(target, place)
        if answer is Fault.ABORTED:
            return answer
        meaning = verdict(answer if isinstance(answer, int) else None, hops=MAX_HOPS)
        now = store_seconds + mono() - called
        if meaning is Meaning.UNREACHABLE:
            found = msgspec.structs.replace(found, unreachable_at=now, pending_until=0.0)
            await self._frontier.robots.write(
                target.host, name, msgspec.msgpack.encode(found), known=copy is not None,
                crawl_delay_seconds=copy.rules.crawl_delay_seconds if copy else 0.0,
            )  # fmt: skip
            older = standing(copy, token=self._token, now=now, unreachable=True)
            if copy is not None and older.rules is not None and older.rules is not DISALLOW_ALL:
                self._remember(site, version, older.rules)
                return None
            return answer
        fresh = settle(meaning, now=now, copy=copy, body=body, token=self._token)
        assert fresh is not None  # noqa: S101 - every other meaning gives one
        delay = fresh.rules.crawl_delay_seconds
        packed = msgspec.msgpack.encode(_Kept(copy=fresh.pack()))
        await self._frontier.robots.write(target.host, name, packed, known=True, crawl_delay_seconds=delay)
        if place is not None:
            place.wants(delay)
        self._remember(site, version, fresh.rules)
        return None

    async def _fetch(self, target: Target, place: LeasedSlot | None) -> tuple[int | Fault, bytes]:
        """Ask for it, redirects included, keeping the host's gap; a redirect to another host is followed without."""
        url = f"{origin(target)}/robots.txt"
        for _ in range(MAX_HOPS + 1):
            here = canonical(url).host == target.host
            if here and place is not None and not await place.keep_gap():
                return Fault.ABORTED, b""
            request = Request(
                url, priority=RobotsTxtMiddleware.DOWNLOAD_PRIORITY, callback=NO_CALLBACK,
                meta={
                    "dont_obey_robotstxt": True, "dont_redirect": True, "dont_retry": True, "download_slot": SLOT,
                    "handle_httpstatus_all": True, "autothrottle_dont_adjust_delay": True, "allow_offsite": True,
                },
            )  # fmt: skip
            stats = self._crawler.stats
            stats.inc_value("robotstxt/request_count")
            if place is not None:
                place.start(request)
            try:
                response = await self._download(request)
            except DownloadAborted:
                return Fault.ABORTED, b""
            except Exception as error:
                log.debug("robots.txt of %s: %s", target.host, error)
                stats.inc_value(f"robotstxt/exception_count/{type(error)}")
                if place is not None:
                    place.finish(success=False, response_seconds=None)
                return Fault.TIMED_OUT, b""
            finally:
                if place is not None:
                    place.request = None
            if place is not None:
                place.finish(success=None, response_seconds=request.meta.get("download_latency"))
            stats.inc_value("robotstxt/response_count")
            stats.inc_value(f"robotstxt/response_status_count/{response.status}")
            location = response.headers.get("Location")
            if not 300 <= response.status < 400 or not location:
                return response.status, response.body[: MAX_BYTES + 1]
            try:
                url = canonical(ada_url.join_url(url, location.decode("latin-1").strip())).url
            except (InvalidUrl, ValueError, UnicodeError):
                return 404, b""
        return 404, b""

    async def _download(self, request: Request) -> Response:
        engine: Any = self._crawler.engine
        if hasattr(engine, "download_async"):
            response: Response = await engine.download_async(request)
        else:
            response = await maybe_deferred_to_future(engine.download(request))
        return response

    def _remember(self, site: str, version: int, rules: Rules) -> None:
        self._rules[site] = (version, rules)
        if len(self._rules) > _REMEMBERED:
            self._rules.popitem(last=False)


def origin(target: Target) -> str:
    """Scheme, host and port, in the URL's own spelling."""
    return target.url[: target.url.find("/", len(target.scheme) + 3)]


class _Parser:
    """What Scrapy's middleware asks."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def allowed(self, url: str | bytes, user_agent: str | bytes) -> bool:
        try:
            target = canonical(url.decode("latin-1") if isinstance(url, bytes) else url)
        except InvalidUrl:
            return False
        path = target.url[target.url.find("/", len(target.scheme) + 3) :]
        return self._rules.allows(path)


def _unpacked(kept: bytes | None) -> tuple[_Kept, RobotsCopy | None]:
    if kept:
        try:
            found = msgspec.msgpack.decode(kept, type=_Kept)
            if found.version == _VERSION:
                return found, RobotsCopy.unpack(found.copy) if found.copy else None
        except (msgspec.MsgspecError, StoreCorrupt):
            pass  # Not ours: robots.txt is asked for again.
    return _Kept(), None
