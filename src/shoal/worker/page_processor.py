"""The page processor: turns a response into a record, links and items, or lets the crawl's spider do so.

Owns what is read of a response with status 2xx. `page_record.py` decides what is stored of it, `links.py` how its links
become visits. Everything below the class is pure. The class also writes the page being parsed to the crash marker.
"""

from __future__ import annotations

import contextlib
from functools import partial

import msgspec

from shoal.errors import CrawlEnded, InvalidInput, StoreNotReady
from shoal.fetch.ftp import LISTING
from shoal.leases.held_lease import HeldLease
from shoal.model.record import Item, Record
from shoal.model.response import Response
from shoal.model.visit import Visit
from shoal.parse import ftp_listing, sitemap
from shoal.parse.html import Link, Parsed, looks_like_html, parse
from shoal.parse.robots_meta import Directives, from_headers
from shoal.urls.canonical import Target
from shoal.worker import page_record, sitemaps
from shoal.worker.crash_marker import CrashMarker, MarkedRun
from shoal.worker.crawl_context import CrawlContext, CrawlContexts
from shoal.worker.links import visits_of_follows, visits_of_links, visits_of_urls
from shoal.worker.outcome import PageSignals, VisitResult
from shoal.worker.page_signals import listed_hash, signals_of
from shoal.worker.redirects import follow
from shoal.worker.sitemaps import Sitemaps
from shoal.worker.spider_runner import Run, SpiderFailed, SpiderRunner

_HTML = ("text/html", "application/xhtml+xml")
# A page that redirects its reader after a longer time is stored as a page.
_REFRESH_SECONDS = 10
_NOTHING = Parsed()


class InvalidSitemap(Exception):
    """The response to a request for a sitemap is not one; the message is the reason of the failure."""


class PageProcessor:
    def __init__(self, spiders: SpiderRunner, contexts: CrawlContexts, crash_marker: CrashMarker, worker: str) -> None:
        self._spiders = spiders
        self._contexts = contexts
        self._crash_marker = crash_marker
        self._worker = worker

    async def process(
        self, lease: HeldLease, visit: Visit, target: Target, context: CrawlContext, response: Response
    ) -> VisitResult:
        """Process a response with status 2xx. A page that breaks the parser or the spider fails alone."""
        try:
            # Shoal itself reads sitemaps, also for a crawl with a spider.
            if context.spider and visit.notes.sitemap is None:
                return await self._run_spider(lease, visit, target, context, response)
            self._crash_marker.set(lease.lease.token, visit.number)
            try:
                record, visits, signals = read_page(response, visit, target, context, self._worker)
            finally:
                self._crash_marker.clear()
            return VisitResult(lease, visit, visit.stored(), record, visits, context, signals=signals)
        except StoreNotReady:
            raise
        except InvalidSitemap as error:
            return await self.give_up(lease, visit, context, str(error), response, response.started_at)
        except SpiderFailed as error:
            result = await self.give_up(lease, visit, context, error.reason, response, response.started_at)
            if result.record is not None and error.trace:
                # The reason is counted and therefore short; the record has the traceback for the spider's author.
                record = msgspec.structs.replace(result.record, error=f"{error.reason}\n{error.trace}")
                result = result._replace(record=record)
            return result
        except Exception as error:
            reason = f"reading: {type(error).__name__}"
            return await self.give_up(lease, visit, context, reason, response, response.started_at)

    async def _run_spider(
        self, lease: HeldLease, visit: Visit, target: Target, context: CrawlContext, response: Response
    ) -> VisitResult:
        """Let the crawl's spider choose the items and the pages to follow."""
        parsed, directives = parse_response(response, target, context)
        run = self._marked_run(lease, visit)
        yielded = await self._spiders.read(
            context.spider, context.name, response, parsed or _NOTHING, visit, run, context.policy.arguments
        )
        ignore = directives.nofollow and not context.policy.ignore_robots
        follows = () if ignore else yielded.follows
        visits, for_others = visits_of_follows(follows, visit, target, context, response.started_at)
        record = page_record.record_of(response, visit, context, self._worker, parsed, directives)
        visits += await self._branches(context, for_others)
        items = _with_fields(yielded.items, context)
        return VisitResult(lease, visit, visit.stored(), record, visits, context, items, size=yielded.size)

    async def _branches(self, context: CrawlContext, by_spider: dict[str, list[Visit]]) -> list[Visit]:
        """Visits for other spiders, each assigned to the branch of its spider."""
        visits: list[Visit] = []
        for spider, spider_visits in by_spider.items():
            if context.lane:
                # No other worker serves this crawl.
                self._spiders.check_has(spider)
            try:
                branch = await self._contexts.branch(context, spider)
            except CrawlEnded:
                continue
            except InvalidInput as error:
                raise SpiderFailed("spider: no branch", str(error)) from error
            visits += [msgspec.structs.replace(visit, crawl=branch.crawl.id) for visit in spider_visits]
        return visits

    async def give_up(
        self, lease: HeldLease, visit: Visit, context: CrawlContext, reason: str, response: Response | None, at: float
    ) -> VisitResult:
        """Fail a visit and notify its spider."""
        if visit.notes.guess and visit.history is None:
            # Nothing names this sitemap: its URL was a guess.
            return VisitResult(lease, visit, visit.excluded(sitemaps.NONE))
        result = self.failed(lease, visit, context, reason, response, at)
        if context.spider:
            run = self._marked_run(lease, visit)
            # The URL has failed whatever the spider does.
            with contextlib.suppress(SpiderFailed):
                yielded = await self._spiders.failed(
                    context.spider, context.name, visit, reason, at, run, context.policy.arguments
                )
                result = result._replace(items=_with_fields(yielded.items, context), size=yielded.size)
        return result

    def failed(
        self, lease: HeldLease, visit: Visit, context: CrawlContext, reason: str, response: Response | None, at: float
    ) -> VisitResult:
        record = page_record.failed(visit, context, self._worker, reason, response, at)
        return VisitResult(lease, visit, visit.failed(reason), record, [], context)

    def _marked_run(self, lease: HeldLease, visit: Visit) -> Run:
        return partial(MarkedRun, marker=self._crash_marker, token=lease.lease.token, number=visit.number)


