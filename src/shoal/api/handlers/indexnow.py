"""IndexNow over HTTP: no token, because any site may report its pages; a key on the site proves who sends them."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from shoal.api.middleware import now
from shoal.api.problem_details import RequestRefused
from shoal.api.request import RequestContext
from shoal.operations.indexnow import MAX_URLS, Refused
from shoal.operations.submit import MAX_REQUEST_BYTES
from shoal.urls.canonical import MAX_URL_BYTES


class IndexNowReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Pages of one host that were added, changed or deleted, as indexnow.org describes it."""

    host: Annotated[str, Meta(max_length=260)]
    key: Annotated[str, Meta(max_length=1000)]
    url_list: Annotated[tuple[str, ...], Meta(min_length=1, max_length=MAX_URLS)]
    key_location: Annotated[str, Meta(max_length=MAX_URL_BYTES)] = ""


async def report(context: RequestContext) -> Response:
    _check_rate(context)
    try:
        sent = msgspec.json.decode(await context.body(MAX_REQUEST_BYTES), type=IndexNowReport)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RequestRefused(400, f"Invalid body: {error}.") from None
    return await _report(context, list(sent.url_list), sent.key, sent.host, sent.key_location)


async def report_one(context: RequestContext) -> Response:
    _check_rate(context)
    values = context.request.query_params
    url, key, location = (values.get(name, "") for name in ("url", "key", "keyLocation"))
    if not url or not key or len(url) + len(key) + len(location) > 3 * MAX_URL_BYTES:
        raise RequestRefused(400, "Send the parameters url and key.")
    return await _report(context, [url], key, "", location)


async def _report(context: RequestContext, urls: list[str], key: str, host: str, location: str) -> Response:
    try:
        covered = await context.server.indexnow.accept(urls, key, host=host, location=location)
    except Refused as refused:
        headers = {"Retry-After": str(refused.retry_after_seconds)} if refused.retry_after_seconds else {}
        raise RequestRefused(refused.status, str(refused), headers=headers) from None
    # The key of a host that no crawl covers is not checked.
    return Response(status_code=200 if covered else 202)


def _check_rate(context: RequestContext) -> None:
    server, client = context.server, context.request.client
    if not server.indexnow.names:
        raise RequestRefused(404, "IndexNow is off: set api.indexnow to the crawls that take reports.")
    if seconds := server.indexnow_rates.wait_seconds(client.host if client else "", now()):
        raise RequestRefused(429, "Too many requests; retry later.", headers={"Retry-After": str(math.ceil(seconds))})
