"""Fetch and inspect one page, without a crawl and without a store: `shoal fetch`, `shoal shell`, `shoal.testing`.

The request, the record and the call of a spider are those of a worker. robots.txt is obeyed, and requests to one host
keep the crawl's delay. Nothing is shared with a fleet: other workers may request the same host at the same time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from shoal.errors import FetchError, InvalidInput
from shoal.fetch import Fetcher, Request
from shoal.model.crawl import Crawl, State
from shoal.model.crawl_spec import CrawlSpec
from shoal.model.record import Record
from shoal.model.response import Response
from shoal.model.visit import Visit, VisitMeta
from shoal.parse.html import Parsed, markup_of, tree_of
from shoal.politeness.backoff import Fault
from shoal.politeness.robots_policy import REDIRECTS, Meaning, settle, verdict
from shoal.politeness.robots_rules import MAX_BYTES, Rules
from shoal.spider import Follow, Page, Spider, name_of
from shoal.urls.canonical import Target, canonical, resolve_header
from shoal.worker.crawl_context import CrawlContext
from shoal.worker.outcome import MAX_HOPS
from shoal.worker.page_processor import parse_response, read_page
from shoal.worker.spider_runner import SpiderRunner, Yielded

_CRAWL = "fetch"


class RobotsForbids(InvalidInput):
    """robots.txt does not allow the request."""


@dataclass(frozen=True)
class RobotsFinding:
    """What robots.txt says about a URL.

    allowed              whether the URL may be requested
    file                 the URL of robots.txt
    text                 the finding as one sentence
    crawl_delay_seconds  its Crawl-delay, 0 if it names none
    """

    allowed: bool
    file: str
    text: str
    crawl_delay_seconds: float = 0.0


@dataclass(frozen=True)
class FetchedPage:
    """A page as a worker would see it.

    url        the URL that was requested first
    chain      URL and status of each redirect
    response   the last response
    robots     what robots.txt says about the last URL
    page       the page as a spider receives it
    record     the record that a crawl would store
    links      URLs that a crawl would follow from this page
    """

    url: str
    chain: tuple[tuple[str, int], ...]
    response: Response
    robots: RobotsFinding
    page: Page
    record: Record
    links: tuple[str, ...]


@dataclass(frozen=True)
class SpiderResult:
    """What a spider yielded for one page: items as dicts, and pages to follow with absolute or relative URLs."""

    items: tuple[dict[str, Any], ...]
    follows: tuple[Follow, ...]


class PageFetcher:
    """Fetches single pages under the options of a crawl. Belongs to one event loop."""

    def __init__(self, fetcher: Fetcher, spec: CrawlSpec) -> None:
        self._fetcher = fetcher
        self._spec = spec
        self._rules: dict[str, tuple[Rules, str]] = {}
        self._finished_mono: dict[str, float] = {}

    async def fetch(self, url: str) -> FetchedPage:
        """Fetch a page and follow its redirects. Raises FetchError without a response, or RobotsForbids."""
        target = canonical(url)
        context = context_of(self._spec, target)
        chain: list[tuple[str, int]] = []
        while True:
            robots = await self.robots(target, context)
            if not robots.allowed:
                raise RobotsForbids(f"{robots.text} For your own site, pass --ignore-robots.")
            response = await self._request(target, context, robots.crawl_delay_seconds)
            location = response.header("location")
            there = resolve_header(target.url, location) if response.status in REDIRECTS and location else None
            if there is None or len(chain) >= MAX_HOPS or there.url in {target.url, *(hop for hop, _ in chain)}:
                return fetched_page(response, context, chain=tuple(chain), robots=robots, url=url)
            chain.append((target.url, response.status))
            target = there

    async def robots(self, target: Target, context: CrawlContext) -> RobotsFinding:
        """What robots.txt says about a URL. The file is fetched once for each origin."""
        file = f"{target.origin}/robots.txt"
        if self._spec.ignore_robots:
            return RobotsFinding(True, file, "robots.txt is ignored.")
        if target.origin not in self._rules:
            self._rules[target.origin] = await self._read_robots(file, context)
        rules, problem = self._rules[target.origin]
        if problem:
            return RobotsFinding(False, file, problem)
        rule = rules.deciding_rule(target.path)
        if rule is None:
            text = f"No rule for {context.token} in {file} matches."
        else:
            group = f" of group `User-agent: {rule.group}`" if rule.group else ""
            verb = "allows" if rule.allow else "forbids"
            text = f"Rule `{rule}`{group} in line {rule.line} of {file} {verb} {target.url}."
        return RobotsFinding(rules.allows(target.path), file, text, rules.crawl_delay_seconds)

    async def _read_robots(self, file: str, context: CrawlContext) -> tuple[Rules, str]:
        """The rules, and the reason why no page may be requested; '' if the rules decide."""
        target, hops = canonical(file), 0
        while True:
            try:
                response = await self._request(target, context, 0.0, body_bytes=MAX_BYTES + 1, cut=True)
            except FetchError as error:
                if not hops and error.fault in (Fault.FORBIDDEN_ADDRESS, Fault.UNKNOWN_HOST):
                    # No page of this origin can be requested, whatever robots.txt would say.
                    raise
                copy = settle(Meaning.UNAVAILABLE, now=0.0)
                assert copy is not None  # noqa: S101 - there always is one for this meaning
                return copy.rules, f"{file} is unreachable ({error.reason}): no page may be requested."
            meaning = verdict(response.status, hops=hops)
            there = resolve_header(target.url, response.header("location")) if meaning is Meaning.REDIRECT else None
            if there is not None:
                target, hops = there, hops + 1
                continue
            if meaning is Meaning.REDIRECT:
                meaning = Meaning.UNAVAILABLE
            copy = settle(meaning, now=0.0, body=response.body, token=context.token)
            if copy is not None:
                return copy.rules, ""
            text = f"{file} responds with status {response.status}: no page may be requested."
            return settle(Meaning.UNAVAILABLE, now=0.0).rules, text  # type: ignore[union-attr]

    async def _request(
        self, target: Target, context: CrawlContext, crawl_delay_seconds: float, *, body_bytes: int = 0,
        cut: bool = False,
    ) -> Response:  # fmt: skip
        if (cached := self._fetcher.cached(target.url)) is not None:
            return cached
        delay_seconds = max(self._spec.delay_seconds or 0.0, crawl_delay_seconds)
        finished = self._finished_mono.get(target.host)
        if finished is not None and (left := finished + delay_seconds - time.monotonic()) > 0:
            await asyncio.sleep(left)
        request = Request(
            url=context.address(target.url, target), headers=context.headers(target),
            timeout_seconds=self._spec.timeout_seconds, body_bytes=body_bytes or self._spec.body_bytes, cut=cut,
            ftp=context.ftp,
        )  # fmt: skip
        try:
            response = await self._fetcher.fetch(request)
        finally:
            self._finished_mono[target.host] = time.monotonic()
        return response if request.url == target.url else msgspec.structs.replace(response, url=target.url)


def context_of(spec: CrawlSpec, target: Target) -> CrawlContext:
    """The context of a crawl that is in no store. The crawl starts at the spec's seeds, or else at this URL."""
    spec = msgspec.structs.replace(spec, seeds=spec.seeds or (target.url,))
    crawl = Crawl(
        id=_CRAWL, key="", state=State.RUNNING, version=0, limits=spec.limits(), created_at=0.0, spec=spec.stored()
    )
    return CrawlContext(crawl, {}, {})


