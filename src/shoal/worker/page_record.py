"""The record of a page: what outputs store of a response, of an unchanged page and of a failure. Pure."""

from __future__ import annotations

from shoal.model.record import Record
from shoal.model.response import Response
from shoal.model.visit import Visit
from shoal.parse.html import Parsed, text_hash
from shoal.parse.robots_meta import Directives
from shoal.worker.crawl_context import CrawlContext

_NOTHING = Parsed()


def confirmed(response: Response, visit: Visit, context: CrawlContext, worker: str) -> Record:
    """The record of a page that has not changed (status 304)."""
    return record_of(response, visit, context, worker, None, Directives())


def failed(
    visit: Visit, context: CrawlContext, worker: str, reason: str, response: Response | None, at: float
) -> Record:
    """The record of a URL that is not retried automatically."""
    if response is None:
        response = Response(url=visit.url, status=0, started_at=at)
    return record_of(response, visit, context, worker, None, Directives(), error=reason)


def record_of(
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
        http_version=response.http_version, attempt=visit.attempt,
        robots_ignored=context.policy.ignore_robots, worker=worker, spider=context.spider,
        text_hash=""
        if error or response.status == 304
        else text_hash(parsed, response.body, numbers=not context.policy.ignore_numbers),
    )  # fmt: skip
