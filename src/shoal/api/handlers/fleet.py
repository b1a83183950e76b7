"""The fleet over HTTP: workers, totals, metrics, liveness and readiness checks, the OpenAPI document."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from shoal.api.fleet_stats import FleetStats, WorkerView, list_workers, read_stats
from shoal.api.metrics import MEDIA_TYPE, render
from shoal.api.pagination import MAX_PAGE_SIZE, make_cursor
from shoal.api.problem_details import Json
from shoal.api.request import RequestContext
from shoal.errors import ShoalError
from shoal.frontier.inspect import store_seconds
from shoal.version import __version__

_READY_SECONDS = 2.0


class WorkerPage(msgspec.Struct, frozen=True, kw_only=True):
    """Live workers by name."""

    workers: list[WorkerView]
    next: Annotated[str | None, Meta(description="Cursor of the next page; null on the last page.")] = None


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """The server, and paths to start from."""

    name: str = "Shoal HTTP API"
    version: str = __version__
    description: str = "/openapi.json"
    crawls: str = "/v1/crawls"
    health: str = "/healthz"
    metrics: str = "/metrics"


async def index(context: RequestContext) -> Response:
    return Json(Index())


async def health(context: RequestContext) -> Response:
    return Json({"alive": True})


async def workers(context: RequestContext) -> Response:
    limit = context.integer("limit", MAX_PAGE_SIZE, MAX_PAGE_SIZE)
    after: str = context.cursor(str, "workers") or ""
    remaining = [worker for worker in await list_workers(context.frontier) if worker.name > after]
    following = make_cursor(remaining[limit - 1].name, "workers") if len(remaining) > limit else None
    return Json(WorkerPage(workers=remaining[:limit], next=following))


async def stats(context: RequestContext) -> Response:
    return Json(await _stats(context))


async def metrics(context: RequestContext) -> Response:
    stats = await _stats(context)
    infos = await context.frontier.workers.alive()
    return Response(
        render(stats, infos, context.server.streams.total(), context.server.totals.with_deleted), media_type=MEDIA_TYPE
    )


async def ready(context: RequestContext) -> Response:
    """Whether the store responds within two seconds."""
    try:
        async with asyncio.timeout(_READY_SECONDS):
            await store_seconds(context.frontier)
    except (ShoalError, TimeoutError):
        return Json({"ready": False}, 503)
    return Json({"ready": True})


async def description(context: RequestContext) -> Response:
    return Json(context.server.description)


async def _stats(context: RequestContext) -> FleetStats:
    settings = context.server.settings
    return await read_stats(
        context.frontier, context.server.totals, lease_seconds=settings.frontier.lease_seconds,
        hosts_per_worker=settings.worker.hosts,
    )  # fmt: skip
