"""robots.txt for Scrapy: the fleet's `RobotsGate` in place of the parser in Scrapy's RobotsTxtMiddleware.

Scrapy's downloader sends the requests. Its middleware still drops the requests that the rules forbid. While robots.txt
cannot be fetched, no page of the host is requested. After several failures the host is given up for a while: its
requests then fail in the middleware with the cause, so that Scrapy retries them or calls their errbacks.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from typing import Any

import msgspec
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future

from shoal.errors import InvalidUrl
from shoal.frontier import Frontier, mono
from shoal.leases.host_pause import pause_host
from shoal.leases.robots_gate import RobotsGate, RobotsRequest, Wait
from shoal.model.response import Response, Timings
from shoal.model.visit import Visit
from shoal.politeness.backoff import Fault, failure_of
from shoal.politeness.robots_rules import MAX_BYTES, Rules
from shoal.politeness.user_agent import whole_agent
from shoal.scrapy.downloads import DownloadAborted
from shoal.scrapy.leased_slot import SLOT, LeasedSlot
from shoal.scrapy.request_target import path_of, target_of
from shoal.urls.canonical import Target, canonical
from shoal.worker.outcome import host_failures_without_robots

log = logging.getLogger("shoal.scrapy")
_META = {
    "dont_obey_robotstxt": True, "dont_redirect": True, "dont_retry": True, "download_slot": SLOT,
    "handle_httpstatus_all": True, "autothrottle_dont_adjust_delay": True, "allow_offsite": True,
}  # fmt: skip
# Exceptions of Scrapy and Twisted, by the name of a class, because releases of Scrapy raise different ones.
_FAULTS = {
    "CannotResolveHostError": Fault.UNRESOLVED, "DNSLookupError": Fault.UNRESOLVED,
    "DownloadConnectionRefusedError": Fault.REFUSED, "ConnectionRefusedError": Fault.REFUSED,
    "DownloadTimeoutError": Fault.TIMED_OUT, "TimeoutError": Fault.TIMED_OUT,
    "ResponseDataLossError": Fault.TRUNCATED,
}  # fmt: skip
# How often a process requests a robots.txt that redirects to another host which never reports back.
_MAX_REDIRECTED = 3


class HostUnavailable(Exception):
    """robots.txt of a host cannot be fetched, so its pages are not requested."""


class ScrapyRobots:
    def __init__(self, frontier: Frontier, crawler: Crawler, crawl_id: str) -> None:
        self._frontier = frontier
        self._crawler = crawler
        self._crawl_id = crawl_id
        self._agent = str(crawler.settings.get("ROBOTSTXT_USER_AGENT") or "")
        self._token = whole_agent(self._agent or str(crawler.settings.get("USER_AGENT") or ""))
        self._gate = RobotsGate(frontier, self._fetch)
        # Fetches outside of a lease, by origin and token.
        self._fetching: dict[tuple[str, str], asyncio.Task[Rules]] = {}
        # Hosts that were given up: until when, the exception, and the reason in one phrase.
        self._given_up: dict[str, tuple[float, Exception, str]] = {}
        # The last error and the number of requests for a host's robots.txt, until one succeeds.
        self._errors: dict[str, Exception] = {}
        self._requested: Counter[str] = Counter()

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

    def is_ready(self, slot: LeasedSlot, request: Request) -> bool:
        """Whether the middleware can decide about a request without a request for robots.txt."""
        if request.meta.get("dont_obey_robotstxt") or self.unavailable(slot.lease.host):
            return True
        return self._gate.cached(slot, target_of(request.url), self._token_of(request)) is not None

    def unavailable(self, host: str) -> str:
        """Why a host was given up, in one phrase; '' if it was not."""
        until, _, reason = self._given_up.get(host, (0.0, None, ""))
        if reason and until < mono():
            del self._given_up[host]
            return ""
        return reason

    async def learn(self, slot: LeasedSlot, request: Request) -> bool:
        """Fetch the rules for a request if necessary. False if the host is paused until they are available."""
        host = slot.lease.host
        rules = await self._gate.rules(slot, target_of(request.url), self._token_of(request), self._crawl_id)
        if not isinstance(rules, Wait):
            self._forget(host)
            return True
        await self._pause(host, rules)
        return bool(self.unavailable(host))

    async def fetch_redirected(self, slot: LeasedSlot, visit: Visit) -> Wait | None:
        """Fetch another host's robots.txt from this host. None if the slot may make further visits."""
        try:
            host, rules = await self._gate.fetch_redirected(slot, visit)
        except msgspec.ValidationError as error:
            log.error("Invalid visit in the store: %s", error)
            return None
        if not isinstance(rules, Wait):
            return None
        if not rules.lease_ended:
            if slot.lease.host in self._errors:
                self._errors[host] = self._errors[slot.lease.host]
            await self._pause(host, rules)
            if rules.cause is None or failure_of(rules.cause) is None:
                return None
            await self._pause(slot.lease.host, rules)
        return rules

    async def _pause(self, host: str, wait: Wait) -> float:
        """Pause a host whose rules are unavailable, or give it up. Returns the seconds until the next try."""
        if wait.lease_ended:
            return 0.0
        if wait.cause is None:
            if self._requested[host] > _MAX_REDIRECTED:
                self._give_up(host, wait._replace(reason="robots.txt on another host: no response"), 60.0)
            else:
                await self._frontier.hosts.postpone(host, wait.seconds)
            return wait.seconds
        pause = await pause_host(
            self._frontier, host, wait.cause, wait.response, wait.reason, drains=True,
            host_failures=host_failures_without_robots(wait.cause),
        )  # fmt: skip
        if pause.given_up:
            self._give_up(host, wait, max(pause.seconds, 1.0))
        else:
            log.warning("%s is paused for %.0f s (%s)", host, pause.seconds, wait.reason)
        return pause.seconds

    def _give_up(self, host: str, wait: Wait, seconds: float) -> None:
        log.warning("%s is given up for %.0f s (%s): its requests fail.", host, seconds, wait.reason)
        error = self._errors.get(host) if isinstance(wait.cause, Fault) else None
        error = error or HostUnavailable(f"{host} is unavailable ({wait.reason}).")
        self._given_up[host] = (mono() + seconds, error, wait.reason)

    def _forget(self, host: str) -> None:
        self._errors.pop(host, None)
        self._requested.pop(host, None)

    def _token_of(self, request: Request) -> str:
        """As Scrapy's middleware chooses the user agent: a request can have its own."""
        own = None if self._agent else request.headers.get(b"User-Agent")
        return self._token if own is None else whole_agent(own.decode("latin-1"))

    async def _parser(self, request: Request, spider: Any = None) -> Any:
        """The parser for Scrapy's middleware. The rules of a leased request are known by now.

        Raises the cause if the host was given up.
        """
        try:
            target = target_of(request.url)
        except InvalidUrl:
            return None
        self._raise_if_given_up(target.host)
        token = self._token_of(request)
        rules = self._gate.remembered(target, token)
        if rules is None:
            # A request that did not come from the scheduler, e.g. of a media pipeline. Many wait for one fetch.
            key = (target.origin, token)
            fetching = self._fetching.get(key)
            if fetching is None:
                fetching = asyncio.ensure_future(self._rules_outside_lease(target, token))
                self._fetching[key] = fetching
                fetching.add_done_callback(lambda _: self._fetching.pop(key, None))
            rules = await asyncio.shield(fetching)
        return _Parser(rules)

    async def _rules_outside_lease(self, target: Target, token: str) -> Rules:
        while isinstance(rules := await self._gate.rules(None, target, token, self._crawl_id), Wait):
            seconds = await self._pause(target.host, rules)
            self._raise_if_given_up(target.host)
            await asyncio.sleep(seconds)
        self._forget(target.host)
        return rules

    def _raise_if_given_up(self, host: str) -> None:
        if self.unavailable(host):
            raise self._given_up[host][1].with_traceback(None)

    async def _fetch(self, robots: RobotsRequest) -> Response | Fault | None:
        """Send a request through Scrapy's downloader. One outside of a lease waits there for its host's turn."""
        slot, stats, engine = robots.lease, self._crawler.stats, self._crawler.engine
        request = Request(
            robots.url, headers=dict(robots.headers), priority=RobotsTxtMiddleware.DOWNLOAD_PRIORITY,
            callback=NO_CALLBACK, meta=dict(_META),
        )  # fmt: skip
        stats.inc_value("robotstxt/request_count")
        host = canonical(robots.url).host
        self._requested[host] += 1
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
            self._errors[host] = error
            return _fault(error)
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


def _fault(error: Exception) -> Fault:
    names = [kind.__name__ for kind in type(error).__mro__]
    return next((_FAULTS[name] for name in names if name in _FAULTS), Fault.RESET)


class _Parser:
    """The interface that Scrapy's middleware uses."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def allowed(self, url: str | bytes, user_agent: str | bytes) -> bool:
        try:
            return self._rules.allows(path_of(url.decode("latin-1") if isinstance(url, bytes) else url))
        except InvalidUrl:
            return False
