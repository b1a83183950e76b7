"""Crawls over HTTP: submit, list, show, change, touch, pause, resume, stop, delete.

Owns the JSON of crawls. shoal.operations and the frontier do the work. Headers, cookies, credentials and passwords of
outputs are write-only: no response contains them.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import AsyncIterator
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta
from starlette.responses import Response, StreamingResponse

from shoal.api.auth import Role
from shoal.api.pagination import MAX_PAGE_SIZE, make_cursor
from shoal.api.problem_details import Json, RequestRefused, problem_of
from shoal.api.request import RequestContext
from shoal.errors import InvalidInput, ShoalError
from shoal.frontier.failures import FailureCursor
from shoal.frontier.inspect import list_crawls
from shoal.model.crawl import Counts, Crawl, CrawlKind, State
from shoal.model.crawl_options import CHANGEABLE
from shoal.model.crawl_request import MAX_SEEDS, CrawlRequest
from shoal.model.visit import Visit
from shoal.operations import crawls as crawl_operations
from shoal.operations.change import change
from shoal.operations.describe import describe
from shoal.operations.explain import explain as explain_url
from shoal.operations.scrapy_cluster import ClusterAction, act, app_of
from shoal.operations.scrapy_cluster_fleet import DomainUpdate, StatsRequest, collect_stats, update_domain
from shoal.operations.seeds import seed_url_without_login
from shoal.operations.start import check_takes_seeds
from shoal.operations.submit import MAX_REQUEST_BYTES, Submitted, parse, submit, to_submission, with_output
from shoal.operations.touch import MAX_URLS, touch
from shoal.sinks import is_local, is_name
from shoal.sinks.bodies import are_local
from shoal.urls.canonical import MAX_URL_BYTES

MAX_FAILED = 10_000
# URLs that one request can choose.
MAX_CHOSEN = 1000
STATES = tuple(state.value for state in State if state is not State.DELETED)
# Crawls that one list request reads at most.
_MAX_SCANNED = 2000
_POLL_SECONDS, _KEEPALIVE_SECONDS = 1.0, 15.0
_MAX_STREAMS = 200
_MAX_STREAMS_PER_CALLER = 50


class CrawlSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl in a list. Times are in seconds since 1970; 0 means not yet."""

    id: str
    app: Annotated[str, Meta(description="Application that the crawl belongs to.")]
    state: Annotated[str, Meta(description="running, paused, stopped, expired or finished.")]
    why: Annotated[str, Meta(description="Why the crawl has this state; '' if there is no special reason.")]
    priority: Annotated[int, Meta(description="Higher-priority crawls are served first.")]
    created_at: Annotated[float, Meta(description="Seconds since 1970.")]
    ended_at: Annotated[float, Meta(description="Seconds since 1970; 0 while the crawl is open.")]
    counts: Counts


# With `preview`, nothing is changed: only the waiting URLs that the new patterns and depth exclude are counted.
_HINTS = get_type_hints(CrawlRequest, include_extras=True)
CrawlChange = msgspec.defstruct(
    "CrawlChange",
    [
        *((name, _HINTS[name] | msgspec.UnsetType, msgspec.UNSET) for name in CHANGEABLE),
        ("preview", Annotated[bool, Meta(description="Change nothing, only count.")], False),
    ],
    namespace={"__doc__": "New values for options of an open crawl. Omitted options stay unchanged."},
    frozen=True, kw_only=True, forbid_unknown_fields=True,
)  # fmt: skip


class CrawlPage(msgspec.Struct, frozen=True, kw_only=True):
    """Crawls, newest first."""

    crawls: list[CrawlSummary]
    next: Annotated[str | None, Meta(description="Cursor of the next page; null on the last page.")] = None


class NewSeeds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """URLs to add to an open crawl."""

    seeds: Annotated[tuple[str, ...], Meta(min_length=1, max_length=MAX_SEEDS)]


