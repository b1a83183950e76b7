"""The fleet over HTTP: workers, totals, metrics, and whether the server lives and is ready."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.responses import Response

from shoal.api.fleet_stats import FleetStats, WorkerView, list_workers, read_stats
from shoal.api.metrics import MEDIA_TYPE, render
from shoal.api.pagination import MOST_A_PAGE, cursor_of
from shoal.api.problem_details import Json
from shoal.api.request import RequestContext
from shoal.errors import ShoalError
from shoal.frontier.inspect import store_seconds

_READY_SECONDS = 2.0


class WorkerPage(msgspec.Struct, frozen=True, kw_only=True):
    """By name. `next` is the cursor of the next page, null on the last one."""

    workers: list[WorkerView]
    next: str | None = None


async def health(asked: RequestContext) -> Response:
    return Json({"alive": True})


async def workers(asked: RequestContext) -> Response:
    most = asked.whole("limit", MOST_A_PAGE, MOST_A_PAGE)
    behind: str = asked.cursor(str, "workers") or ""
    left = [worker for worker in await list_workers(asked.frontier) if worker.name > behind]
    following = cursor_of(left[most - 1].name, "workers") if len(left) > most else None
    return Json(WorkerPage(workers=left[:most], next=following))


async def stats(asked: RequestContext) -> Response:
    return Json(await _stats(asked))


async def metrics(asked: RequestContext) -> Response:
    stats = await _stats(asked)
    infos = await asked.frontier.workers.alive()
    return Response(render(stats, infos, asked.server.streams, asked.server.totals.ended), media_type=MEDIA_TYPE)


async def ready(asked: RequestContext) -> Response:
    """The store answers, in time."""
    try:
        async with asyncio.timeout(_READY_SECONDS):
            await store_seconds(asked.frontier)
    except (ShoalError, TimeoutError):
        return Json({"ready": False}, 503)
    return Json({"ready": True})


async def description(asked: RequestContext) -> Response:
    return Json(asked.server.description)


async def _stats(asked: RequestContext) -> FleetStats:
    return await read_stats(asked.frontier, asked.server.totals, asked.server.settings.frontier.lease_seconds)
