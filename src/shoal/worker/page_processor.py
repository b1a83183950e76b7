"""The page processor: turns a response into a record, links and items, or lets the crawl's spider do so.

Owns what is stored of a response with status 2xx, and how redirects and links become visits. Everything below the class
is pure. The class also notes in the crash marker which page is being parsed.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import msgspec

from shoal.errors import CrawlEnded, InvalidInput, InvalidUrl, StoreHeld, StoreUnavailable
from shoal.fetch.ftp import LISTING
from shoal.frontier.visit_codec import MAX_EXTENSION_BYTES
from shoal.leases.held_lease import HeldLease
from shoal.leases.recent_urls import RecentUrls
from shoal.model.record import Item, Record, record_url
from shoal.model.response import Response
from shoal.model.visit import Visit, VisitMeta, pass_variant
from shoal.parse import ftp_listing, sitemap
from shoal.parse.html import Link, Parsed, looks_like_html, parse, text_hash
from shoal.parse.robots_meta import Directives, from_headers
from shoal.spider import Follow
from shoal.urls.canonical import Target, canonical, parts_of, resolve, resolve_header
from shoal.worker import sitemaps
from shoal.worker.crash_marker import CrashMarker, MarkedRun
from shoal.worker.crawl_context import CrawlContext, CrawlContexts
from shoal.worker.outcome import MAX_HOPS, PageSignals, VisitResult
from shoal.worker.page_signals import listed_hash, signals_of
from shoal.worker.sitemaps import Sitemaps
from shoal.worker.spider_runner import Run, SpiderFailed, SpiderRunner, visit_of

_HTML = ("text/html", "application/xhtml+xml")
# A page that redirects its reader later than this is a page of its own.
_REFRESH_SECONDS = 10
# Headers that describe a body.
_OF_A_BODY = frozenset({"content-encoding", "content-language", "content-type"})
# Room for the rest of a visit's extension: its method, and that it was requeued under an address.
_BESIDE_META = 64
_NOTHING = Parsed()
_NO_FTP = "scheme ftp"
_pack = msgspec.msgpack.Encoder().encode

Chain = tuple[tuple[str, int], ...]


class Hop(NamedTuple):
    """The target of a redirect: a visit to add, or the reason why there is none.

    failed  the visit fails with that reason; otherwise it is excluded
    """

    visit: Visit | None
    reason: str = ""
    failed: bool = False


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
        except (StoreUnavailable, StoreHeld):
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
        visits, for_others = _follows(follows, visit, target, context, response.started_at)
        record = _record(response, visit, context, self._worker, parsed, directives)
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
            # Nothing has named this sitemap.
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
        record = failed(visit, context, self._worker, reason, response, at)
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
        # nofollow is the site owner's wish as robots.txt is: --ignore-robots ignores both.
        obey = not context.policy.ignore_robots
        if not (directives.nofollow and obey):
            visits = _links(parsed, visit, target, context, obey, response.started_at)
        if parsed.refresh and parsed.refresh_seconds <= _REFRESH_SECONDS:
            hop = follow(visit, target, parsed.refresh, 0, context, response.started_at)
            if hop.visit is not None:
                visits.append(hop.visit)
    return _record(response, visit, context, worker, parsed, directives), visits, None


def confirmed(response: Response, visit: Visit, context: CrawlContext, worker: str) -> Record:
    """The record of a page that has not changed (status 304)."""
    return _record(response, visit, context, worker, None, Directives())


def failed(
    visit: Visit, context: CrawlContext, worker: str, reason: str, response: Response | None, at: float
) -> Record:
    """The record of a URL that is not retried automatically."""
    if response is None:
        response = Response(url=visit.url, status=0, started_at=at)
    return _record(response, visit, context, worker, None, Directives(), error=reason)


def follow(
    visit: Visit, target: Target, location: str, status: int, context: CrawlContext, now: float, *,
    cookies_changed: bool = False,
) -> Hop:  # fmt: skip
    """The next hop of a chain: a visit of its own, with its host's delay and robots.txt and the crawl's scope.

    `status` is 0 for a redirect in the page itself. No query parameter is removed: the site would redirect again.
    `cookies_changed`: the response set cookies, so that the same URL may now lead elsewhere.
    """
    notes = visit.notes
    chain = notes.chain
    if len(chain) >= MAX_HOPS:
        return Hop(None, "too many redirects", failed=True)
    there = resolve_header(target.url, location) if status else resolve(target.url, location)
    if there is None:
        return Hop(None, "redirect to no web address", failed=True)
    # RFC 9110 15.4: 307 and 308 repeat the request, and so do 301 and 302 for any method but POST.
    keeps = visit.method == "HEAD" or status in (307, 308) or (status in (301, 302) and visit.method != "POST")
    method, body = (visit.method, visit.body) if keeps else ("GET", b"")
    if body and target.scheme == "https" and there.scheme != "https":
        return Hop(None, "redirect of a body from https to http", failed=True)
    same_origin = there.origin == target.origin
    dropped = frozenset() if body or method == visit.method else _OF_A_BODY
    # Headers of a request are for its origin: a redirect does not hand credentials on.
    headers = {name: value for name, value in visit.headers.items() if same_origin and name.lower() not in dropped}
    if not same_origin and body:
        headers = {name: value for name, value in visit.headers.items() if name.lower() in _OF_A_BODY}
    repeats = record_url(there.url, method, body)
    # With a spider, a pass continues where a redirect leads to.
    pass_number = notes.pass_number if context.spider else 0
    variant = pass_variant(pass_number)
    if cookies_changed or visit.method != "GET" or visit.body or notes.variant != variant:
        # What a form leads to, or what the site shows with other cookies, may be a page that was visited before.
        variant = hashlib.blake2s(f"{len(chain)} {visit.identity}".encode(), digest_size=8).hexdigest()
    if not cookies_changed and (repeats == visit.record_url or any(repeats == url for url, _ in chain)):
        return Hop(None, "redirect loop", failed=True)
    # The target of a seed's redirect is in scope: users write example.org and mean www.example.org.
    seed = visit.found == "seed" or notes.seed
    if notes.sitemap is not None:
        reason = context.sitemap_reader.refuses(there, target.host)
    else:
        reason = "" if seed else context.scope.verdict(there, page_host=target.host) or context.trap(there, now)
    if reason:
        return Hop(None, reason)
    # Cookies of a jar are those of the jar now.
    cookies = notes.cookies if same_origin and context.cookie_jar == "off" else {}
    meta = VisitMeta(
        seed=seed, sitemap=notes.sitemap, guess=notes.guess, chain=(*chain, (visit.record_url, status)),
        callback=notes.callback, data=notes.data, cookies=cookies, variant=variant, pass_number=pass_number,
    ).pack()  # fmt: skip
    if len(_pack((method, headers, body, meta))) > MAX_EXTENSION_BYTES - _BESIDE_META:
        return Hop(None, "redirects too long", failed=True)
    hop = Visit(
        url=there.url, depth=visit.depth, priority=visit.priority, found="redirect", method=method, headers=headers,
        body=body, meta=meta,
    )  # fmt: skip
    return Hop(hop)


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


def _follows(
    follows: Iterable[Follow], visit: Visit, target: Target, context: CrawlContext, now: float
) -> tuple[list[Visit], dict[str, list[Visit]]]:
    """The pages a spider follows that are in scope: visits of its own, and those of other spiders by their names."""
    own: list[Visit] = []
    for_others: dict[str, list[Visit]] = {}
    # Beyond the limit of depth, too: the frontier keeps such URLs for a higher limit.
    depth = visit.depth + 1
    for place, follow_up in enumerate(follows):
        try:
            there = canonical(context.cleaned(follow_up.url))
        except InvalidUrl:
            # Relative to the page, or not a web address (a selector may match mailto: links).
            absolute = resolve(target.url, context.cleaned(follow_up.url))
            if absolute is None:
                continue
            there = absolute
        other = follow_up.spider and follow_up.spider != context.spider
        priority = visit.priority if follow_up.priority is None else follow_up.priority
        next_visit = visit_of(
            follow_up, there.url, depth=depth, priority=priority, parent=visit.identity, place=place,
            pass_number=visit.notes.pass_number,
        )  # fmt: skip
        reason = context.scope.verdict(there, page_host=target.host)
        if not reason and next_visit.is_plain and not other and not visit.abandoned and there.url in context.recent:
            continue
        if not reason:
            reason = _NO_FTP if there.scheme == "ftp" and not context.ftp else context.trap(there, now)
        if reason:
            context.samples.note(reason, there.url)
            continue
        (for_others.setdefault(follow_up.spider, []) if other else own).append(next_visit)
    return own, for_others


def _links(parsed: Parsed, visit: Visit, target: Target, context: CrawlContext, obey: bool, now: float) -> list[Visit]:
    links = (link for link in parsed.links if not (link.rel and obey and link.nofollow))
    if "feed" not in context.follow:
        return _pages((link.url for link in links), visit, target, context, now)
    by_feed: dict[bool, list[str]] = {False: [], True: []}
    for link in links:
        by_feed[link.kind == "feed"].append(link.url)
    # Most pages of a site name the same feed.
    feeds = (url for url in by_feed[True] if url not in context.recent)
    return [
        *_pages(by_feed[False], visit, target, context, now),
        *context.sitemap_reader.files(feeds, visit, target, nesting=0),
    ]


def _pages(
    urls: Iterable[str], visit: Visit, target: Target, context: CrawlContext, now: float, found: str = "link"
) -> list[Visit]:
    """The visits of URLs that are in scope and were not added recently."""
    # The links of an abandoned page are added again: the journal must have them.
    recent: RecentUrls | tuple[()] = () if visit.abandoned else context.recent
    verdict, cleaned, trap = context.scope.verdict, context.cleaned, context.trap
    depth, priority, host, outside = visit.depth + 1, visit.priority, target.host, context.outside
    visits = []
    for link in urls:
        # Most links are recent ones: skip them first.
        if link in recent or (host, link) in outside:
            continue
        url = cleaned(link)
        if url is not link and url in recent:
            continue
        try:
            there = parts_of(url)
        except InvalidUrl:
            continue
        reason = verdict(there, page_host=host)
        if reason:
            outside.add((host, link))
        else:
            reason = _NO_FTP if there.scheme == "ftp" and not context.ftp else trap(there, now)
        if reason:
            context.samples.note(reason, url)
            continue
        visits.append(Visit(url=url, depth=depth, priority=priority, found=found))
    return visits


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
        visits = _pages(listed.urls, visit, target, context, response.started_at, found="sitemap")
        visits += sitemaps.nested(listed, visit, target)
    count = len(listed.urls) + len(listed.sitemaps)
    if listed.trouble and not count:
        raise InvalidSitemap(f"sitemap: {listed.trouble}")
    record = msgspec.structs.replace(_record(response, visit, context, worker, None, directives), links=count)
    if not context.dated:
        return record, visits, None
    # A feed that only has another build date has not changed.
    record = msgspec.structs.replace(record, text_hash=listed_hash(listed))
    return record, visits, signals_of(listed, visit, target, response.started_at)


def _record(
    response: Response, visit: Visit, context: CrawlContext, worker: str, parsed: Parsed | None, directives: Directives,
    error: str = "",
) -> Record:  # fmt: skip
    parsed = parsed or _NOTHING
    robots = " ".join(
        name
        for name, on in (
            ("noindex", directives.noindex_at(response.started_at)),
            ("nofollow", directives.nofollow),
            ("noarchive", directives.noarchive),
        )
        if on
    )
    return Record(
        crawl=context.name, url=visit.record_url, status=response.status, error=error, title=parsed.title,
        description=parsed.description, text=parsed.text, language=parsed.language, canonical=parsed.canonical,
        content_type=response.header("content-type")[:255], charset=parsed.charset, bytes=len(response.body),
        depth=visit.depth, found=visit.found, links=len(parsed.links), robots=robots, redirects=visit.notes.chain,
        etag=response.header("etag")[:1024], last_modified=response.header("last-modified")[:1024],
        fetched_at=response.started_at, response_seconds=response.timings.total,
        bytes_received=response.bytes_received, address=response.address,
        http_version=response.http_version, attempt=visit.retries + visit.expiries + 1,
        robots_ignored=context.policy.ignore_robots, worker=worker, spider=context.spider,
        text_hash=""
        if error or response.status == 304
        else text_hash(parsed, response.body, numbers=not context.policy.ignore_numbers),
    )  # fmt: skip