class AddedSeeds(msgspec.Struct, frozen=True, kw_only=True):
    """How many URLs were new to the crawl, already known to it, and refused by its limits or a blocked host."""

    new: Annotated[int, Meta(description="URLs that were new to the crawl.")]
    known: Annotated[int, Meta(description="URLs that the crawl already knew.")]
    refused: Annotated[int, Meta(description="URLs that the crawl's limits or a blocked host refused.")]


class TouchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pages that have changed."""

    urls: Annotated[tuple[str, ...], Meta(min_length=1, max_length=MAX_URLS)]


class FailedUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A URL that failed in its last attempt."""

    url: str
    reason: Annotated[str, Meta(description="Why the last attempt failed.")]
    depth: Annotated[int, Meta(description="Number of links from the seeds.")]
    attempt: Annotated[int, Meta(description="Number of attempts.")]


class FailedUrlPage(msgspec.Struct, frozen=True, kw_only=True):
    """Failed URLs, oldest first in each shard."""

    failed: list[FailedUrl]
    next: Annotated[str | None, Meta(description="Cursor of the next page; null on the last page.")] = None


class RetryRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which failed URLs to retry. Without a body, all of them are retried."""

    urls: Annotated[
        Annotated[tuple[str, ...], Meta(min_length=1, max_length=MAX_CHOSEN)] | None,
        Meta(description="Only these URLs."),
    ] = None
    reason: Annotated[str, Meta(max_length=200, description="Only URLs that failed for this reason.")] = ""


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """How many URLs were put back into the queue."""

    retried: Annotated[int, Meta(description="URLs that were put back into the queue.")]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The new state of a crawl."""

    id: str
    state: Annotated[str, Meta(description="running, paused or stopped.")]


async def create(context: RequestContext) -> Response:
    request = parse(await context.body(MAX_REQUEST_BYTES), context.server.spider_options)
    if not isinstance(request, CrawlRequest):
        raise InvalidInput("This Scrapy Cluster request is not a crawl request: send it to /feed.")
    submitted = await submit_for(context, request)
    return Json(submitted, 201 if submitted.created else 200, {"Location": f"/v1/crawls/{submitted.id}"})


async def submit_for(context: RequestContext, request: CrawlRequest) -> Submitted:
    """Submit a crawl with the permissions of the caller."""
    caller = context.caller
    if caller.app:
        if request.app not in ("", caller.app):
            raise RequestRefused(403, f"This token is bound to the application {caller.app!r}.")
        request = msgspec.structs.replace(request, app=caller.app)
    if request.ignore_robots:
        context.require_role(Role.ADMIN, "ignore_robots")
    machine = ""
    for output in request.all_outputs:
        if not is_name(output):
            # Only an administrator of the fleet decides which files and servers the workers write to.
            context.require_fleet_admin("An output that is not a name in [outputs]")
            machine = machine or (platform.node() if is_local(output) else "")
    if request.files:
        context.require_fleet_admin("files")
        machine = machine or (platform.node() if are_local(request.files) else "")
    request = with_output(request, context.server.settings.outputs, as_in='"outputs": ["NAME"] in the request')
    settings = context.server.settings
    submission = to_submission(request, machine=machine, networks=settings.fetch.allow_networks)
    return await submit(context.frontier, submission, outputs=settings.outputs)


async def listing(context: RequestContext) -> Response:
    return Json(await page_of(context))