def fetched_page(
    response: Response, context: CrawlContext, *, chain: tuple[tuple[str, int], ...] = (),
    robots: RobotsFinding | None = None, url: str = "", depth: int = 0, data: dict[str, Any] | None = None,
    spider: str = "",
) -> FetchedPage:  # fmt: skip
    """A response as a worker would process it."""
    target = canonical(response.url)
    visit = Visit(url=target.url, depth=depth, found="seed", meta=VisitMeta(seed=True, chain=chain).pack())
    record, visits, _ = read_page(response, visit, target, context, "")
    parsed = parse_response(response, target, context)[0] or Parsed()
    page = Page(
        response, parsed=parsed, markup=lambda: markup_of(response.body, response.header("content-type")),
        tree=tree_of, depth=depth, priority=0, data=data or {}, spider=spider,
    )  # fmt: skip
    finding = robots or RobotsFinding(True, "", "robots.txt was not read.")
    links = tuple(visit.url for visit in visits)
    return FetchedPage(url or response.url, chain, response, finding, page, record, links)


async def run_spider(
    spider: type[Spider] | Spider, response: Response, *, callback: str = "parse", data: dict[str, Any] | None = None,
    depth: int = 0, arguments: Mapping[str, str] | None = None,
) -> SpiderResult:  # fmt: skip
    """Call a method of a spider with a page, as a worker does. Raises SpiderFailed if the spider fails.

    `arguments` are those of a crawl (`-a`); an object of a spider has its own.
    """
    name = name_of(spider if isinstance(spider, type) else type(spider))
    make: Any = spider if isinstance(spider, type) else lambda: spider
    context = context_of(CrawlSpec(spider=name), canonical(response.url))
    meta = VisitMeta(callback="" if callback == "parse" else callback, data=data or {}).pack()
    visit = Visit(url=response.url, depth=depth, found="seed", meta=meta)
    parsed = parse_response(response, canonical(response.url), context)[0] or Parsed()
    runner = SpiderRunner({name: make})
    yielded = await runner.read(name, _CRAWL, response, parsed, visit, _run, arguments or {})
    return SpiderResult(tuple(item.data for item in yielded.items), yielded.follows)


async def _run(work: Awaitable[Yielded]) -> Yielded:
    return await work
