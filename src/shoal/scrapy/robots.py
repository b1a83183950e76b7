"""robots.txt for Scrapy: the fleet's `RobotsGate` in place of the parser in Scrapy's RobotsTxtMiddleware.

Scrapy's downloader sends the requests. Its middleware still drops the requests that the rules forbid.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import Any

import msgspec
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future

from shoal.errors import InvalidUrl, SettingsError
from shoal.frontier import Frontier
from shoal.leases.host_pause import pause_host
from shoal.leases.robots_gate import RobotsGate, RobotsRequest, Wait
from shoal.model.response import Response, Timings
from shoal.model.visit import Visit
from shoal.politeness.backoff import Fault, failure_of
from shoal.politeness.robots_parser import DISALLOW_ALL, MAX_BYTES, Rules, check_token
from shoal.scrapy.downloads import DownloadAborted
from shoal.scrapy.leased_slot import SLOT, LeasedSlot
from shoal.urls.canonical import Target, canonical

log = logging.getLogger("shoal.scrapy")
_META = {
    "dont_obey_robotstxt": True, "dont_redirect": True, "dont_retry": True, "download_slot": SLOT,
    "handle_httpstatus_all": True, "autothrottle_dont_adjust_delay": True, "allow_offsite": True,
}  # fmt: skip


class ScrapyRobots:
    def __init__(self, frontier: Frontier, crawler: Crawler, crawl_id: str) -> None:
        self._frontier = frontier
        self._crawler = crawler
        self._crawl_id = crawl_id
        agent = crawler.settings.get("ROBOTSTXT_USER_AGENT") or crawler.settings.get("USER_AGENT") or ""
        try:
            self._token = check_token(str(agent).partition("/")[0].partition(" ")[0]).lower()
        except SettingsError:
            # No robots.txt can name such a user agent: the rules for all robots apply.
            self._token = "scrapy"  # noqa: S105 - a product token
        self._gate = RobotsGate(frontier, self._fetch)
        # Fetches outside of a lease, by origin.
        self._fetching: dict[str, asyncio.Task[Rules]] = {}

    @classmethod
    def take_over(cls, frontier: Frontier, crawler: Crawler, crawl_id: str) -> ScrapyRobots | None:
        """Replace the parser of Scrapy's middleware; None if the project does not obey robots.txt."""
        middleware: Any = crawler.get_downloader_middleware(RobotsTxtMiddleware)
        if middleware is None:
            return None
        robots = cls(frontier, crawler, crawl_id)
        if inspect.iscoroutinefunction(RobotsTxtMiddleware.robot_parser):
            middleware.robot_parser = robots._parser
        else:
            middleware.robot_parser = lambda request, spider: deferred_from_coro(robots._parser(request))
        return robots

    def knows(self, slot: LeasedSlot, url: str) -> bool:
        return self._gate.cached(slot, canonical(url), self._token) is not None

    async def learn(self, slot: LeasedSlot, url: str) -> bool:
        """Fetch the rules for a URL if necessary. False if they are unavailable; the host is then paused."""
        rules = await self._gate.rules(slot, canonical(url), self._token, self._crawl_id)
        if isinstance(rules, Wait):
            await self._pause(slot.lease.host, rules)
            return False
        return True

    async def fetch_redirected(self, slot: LeasedSlot, visit: Visit) -> Wait | None:
        """Fetch another host's robots.txt from this host. None if the slot may make further visits."""
        try:
            host, rules = await self._gate.fetch_redirected(slot, visit, self._token)
        except msgspec.ValidationError as error:
            log.error("Invalid visit in the store: %s", error)
            return None
        if not isinstance(rules, Wait):
            return None
        if not rules.lease_ended:
            await self._pause(host, rules)
            if rules.cause is None or failure_of(rules.cause) is None:
                return None
            await self._pause(slot.lease.host, rules)
        return rules

    async def _pause(self, host: str, wait: Wait) -> None:
        if wait.cause is not None:
            pause = await pause_host(self._frontier, host, wait.cause, wait.response, wait.reason)
            log.warning("%s is paused for %.0f s (%s)", host, pause.seconds, wait.reason)
        elif not wait.lease_ended:
            await self._frontier.hosts.postpone(host, wait.seconds)

    async def _parser(self, request: Request, spider: Any = None) -> Any:
        """The parser for Scrapy's middleware. The rules of a leased request are known by now."""
        try:
            target = canonical(request.url)
        except InvalidUrl:
            return None
        rules = self._gate.remembered(target, self._token)
        if rules is None:
            # A request that did not come from the scheduler, e.g. of a media pipeline. Many wait for one fetch.
            fetching = self._fetching.get(target.origin)
            if fetching is None:
                fetching = asyncio.ensure_future(self._rules_outside_lease(target))
                self._fetching[target.origin] = fetching
                fetching.add_done_callback(lambda _: self._fetching.pop(target.origin, None))
            rules = await asyncio.shield(fetching)
        return _Parser(rules)

    async def _rules_outside_lease(self, target: Target) -> Rules:
        while isinstance(rules := await self._gate.rules(None, target, self._token, self._crawl_id), Wait):
            if not rules.seconds:
                return DISALLOW_ALL
            await asyncio.sleep(rules.seconds)
        return rules

    async def _fetch(self, robots: RobotsRequest) -> Response | Fault | None:
        """Send a request through Scrapy's downloader. One outside of a lease waits there for its host's turn."""
        slot, stats, engine = robots.lease, self._crawler.stats, self._crawler.engine
        request = Request(
            robots.url, headers=dict(robots.headers), priority=RobotsTxtMiddleware.DOWNLOAD_PRIORITY,
            callback=NO_CALLBACK, meta=dict(_META),
        )  # fmt: skip
        stats.inc_value("robotstxt/request_count")
        if isinstance(slot, LeasedSlot):
            slot.start(request)
        try:
            if hasattr(engine, "download_async"):
                response = await engine.download_async(request)
            else:
                response = await maybe_deferred_to_future(engine.download(request))
        except DownloadAborted:
            return None
        except Exception as error:
            log.debug("%s: %s", robots.url, error)
            stats.inc_value(f"robotstxt/exception_count/{type(error)}")
            return Fault.TIMED_OUT
        finally:
            if isinstance(slot, LeasedSlot):
                slot.request = None
        stats.inc_value("robotstxt/response_count")
        stats.inc_value(f"robotstxt/response_status_count/{response.status}")
        headers = [(name.decode("latin-1").lower(), value.decode("latin-1"))
                   for name, values in response.headers.items() for value in values]  # fmt: skip
        return Response(
            url=robots.url, status=response.status, headers=tuple(headers), body=response.body[: MAX_BYTES + 1],
            timings=Timings(total=request.meta.get("download_latency") or 0.0),
        )  # fmt: skip


class _Parser:
    """The interface that Scrapy's middleware uses."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def allowed(self, url: str | bytes, user_agent: str | bytes) -> bool:
        try:
            return self._rules.allows(canonical(url.decode("latin-1") if isinstance(url, bytes) else url).path)
        except InvalidUrl:
            return False
