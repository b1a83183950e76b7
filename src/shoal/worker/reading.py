"""From a page to its record and the visits it leads to.

Owns what is done with an answer that is worth storing, and how redirects and links become visits. Pure but for the
blame that is noted while foreign markup is read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import ada_url

from shoal.errors import InvalidUrl
from shoal.model.page import Page
from shoal.model.record import Record
from shoal.model.visit import Visit
from shoal.parse.html import Parsed, parse
from shoal.parse.page_robots import Directives, from_headers
from shoal.urls.canonical import Target, canonical, parts_of
from shoal.worker.conduct import Conduct
from shoal.worker.verdict import MAX_HOPS

_HTML = ("text/html", "application/xhtml+xml")
# A page that sends its reader on later than this is a page of its own.
_REFRESH_SECONDS = 10

Chain = tuple[tuple[str, int], ...]


class Hop(NamedTuple):
    """Where a redirect leads: a visit to add, or the reason why it is none."""

    visit: Visit | None
    reason: str = ""
    failed: bool = False


class Reading(NamedTuple):
    record: Record
    visits: list[Visit]


def read(page: Page, visit: Visit, target: Target, conduct: Conduct, worker: str) -> Reading:
    """A page of status 2xx: what it says if it is HTML, what the server said of it if it is not."""
    policy = conduct.policy
    content_type = page.header("content-type")
    tags = page.all_headers("x-robots-tag")
    directives = from_headers(tags, conduct.token) if tags else Directives()
    kind = content_type.partition(";")[0].strip().lower()
    if not page.body or not (kind in _HTML or (not kind and _looks_like_html(page.body))):
        return Reading(_record(page, visit, conduct, worker, None, directives), [])
    parsed = parse(page.body, url=target.url, content_type=content_type, follow=conduct.follow, token=conduct.token)
    directives |= parsed.robots
    visits: list[Visit] = []
    if conduct.follow:
        # robots.txt and nofollow are one wish of the site's owner: who may ignore one may ignore the other.
        obey = not policy.ignore_robots
        if not (directives.nofollow and obey):
            visits = _links(parsed, visit, target, conduct, obey)
        if parsed.refresh and parsed.refresh_seconds <= _REFRESH_SECONDS:
            hop = follow(visit, target, parsed.refresh, 0, conduct)
            if hop.visit is not None:
                visits.append(hop.visit)
    return Reading(_record(page, visit, conduct, worker, parsed, directives), visits)


def confirmed(page: Page, visit: Visit, conduct: Conduct, worker: str) -> Record:
    return _record(page, visit, conduct, worker, None, Directives())


def failed(visit: Visit, conduct: Conduct, worker: str, reason: str, page: Page | None, at: float) -> Record:
    """The record of a URL that will not be tried again by itself."""
    if page is None:
        page = Page(url=visit.url, status=0, started_at=at)
    record = _record(page, visit, conduct, worker, None, Directives(), error=reason)
    return record


def follow(visit: Visit, target: Target, location: str, status: int, conduct: Conduct) -> Hop:
    """The next hop of a chain. It is a visit of its own: its host's politeness, its robots.txt, the crawl's scope."""
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
    if not seed and (reason := conduct.scope.verdict(there, page_host=target.host)):
        return Hop(None, reason)
    meta: dict[str, Any] = {"chain": [*chain, (target.url, status)]}
    if seed:
        meta["seed"] = True
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


def _links(parsed: Parsed, visit: Visit, target: Target, conduct: Conduct, obey: bool) -> list[Visit]:
    recent, verdict = conduct.recent, conduct.scope.verdict
    depth, priority, host = visit.depth + 1, visit.priority, target.host
    most = conduct.crawl.limits.max_depth
    if most is not None and depth > most:
        return []
    found = []
    for link in parsed.links:
        url = link.url
        if url in recent or (link.rel and obey and link.nofollow):
            continue
        try:
            there = parts_of(url)
        except InvalidUrl:
            continue
        if not verdict(there, page_host=host):
            found.append(Visit(url=url, depth=depth, priority=priority))
    return found


def _record(
    page: Page, visit: Visit, conduct: Conduct, worker: str, parsed: Parsed | None, directives: Directives,
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
        crawl=visit.crawl, url=visit.url, status=page.status, error=error, title=parsed.title,
        description=parsed.description, text=parsed.text, language=parsed.language, canonical=parsed.canonical,
        content_type=page.header("content-type")[:255], charset=parsed.charset, bytes=len(page.body), depth=visit.depth,
        found=visit.found, links=len(parsed.links), robots=robots, redirects=chain_of(visit),
        etag=page.header("etag")[:1024], last_modified=page.header("last-modified")[:1024], fetched_at=page.started_at,
        response_seconds=page.timings.total, bytes_received=page.bytes_received, address=page.address,
        http_version=page.http_version, attempt=visit.retries + visit.expiries + 1,
        robots_ignored=conduct.policy.ignore_robots, worker=worker,
    )  # fmt: skip


_NOTHING = Parsed()


def _looks_like_html(body: bytes) -> bool:
    """For answers without a Content-Type, as the MIME sniffing standard has it for the start of a page."""
    head = body[:512].lstrip(b"\t\n\x0c\r \xef\xbb\xbf").lower()
    return head.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<title", b"<script", b"<!--"))
