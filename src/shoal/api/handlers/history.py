"""History over HTTP: rates and counts of a crawl and of the fleet, by minute for a day and by hour for 90 days."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from shoal.api.problem_details import Json
from shoal.api.request import RequestContext
from shoal.frontier.history import Growth, Step, growth
from shoal.model.crawl import Crawl


class HistoryView(msgspec.Struct, frozen=True, kw_only=True):
    """Work done in each minute or hour, oldest first. A minute in which nothing was written is missing."""

    step: Annotated[str, Meta(description="`minute` or `hour`.")]
    points: list[Growth]


async def of_fleet(context: RequestContext) -> Response:
    return Json(await read(context, None))


async def of_crawl(context: RequestContext) -> Response:
    return Json(await read(context, await context.crawl()))


async def read(context: RequestContext, crawl: Crawl | None) -> HistoryView:
    step = Step(context.text("step", *Step) or Step.MINUTE)
    return HistoryView(step=step.value, points=growth(await context.frontier.history.read(crawl, step)))
