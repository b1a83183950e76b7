"""The reader: what a page is worth, read by Shoal itself or by the crawl's spider, and how its visit has ended.

From a page to its record and the visits it leads to.

Owns what is done with an answer that is worth storing, and how redirects and links become visits. Pure but for the
blame that is noted while foreign markup is read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import ada_url
import msgspec

from shoal.errors import CrawlEnded, InvalidInput, InvalidUrl, StoreHeld, StoreUnavailable
from shoal.fetch.ftp import LISTING
from shoal.frontier.visit_codec import MAX_EXTENSION_BYTES
from shoal.model.record import Item, Record
from shoal.model.response import Response
from shoal.model.visit import Visit
from shoal.parse import ftp_listing, sitemap
from shoal.parse.html import Link, Parsed, parse
from shoal.parse.robots_meta import Directives, from_headers
from shoal.spider import Follow
from shoal.urls.canonical import Target, canonical, parts_of
from shoal.worker import sitemaps
from shoal.worker.crash_marker import CrashMarker, Marked
from shoal.worker.crawl_context import CrawlContext, CrawlContexts
from shoal.worker.hold import Hold
from shoal.worker.outcome import MAX_HOPS, VisitResult
from shoal.worker.sitemaps import Sitemaps
from shoal.worker.spider_runner import Run, SpiderFailed, SpiderRunner, visit_of


class PageProcessor:
    def __init__(self, spiders: SpiderRunner, conducts: CrawlContexts, blame: CrashMarker, worker: str) -> None:
        self._spiders = spiders
        self._conducts = conducts
        self._blame = blame
        self._worker = worker

    async def read(
        self, hold: Hold, visit: Visit, target: Target, conduct: CrawlContext, page: Response
    ) -> VisitResult:
        """Whatever a page does to us or to a spider, it does to itself alone."""
        try:
            # A sitemap is read for its spider, not by it.
            if conduct.spider and "sitemap" not in visit.meta:
                run = self._blamed(hold, visit)
                found = await read_by(self._spiders, page, visit, target, conduct, self._worker, run)
                visits = [*found.visits, *await self._branches(conduct, found.elsewhere)]
            else:
                self._blame.note(hold.lease.token, visit.number)
                try:
                    found = read(page, visit, target, conduct, self._worker)
                finally:
                    self._blame.clear()
                visits = found.visits
        except (StoreUnavailable, StoreHeld):
            raise
        except SpiderFailed as error:
            finished = await self.give_up(hold, visit, conduct, error.reason, page, page.started_at)
            if finished.record is not None and error.trace:
                # The reason is counted, so it is short; whoever wrote the spider wants to know more.
                whole = msgspec.structs.replace(finished.record, error=f"{error.reason}\n{error.trace}")
                finished = finished._replace(record=whole)
            return finished
        except Exception as error:
            reason = f"reading: {type(error).__name__}"
            return await self.give_up(hold, visit, conduct, reason, page, page.started_at)
        if found.trouble:
            return await self.give_up(hold, visit, conduct, found.trouble, page, page.started_at)
        return VisitResult(hold, visit, visit.stored(), found.record, visits, conduct, found.items, size=found.size)

    async def _branches(self, conduct: CrawlContext, elsewhere: dict[str, list[Visit]]) -> list[Visit]:
        """Visits for other spiders, each with the name of the branch it waits in."""
        visits: list[Visit] = []
        for spider, some in elsewhere.items():
            if conduct.lane:
                # Nobody else can have it.
                self._spiders.check_has(spider)
            try:
                there = await self._conducts.branch(conduct, spider)
            except CrawlEnded:
                continue
            except InvalidInput as error:
                raise SpiderFailed("spider: no branch", str(error)) from error
            visits += [msgspec.structs.replace(visit, crawl=there.crawl.id) for visit in some]
        return visits

    async def give_up(
        self, hold: Hold, visit: Visit, conduct: CrawlContext, reason: str, page: Response | None, at: float
    ) -> VisitResult:
        """Failed, and its spider is told."""
        if visit.meta.get("guess"):
            # Nobody has said that there is one.
            return VisitResult(hold, visit, visit.excluded(sitemaps.NONE))
        finished = self.failed(hold, visit, conduct, reason, page, at)
        if conduct.spider:
            run = self._blamed(hold, visit)
            # What the spider makes of that is its own affair: the URL has failed either way.
            with contextlib.suppress(SpiderFailed):
                yielded = await self._spiders.failed(conduct.spider, conduct.name, visit.url, reason, at, run)
                finished = finished._replace(items=yielded.items, size=yielded.size)
        return finished

    def failed(
        self, hold: Hold, visit: Visit, conduct: CrawlContext, reason: str, page: Response | None, at: float
    ) -> VisitResult:
        record = failed(visit, conduct, self._worker, reason, page, at)
        return VisitResult(hold, visit, visit.failed(reason), record, [], conduct)

    def _blamed(self, hold: Hold, visit: Visit) -> Run:
        return partial(Marked, blame=self._blame, token=hold.lease.token, number=visit.number)


_HTML = ("text/html", "application/xhtml+xml")
# A page that sends its reader on later than this is a page of its own.
_REFRESH_SECONDS = 10

# What a visit keeps when a redirect sends it on.
_CARRIED = ("callback", "data", "sitemap", "guess")
# The rest of what a visit carries: its method, and that it waits for an address.
_BESIDE_META = 64
_pack = msgspec.msgpack.Encoder().encode

Chain = tuple[tuple[str, int], ...]


class Hop(NamedTuple):
    """Where a redirect leads: a visit to add, or the reason why it is none."""

    visit: Visit | None
    reason: str = ""
    failed: bool = False


class Reading(NamedTuple):
    """`elsewhere` are visits for other spiders, by their names; `trouble` is why a sitemap is none."""

    record: Record
    visits: list[Visit]
    items: tuple[Item, ...]
    elsewhere: dict[str, list[Visit]]
    trouble: str = ""
    size: int = 0


def read(page: Response, visit: Visit, target: Target, conduct: CrawlContext, worker: str) -> Reading:
    """A page of status 2xx: what it says if it is HTML, what the server said of it if it is not."""
    sitemaps = conduct.sitemaps
    if sitemaps is not None and ("sitemap" in visit.meta or (not _is_html(page) and sitemap.is_sitemap(page.body))):
        return _sitemap(page, visit, target, conduct, sitemaps, worker)
    parsed, directives = _parsed(page, target, conduct)
    visits: list[Visit] = []
    if conduct.follow and parsed is not None:
        # robots.txt and nofollow are one wish of the site's owner: who may ignore one may ignore the other.
        obey = not conduct.policy.ignore_robots
        if not (directives.nofollow and obey):
            visits = _links(parsed, visit, target, conduct, obey, page.started_at)
        if parsed.refresh and parsed.refresh_seconds <= _REFRESH_SECONDS:
            hop = follow(visit, target, parsed.refresh, 0, conduct, page.started_at)
            if hop.visit is not None:
                visits.append(hop.visit)
    return Reading(_record(page, visit, conduct, worker, parsed, directives), visits, (), {})


async def read_by(
    spiders: SpiderRunner, page: Response, visit: Visit, target: Target, conduct: CrawlContext, worker: str, run: Run
) -> Reading:
    """The same for a crawl with a spider: it says what is found, and where to go on."""
    parsed, directives = _parsed(page, target, conduct)
    yielded = await spiders.read(conduct.spider, conduct.name, page, parsed or _NOTHING, visit, run)
    obey = directives.nofollow and not conduct.policy.ignore_robots
    visits, elsewhere = _follows(() if obey else yielded.follows, visit, target, conduct, page.started_at)
    record = _record(page, visit, conduct, worker, parsed, directives)
    return Reading(record, visits, yielded.items, elsewhere, size=yielded.size)


def confirmed(page: Response, visit: Visit, conduct: CrawlContext, worker: str) -> Record:
    return _record(page, visit, conduct, worker, None, Directives())


def failed(visit: Visit, conduct: CrawlContext, worker: str, reason: str, page: Response | None, at: float) -> Record:
    """The record of a URL that will not be tried again by itself."""
    if page is None:
        page = Response(url=visit.url, status=0, started_at=at)
    record = _record(page, visit, conduct, worker, None, Directives(), error=reason)
    return record


def follow(visit: Visit, target: Target, location: str, status: int, conduct: CrawlContext, now: float) -> Hop:
    """The next hop of a chain. It is a visit of its own: its host's politeness, its robots.txt, the crawl's scope.

    No parameter is dropped: a site may send its visitor to where they stand, and would do so again.
    """
    chain = chain_of(visit)
    if len(chain) >= MAX_HOPS:
        return Hop(None, "too many redirects", failed=True)
    there = where(target.url, location, header=status != 0)
    if there is None:
        return Hop(None, "redirect to no web address", failed=True)
    if there.url == target.url or any(there.url == url for url, _ in chain):
        return Hop(None, "redirect loop", failed=True)
    # Where a seed leads is where its user wants to go: example.org is www.example.org for most of them.
    seed = visit.found == "seed" or bool(visit.meta.get("seed"))
    if conduct.sitemaps is not None and "sitemap" in visit.meta:
        reason = conduct.sitemaps.refuses(there, target.host)
    else:
        reason = "" if seed else conduct.scope.verdict(there, page_host=target.host) or conduct.trap(there, now)
    if reason:
        return Hop(None, reason)
    meta = {name: visit.meta[name] for name in _CARRIED if name in visit.meta}
    meta["chain"] = [*chain, (target.url, status)]
    if seed:
        meta["seed"] = True
    if len(_pack(meta)) > MAX_EXTENSION_BYTES - _BESIDE_META:
        return Hop(None, "redirects too long", failed=True)
    hop = Visit(url=there.url, depth=visit.depth, priority=visit.priority, found="redirect", meta=meta)
    return Hop(hop)


def where(url: str, location: str, *, header: bool = True) -> Target | None:
    """What a Location of `url` means; None when it is no address of the web."""
    try:
        # Servers send raw UTF-8; headers are Latin-1 text.
        raw = location.encode("latin-1", "replace").decode("utf-8", "replace") if header else location
        return canonical(ada_url.join_url(url, raw.strip()))
    except (InvalidUrl, ValueError, UnicodeError):
        return None


def chain_of(visit: Visit) -> Chain:
    """The redirects that led to a visit. It comes from the store: what is not of this form is no chain."""
    kept = visit.meta.get("chain") if visit.meta else None
    if not isinstance(kept, list | tuple):
        return ()
    pairs = (pair for pair in kept if isinstance(pair, list | tuple) and len(pair) == 2)
    return tuple((url, status) for url, status in pairs if isinstance(url, str) and isinstance(status, int))


def _told(page: Response, conduct: CrawlContext) -> Directives:
    """What the server tells robots."""
    tags = page.all_headers("x-robots-tag")
    return from_headers(tags, conduct.token) if tags else Directives()


def _is_html(page: Response) -> bool:
    kind = page.header("content-type").partition(";")[0].strip().lower()
    return kind in _HTML or (not kind and _looks_like_html(page.body))


def _parsed(page: Response, target: Target, conduct: CrawlContext) -> tuple[Parsed | None, Directives]:
    """What an HTML page says, None for any other; and what it and its server tell robots."""
    directives = _told(page, conduct)
    content_type = page.header("content-type")
    if content_type == LISTING and target.scheme == "ftp":
        names = ftp_listing.links(page.body, url=target.url) if "a" in conduct.follow else ()
        return Parsed(links=tuple(Link(url, "a") for url in names)), directives
    if not page.body or not _is_html(page):
        return None, directives
    parsed = parse(page.body, url=target.url, content_type=content_type, follow=conduct.follow, token=conduct.token)
    return parsed, directives | parsed.robots


def _follows(
    follows: Iterable[Follow], visit: Visit, target: Target, conduct: CrawlContext, now: float
) -> tuple[list[Visit], dict[str, list[Visit]]]:
    """What a spider asks for and the crawl may do, for itself and for other spiders."""
    own: list[Visit] = []
    elsewhere: dict[str, list[Visit]] = {}
    depth, most = visit.depth + 1, conduct.crawl.limits.max_depth
    if most is not None and depth > most:
        return own, elsewhere
    for one in follows:
        try:
            there = canonical(conduct.cleaned(one.url))
        except InvalidUrl:
            # Relative to the page, or no address of the web, such as mailto:, which a selector may catch.
            whole = where(target.url, conduct.cleaned(one.url), header=False)
            if whole is None:
                continue
            there = whole
        other = one.spider and one.spider != conduct.spider
        if conduct.scope.verdict(there, page_host=target.host) or (not other and there.url in conduct.recent):
            continue
        if conduct.trap(there, now) or (there.scheme == "ftp" and not conduct.ftp):
            continue
        priority = visit.priority if one.priority is None else one.priority
        wanted = visit_of(one, there.url, depth=depth, priority=priority)
        (elsewhere.setdefault(one.spider, []) if other else own).append(wanted)
    return own, elsewhere


def _links(parsed: Parsed, visit: Visit, target: Target, conduct: CrawlContext, obey: bool, now: float) -> list[Visit]:
    urls = (link.url for link in parsed.links if not (link.rel and obey and link.nofollow))
    return _pages(urls, visit, target, conduct, now)


def _pages(
    urls: Iterable[str], visit: Visit, target: Target, conduct: CrawlContext, now: float, found: str = "link"
) -> list[Visit]:
    """What a page leads to, as far as the crawl goes there and has not been there lately."""
    recent, verdict, cleaned, trap = conduct.recent, conduct.scope.verdict, conduct.cleaned, conduct.trap
    depth, priority, host = visit.depth + 1, visit.priority, target.host
    most = conduct.crawl.limits.max_depth
    if most is not None and depth > most:
        return []
    visits = []
    for given in urls:
        # Most links are: they cost nothing more.
        if given in recent:
            continue
        url = cleaned(given)
        if url is not given and url in recent:
            continue
        try:
            there = parts_of(url)
        except InvalidUrl:
            continue
        if verdict(there, page_host=host) or (there.scheme == "ftp" and not conduct.ftp) or trap(there, now):
            continue
        visits.append(Visit(url=url, depth=depth, priority=priority, found=found))
    return visits


def _sitemap(
    page: Response, visit: Visit, target: Target, conduct: CrawlContext, sitemaps: Sitemaps, worker: str
) -> Reading:
    """A file that lists pages: they are visits, and so are further files of its kind."""
    directives = _told(page, conduct)
    listed = sitemap.read(page.body, url=target.url, content_type=page.header("content-type"))
    visits: list[Visit] = []
    if not directives.nofollow or conduct.policy.ignore_robots:
        visits = _pages(listed.urls, visit, target, conduct, page.started_at, found="sitemap")
        visits += sitemaps.nested(listed, visit, target)
    count = len(listed.urls) + len(listed.sitemaps)
    record = _record(page, visit, conduct, worker, None, directives)
    trouble = f"sitemap: {listed.trouble}" if listed.trouble and not count else ""
    return Reading(msgspec.structs.replace(record, links=count), visits, (), {}, trouble)


def _record(
    page: Response, visit: Visit, conduct: CrawlContext, worker: str, parsed: Parsed | None, directives: Directives,
    error: str = "",
) -> Record:  # fmt: skip
    parsed = parsed or _NOTHING
    robots = " ".join(
        name
        for name, on in (
            ("noindex", directives.noindex_at(page.started_at)),
            ("nofollow", directives.nofollow),
            ("noarchive", directives.noarchive),
        )
        if on
    )
    return Record(
        crawl=conduct.name, url=visit.url, status=page.status, error=error, title=parsed.title,
        description=parsed.description, text=parsed.text, language=parsed.language, canonical=parsed.canonical,
        content_type=page.header("content-type")[:255], charset=parsed.charset, bytes=len(page.body), depth=visit.depth,
        found=visit.found, links=len(parsed.links), robots=robots, redirects=chain_of(visit),
        etag=page.header("etag")[:1024], last_modified=page.header("last-modified")[:1024], fetched_at=page.started_at,
        response_seconds=page.timings.total, bytes_received=page.bytes_received, address=page.address,
        http_version=page.http_version, attempt=visit.retries + visit.expiries + 1,
        robots_ignored=conduct.policy.ignore_robots, worker=worker, spider=conduct.spider,
    )  # fmt: skip


_NOTHING = Parsed()


def _looks_like_html(body: bytes) -> bool:
    """For answers without a Content-Type, as the MIME sniffing standard has it for the start of a page."""
    head = body[:512].lstrip(b"\t\n\x0c\r \xef\xbb\xbf").lower()
    return head.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<title", b"<script", b"<!--"))
