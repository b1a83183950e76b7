"""Crawls over HTTP: made, listed, looked at, steered, deleted.

Owns what an answer about crawls looks like. Everything that is done is done by shoal.operations and the frontier.
Headers, cookies, log-ins and passwords of outputs go in and never come out.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response, StreamingResponse

from shoal.api.auth import Role
from shoal.api.pagination import MOST_A_PAGE, cursor_of
from shoal.api.problem_details import Json, RequestRefused, problem
from shoal.api.request import RequestContext
from shoal.errors import InvalidInput, ShoalError
from shoal.frontier.failures import FailureCursor
from shoal.frontier.inspect import list_crawls
from shoal.model.crawl import Counts, Crawl, CrawlKind, State
from shoal.model.visit import Visit
from shoal.operations import crawls as deleting
from shoal.operations.describe import describe
from shoal.operations.scrapy_cluster import Action, act, app_of
from shoal.operations.start import check_takes_seeds, seed_url
from shoal.operations.submit import (
    MAX_REQUEST_BYTES,
    MAX_SEEDS,
    CrawlRequest,
    Submitted,
    parse,
    submit,
    with_output,
)
from shoal.sinks import is_local, is_name
from shoal.sinks.bodies import are_local

MOST_FAILED = 10_000
_LOOKED_AT = 2000
_EVENT_SECONDS, _ALIVE_SECONDS = 1.0, 15.0
_MOST_STREAMS = 200


class CrawlSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl in a list. Times are seconds since 1970, 0 = not yet."""

    id: str
    app: str
    state: str
    why: str
    priority: int
    created_at: float
    ended_at: float
    counts: Counts


class CrawlPage(msgspec.Struct, frozen=True, kw_only=True):
    """Crawls, the newest first. `next` is the cursor of the next page, null on the last one."""

    crawls: list[CrawlSummary]
    next: str | None = None


class NewSeeds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """More URLs for a crawl that is open."""

    seeds: Annotated[tuple[str, ...], Meta(min_length=1, max_length=MAX_SEEDS)]


class AddedSeeds(msgspec.Struct, frozen=True, kw_only=True):
    """How many URLs were new to the crawl, how many it knew, and how many its limits or a block refused."""

    new: int
    known: int
    refused: int


class FailedUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A URL that failed after its last try."""

    url: str
    reason: str
    depth: int
    attempt: int


class FailedUrlPage(msgspec.Struct, frozen=True, kw_only=True):
    """URLs that failed, the oldest first in each shard. `next` is the cursor of the next page, null on the last one."""

    failed: list[FailedUrl]
    next: str | None = None


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """How many URLs wait again."""

    retried: int


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The state that a crawl has now."""

    id: str
    state: str


async def create(asked: RequestContext) -> Response:
    request = parse(await asked.body(MAX_REQUEST_BYTES))
    if not isinstance(request, CrawlRequest):
        raise InvalidInput("This is an action of Scrapy Cluster: send it to /feed.")
    done = await submit_for(asked, request)
    return Json(done, 201 if done.created else 200, {"Location": f"/v1/crawls/{done.id}"})


async def submit_for(asked: RequestContext, request: CrawlRequest) -> Submitted:
    """Hand a crawl over in the name of who asks, who may not ask for everything."""
    caller = asked.caller
    if caller.app:
        if request.app not in ("", caller.app):
            raise RequestRefused(403, f"This token is bound to the application {caller.app!r}.")
        request = msgspec.structs.replace(request, app=caller.app)
    if request.ignore_robots:
        asked.must_be(Role.ADMIN, "ignore_robots")
    machine = ""
    named = asked.server.settings.outputs
    for output in request.outputs:
        if not is_name(output):
            # Which files and servers the workers write to is for whoever runs them to say.
            asked.must_be(Role.ADMIN, "An output that is not the name of one in [outputs]")
            machine = machine or (platform.node() if is_local(output) else "")
    if request.files:
        asked.must_be(Role.ADMIN, "files")
        machine = machine or (platform.node() if are_local(request.files) else "")
    request = with_output(request, named, as_in='"outputs": ["NAME"] in the request')
    return await submit(asked.frontier, request, machine=machine)


async def listing(asked: RequestContext) -> Response:
    most = asked.whole("limit", 50, MOST_A_PAGE)
    state = asked.text("state", *(one.value for one in State if one is not State.DELETED))
    app = asked.caller.app or asked.text("app")
    after: tuple[float, str] | None = asked.cursor(tuple[float, str], "crawls", state, app)
    found: list[CrawlSummary] = []
    looked = 0
    last: tuple[float, str] = (0.0, "")
    async for at, crawl in list_crawls(asked.frontier, after):
        looked += 1
        last = (at, crawl.id)
        wanted = crawl.state is not State.DELETED and crawl.kind is not CrawlKind.BRANCH
        if wanted and (not state or crawl.state.value == state) and (not app or crawl.spec.get("app", "") == app):
            found.append(await _brief(asked, crawl))
        # A filter that nothing passes ends, too: the rest is on the next page.
        if len(found) == most or looked == _LOOKED_AT:
            return Json(CrawlPage(crawls=found, next=cursor_of(last, "crawls", state, app)))
    return Json(CrawlPage(crawls=found))