async def page_of(context: RequestContext) -> CrawlPage:
    """The crawls of a request, as far as its caller may see them."""
    limit = context.integer("limit", 50, MAX_PAGE_SIZE)
    state = context.text("state", *STATES)
    app = context.caller.app or context.text("app")
    after: tuple[float, str] | None = context.cursor(tuple[float, str], "crawls", state, app)
    summaries: list[CrawlSummary] = []
    scanned = 0
    last: tuple[float, str] = (0.0, "")
    async for created_at, crawl in list_crawls(context.frontier, after):
        scanned += 1
        last = (created_at, crawl.id)
        visible = crawl.state is not State.DELETED and crawl.kind is not CrawlKind.BRANCH
        if visible and (not state or crawl.state.value == state) and (not app or crawl.app == app):
            summaries.append(await _summary(context, crawl))
        # A page may be short, so that a filter that matches little does not scan every crawl in one request.
        if len(summaries) == limit or scanned == _MAX_SCANNED:
            return CrawlPage(crawls=summaries, next=make_cursor(last, "crawls", state, app))
    return CrawlPage(crawls=summaries)


async def _summary(context: RequestContext, crawl: Crawl) -> CrawlSummary:
    return CrawlSummary(
        id=crawl.id, app=crawl.app, state=crawl.state.value, why=crawl.why,
        priority=crawl.limits.priority, created_at=crawl.created_at, ended_at=crawl.ended_at,
        counts=await context.frontier.crawls.count(crawl.id),
    )  # fmt: skip


async def show(context: RequestContext) -> Response:
    return Json(await describe(context.frontier, await context.crawl()))


async def explain(context: RequestContext) -> Response:
    url = context.request.query_params.get("url", "")
    if not 1 <= len(url) <= MAX_URL_BYTES:
        raise RequestRefused(422, f"url must have 1 to {MAX_URL_BYTES} characters.", kind="InvalidInput")
    return Json(await explain_url(context.frontier, await context.crawl(), url))


async def update(context: RequestContext) -> Response:
    crawl = await context.crawl()
    body = await context.json(CrawlChange)
    options = {name: value for name in CHANGEABLE if (value := getattr(body, name)) is not msgspec.UNSET}
    return Json(await change(context.frontier, crawl.id, options, preview=body.preview))


async def pause(context: RequestContext) -> Response:
    return await _set_state(context, "pause")


async def resume(context: RequestContext) -> Response:
    crawl = await crawl_operations.resume(context.frontier, (await context.crawl()).id)
    return Json(Change(id=crawl.id, state=crawl.state.value))


async def stop(context: RequestContext) -> Response:
    return await _set_state(context, "stop")


async def _set_state(context: RequestContext, verb: str) -> Response:
    crawl = await context.crawl()
    crawl = await getattr(context.frontier.crawls, verb)(crawl.id)
    return Json(Change(id=crawl.id, state=crawl.state.value))


async def delete(context: RequestContext) -> Response:
    crawl = await context.crawl()
    await crawl_operations.delete(context.frontier, crawl.id)
    return Response(status_code=204)


async def add_seeds(context: RequestContext) -> Response:
    crawl = await context.crawl()
    check_takes_seeds(crawl)
    body: NewSeeds = await context.json(NewSeeds, MAX_REQUEST_BYTES)
    urls = dict.fromkeys(seed_url_without_login(seed) for seed in body.seeds)
    added = await context.frontier.add(crawl.id, [Visit(url=url, found="seed") for url in urls])
    return Json(AddedSeeds(new=added.new, known=added.seen, refused=len(urls) - added.new - added.seen))


async def touch_pages(context: RequestContext) -> Response:
    crawl = await context.crawl()
    body: TouchRequest = await context.json(TouchRequest, MAX_REQUEST_BYTES)
    return Json(await touch(context.frontier, crawl, body.urls))


async def failed(context: RequestContext) -> Response:
    crawl = await context.crawl()
    limit = context.integer("limit", 100, MAX_FAILED)
    after = context.cursor(FailureCursor, "failed", crawl.id)
    visits, last = await context.frontier.crawls.failed_page(crawl.id, limit, after)
    failed_urls = [
        FailedUrl(url=visit.url, reason=reason, depth=visit.depth, attempt=visit.retries + 1)
        for visit, reason in visits
    ]
    return Json(FailedUrlPage(failed=failed_urls, next=make_cursor(last, "failed", crawl.id) if last else None))


