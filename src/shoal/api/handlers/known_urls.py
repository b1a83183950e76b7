"""URLs that a crawl has seen, over HTTP: forget them, or visit them again now. shoal.operations does the work."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from shoal.api.problem_details import Json
from shoal.api.request import RequestContext
from shoal.operations import known_urls
from shoal.operations.submit import MAX_REQUEST_BYTES


class ChosenUrls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """URLs that a crawl has seen."""

    urls: Annotated[tuple[str, ...], Meta(min_length=1, max_length=known_urls.MAX_URLS)]


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """How many URLs the crawl has forgotten."""

    forgotten: Annotated[int, Meta(description="URLs that were known and are now forgotten.")]


class Revisits(msgspec.Struct, frozen=True, kw_only=True):
    """How many URLs are visited again."""

    queued: Annotated[int, Meta(description="URLs that are visited as soon as their hosts allow it.")]


async def forget(context: RequestContext) -> Response:
    crawl = await context.crawl()
    body: ChosenUrls = await context.json(ChosenUrls, MAX_REQUEST_BYTES)
    return Json(Forgotten(forgotten=await known_urls.forget(context.frontier, crawl, body.urls)))


async def revisit(context: RequestContext) -> Response:
    crawl = await context.crawl()
    body: ChosenUrls = await context.json(ChosenUrls, MAX_REQUEST_BYTES)
    outputs = context.server.settings.outputs
    count = await known_urls.revisit(context.frontier, crawl, body.urls, named=outputs)
    if context.server.maintainer is not None:
        context.server.maintainer.check_soon(crawl.id)
    return Json(Revisits(queued=count))