async def _brief(asked: RequestContext, crawl: Crawl) -> CrawlSummary:
    return CrawlSummary(
        id=crawl.id, app=str(crawl.spec.get("app", "")), state=crawl.state.value, why=crawl.why,
        priority=crawl.limits.priority, created_at=crawl.created_at, ended_at=crawl.ended_at,
        counts=await asked.frontier.crawls.count(crawl.id),
    )  # fmt: skip


async def show(asked: RequestContext) -> Response:
    return Json(await describe(asked.frontier, await asked.crawl()))


async def pause(asked: RequestContext) -> Response:
    return await _steer(asked, "pause")


async def resume(asked: RequestContext) -> Response:
    return await _steer(asked, "resume")


async def stop(asked: RequestContext) -> Response:
    return await _steer(asked, "stop")


async def _steer(asked: RequestContext, verb: str) -> Response:
    crawl = await asked.crawl()
    crawl = await getattr(asked.frontier.crawls, verb)(crawl.id)
    return Json(Change(id=crawl.id, state=crawl.state.value))


async def delete(asked: RequestContext) -> Response:
    crawl = await asked.crawl()
    await deleting.delete(asked.frontier, crawl.id)
    return Response(status_code=204)


async def add_seeds(asked: RequestContext) -> Response:
    crawl = await asked.crawl()
    check_takes_seeds(crawl)
    given: NewSeeds = await asked.json(NewSeeds, MAX_REQUEST_BYTES)
    urls = dict.fromkeys(seed_url(seed) for seed in given.seeds)
    added = await asked.frontier.add(crawl.id, [Visit(url=url, found="seed") for url in urls])
    return Json(AddedSeeds(new=added.new, known=added.seen, refused=len(urls) - added.new - added.seen))


async def failed(asked: RequestContext) -> Response:
    crawl = await asked.crawl()
    most = asked.whole("limit", 100, MOST_FAILED)
    behind = asked.cursor(FailureCursor, "failed", crawl.id)
    found, last = await asked.frontier.crawls.failed_page(crawl.id, most, behind)
    told = [
        FailedUrl(url=visit.url, reason=reason, depth=visit.depth, attempt=visit.retries + 1) for visit, reason in found
    ]
    return Json(FailedUrlPage(failed=told, next=cursor_of(last, "failed", crawl.id) if last else None))


async def retry(asked: RequestContext) -> Response:
    crawl = await asked.crawl()
    count = await asked.frontier.crawls.retry(crawl.id)
    if asked.server.tender is not None:
        asked.server.tender.look_soon(crawl.id)
    return Json(Retried(retried=count))


async def events(asked: RequestContext) -> Response:
    """Server-sent events: `counts` whenever they change, `end` when the crawl has ended."""
    crawl = await asked.crawl()
    if asked.server.streams >= _MOST_STREAMS:
        raise RequestRefused(503, "Too many are watching already.")
    return StreamingResponse(_stream(asked, crawl.id), media_type="text/event-stream")


async def _stream(asked: RequestContext, crawl_id: str) -> AsyncIterator[bytes]:
    server = asked.server
    server.streams += 1
    last, silent = b"", 0.0
    try:
        while not server.stopping.is_set():
            try:
                crawl = await asked.frontier.crawls.get(crawl_id)
                told = msgspec.json.encode(await _brief(asked, crawl))
            except ShoalError as error:
                yield _event("trouble", msgspec.json.encode({"detail": str(error)}))
                return
            if told != last or silent >= _ALIVE_SECONDS:
                yield _event("counts", told)
                last, silent = told, 0.0
            if not crawl.state.open:
                yield _event("end", told)
                return
            try:
                await asyncio.wait_for(server.stopping.wait(), _EVENT_SECONDS)
            except TimeoutError:
                silent += _EVENT_SECONDS
    finally:
        server.streams -= 1


def _event(name: str, data: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


async def feed(asked: RequestContext) -> Response:
    """Scrapy Cluster's own door: its requests and its actions, answered in its shape."""
    try:
        request = parse(await asked.body(MAX_REQUEST_BYTES))
        app = app_of(request.appid) if isinstance(request, Action) else request.app
        if asked.caller.app and app not in ("", asked.caller.app):
            raise RequestRefused(403, f"This token is bound to the application {asked.caller.app!r}.")
        data: Any = None
        if isinstance(request, Action):
            data = await act(asked.frontier, request)
        else:
            done = await submit_for(asked, request)
            if not done.created and asked.server.tender is not None:
                # It may have been opened again.
                asked.server.tender.look_soon(done.id)
        return Json({"status": "SUCCESS", "data": data, "error": None})
    except InvalidInput as error:
        return _failure(str(error), 400)
    except (RequestRefused, ShoalError) as error:
        told, headers = problem(error)
        if told.status == 500:
            raise
        return _failure(told.detail, told.status, headers)


def _failure(message: str, status: int, headers: dict[str, str] | None = None) -> Response:
    return Json({"status": "FAILURE", "data": None, "error": {"message": message}}, status, headers)