async def retry(context: RequestContext) -> Response:
    crawl = await context.crawl()
    chosen: RetryRequest = await context.json(RetryRequest, MAX_REQUEST_BYTES)
    count = await context.frontier.crawls.retry(crawl.id, urls=chosen.urls, reason=chosen.reason)
    if context.server.maintainer is not None:
        context.server.maintainer.check_soon(crawl.id)
    return Json(Retried(retried=count))


async def events(context: RequestContext) -> Response:
    """Server-sent events: `counts` when the counts change, `end` when the crawl has ended, `trouble` on an error."""
    crawl = await context.crawl()
    streams = context.server.streams
    if streams.total() >= _MAX_STREAMS:
        raise RequestRefused(503, "Too many open event streams.")
    if streams[context.caller.name] >= _MAX_STREAMS_PER_CALLER:
        raise RequestRefused(
            429,
            f"This token has {_MAX_STREAMS_PER_CALLER} open event streams; close one.",
            headers={"Retry-After": "5"},
        )
    return StreamingResponse(_stream(context, crawl.id), media_type="text/event-stream")


async def _stream(context: RequestContext, crawl_id: str) -> AsyncIterator[bytes]:
    server = context.server
    server.streams[context.caller.name] += 1
    last, idle_seconds = b"", 0.0
    try:
        while not server.stopping.is_set():
            try:
                crawl = await context.frontier.crawls.get(crawl_id)
                summary = msgspec.json.encode(await _summary(context, crawl))
            except ShoalError as error:
                yield _event("trouble", msgspec.json.encode({"detail": str(error)}))
                return
            if summary != last or idle_seconds >= _KEEPALIVE_SECONDS:
                yield _event("counts", summary)
                last, idle_seconds = summary, 0.0
            if not crawl.state.open:
                yield _event("end", summary)
                return
            try:
                await asyncio.wait_for(server.stopping.wait(), _POLL_SECONDS)
            except TimeoutError:
                idle_seconds += _POLL_SECONDS
    finally:
        server.streams[context.caller.name] -= 1


def _event(name: str, data: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


async def feed(context: RequestContext) -> Response:
    """Accept Scrapy Cluster's crawl and action requests, and respond in its format."""
    try:
        request = parse(await context.body(MAX_REQUEST_BYTES))
        if isinstance(request, StatsRequest | DomainUpdate):
            return Json({"status": "SUCCESS", "data": await _fleet_request(context, request), "error": None})
        app = app_of(request.appid) if isinstance(request, ClusterAction) else request.app
        if context.caller.app and app not in ("", context.caller.app):
            raise RequestRefused(403, f"This token is bound to the application {context.caller.app!r}.")
        data: Any = None
        if isinstance(request, ClusterAction):
            data = await act(context.frontier, request)
        else:
            submitted = await submit_for(context, request)
            if not submitted.created and context.server.maintainer is not None:
                # The crawl may have been reopened.
                context.server.maintainer.check_soon(submitted.id)
        return Json({"status": "SUCCESS", "data": data, "error": None})
    except InvalidInput as error:
        return _failure(str(error), 400)
    except (RequestRefused, ShoalError) as error:
        problem, headers = problem_of(error)
        if problem.status == 500:
            raise
        return _failure(problem.detail, problem.status, headers)


async def _fleet_request(context: RequestContext, request: StatsRequest | DomainUpdate) -> dict[str, Any]:
    if isinstance(request, DomainUpdate):
        context.require_fleet_admin(f"The action {request.action}")
        return await update_domain(context.frontier, request)
    if context.caller.app:
        raise RequestRefused(403, "Statistics of the fleet require a token that is not bound to an application.")
    return await collect_stats(context.frontier, request)


def _failure(message: str, status: int, headers: dict[str, str] | None = None) -> Response:
    return Json({"status": "FAILURE", "data": None, "error": {"message": message}}, status, headers)