def _with_fields(items: tuple[Item, ...], context: CrawlContext) -> tuple[Item, ...]:
    """The items with the fields that the crawl has chosen. All of them are there, so that all items have one shape."""
    chosen = context.policy.fields
    if not chosen:
        return items
    return tuple(
        msgspec.structs.replace(item, data={name: item.data.get(name) for name in chosen}) for item in items
    )  # fmt: skip


def read_page(
    response: Response, visit: Visit, target: Target, context: CrawlContext, worker: str
) -> tuple[Record, list[Visit], PageSignals | None]:
    """The record of a response with status 2xx, the visits that its links lead to, and signals about other pages."""
    may_be_sitemap = context.sitemaps is not None or (context.policy.follow and visit.found == "seed")
    if visit.notes.sitemap is not None or (
        may_be_sitemap and not _is_html(response) and sitemap.is_sitemap(response.body)
    ):
        return _sitemap(response, visit, target, context, context.sitemap_reader, worker)
    parsed, directives = parse_response(response, target, context)
    visits: list[Visit] = []
    if context.follow and parsed is not None:
        # Like robots.txt, nofollow is a request of the site's owner: --ignore-robots ignores both.
        obey = not context.policy.ignore_robots
        if not (directives.nofollow and obey):
            visits = visits_of_links(parsed, visit, target, context, obey, response.started_at)
        if parsed.refresh and parsed.refresh_seconds <= _REFRESH_SECONDS:
            hop = follow(visit, target, parsed.refresh, 0, context, response.started_at)
            if hop.visit is not None:
                visits.append(hop.visit)
    return page_record.record_of(response, visit, context, worker, parsed, directives), visits, None


def _header_directives(response: Response, context: CrawlContext) -> Directives:
    """The directives in X-Robots-Tag headers."""
    tags = response.all_headers("x-robots-tag")
    return from_headers(tags, context.token) if tags else Directives()


def _is_html(response: Response) -> bool:
    kind = response.header("content-type").partition(";")[0].strip().lower()
    return kind in _HTML or (not kind and looks_like_html(response.body))


def parse_response(response: Response, target: Target, context: CrawlContext) -> tuple[Parsed | None, Directives]:
    """The contents of an HTML page or FTP listing, None for other types; and the robots directives of both sources."""
    directives = _header_directives(response, context)
    content_type = response.header("content-type")
    if content_type == LISTING and target.scheme == "ftp":
        names = ftp_listing.links(response.body, url=target.url) if "a" in context.follow else ()
        return Parsed(links=tuple(Link(url, "a") for url in names)), directives
    if not response.body or not _is_html(response):
        return None, directives
    parsed = parse(response.body, url=target.url, content_type=content_type, follow=context.follow, token=context.token)
    return parsed, directives | parsed.robots


def _sitemap(
    response: Response, visit: Visit, target: Target, context: CrawlContext, sitemaps: Sitemaps, worker: str
) -> tuple[Record, list[Visit], PageSignals | None]:
    """The record of a sitemap, and visits of the pages and sitemaps that it lists."""
    directives = _header_directives(response, context)
    listed = sitemap.read(
        response.body, url=target.url, content_type=response.header("content-type"), dates=context.dated
    )
    visits: list[Visit] = []
    if not directives.nofollow or context.policy.ignore_robots:
        visits = visits_of_urls(listed.urls, visit, target, context, response.started_at, found="sitemap")
        visits += sitemaps.nested(listed, visit, target)
    count = len(listed.urls) + len(listed.sitemaps)
    if listed.trouble and not count:
        raise InvalidSitemap(f"sitemap: {listed.trouble}")
    record = msgspec.structs.replace(
        page_record.record_of(response, visit, context, worker, None, directives), links=count
    )
    if not context.dated:
        return record, visits, None
    # A feed that only has another build date has not changed.
    record = msgspec.structs.replace(record, text_hash=listed_hash(listed))
    return record, visits, signals_of(listed, visit, target, response.started_at)
