"""Records of a crawl over HTTP, page by page, from its first output that this server can read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response, StreamingResponse

from shoal.api.pagination import MAX_PAGE_SIZE, make_cursor
from shoal.api.request import RequestContext
from shoal.errors import InvalidInput, SinkRefused, UnknownCrawl
from shoal.model.crawl import Crawl
from shoal.model.record import Item, Record
from shoal.sinks.columns import Row
from shoal.sinks.reader import Cursor, page

KINDS = ("page", "item")
_FIELDS = frozenset((*Record.__struct_fields__, *Item.__struct_fields__))
_ITEM_FIELDS = frozenset(Item.__struct_fields__) - frozenset(Record.__struct_fields__)
# The number of the crawl's output, and the position in it.
_Position = tuple[Annotated[int, Meta(ge=0)], list[Any]]


# Records in memory at a time.
_BATCH_SIZE = 50


class RecordPage(msgspec.Struct, frozen=True, kw_only=True):
    """Records as they are in the output, with the crawl's attributes."""

    crawl: str
    records: list[dict[str, Any]]
    next: Annotated[str | None, Meta(description="Cursor of the next page; null on the last page.")] = None


async def listing(context: RequestContext) -> Response:
    crawl = await context.crawl()
    limit = context.integer("limit", 100, MAX_PAGE_SIZE)
    kind = context.text("kind", *KINDS) or "page"
    fields = [name for name in context.text("fields").split(",") if name]
    if unknown := [name for name in fields if name not in _FIELDS]:
        raise InvalidInput(f"Unknown field {unknown[0]!r:.80}; the fields are {', '.join(sorted(_FIELDS))}.")
    of = ("records", crawl.id, kind)
    first, after = context.cursor(_Position, *of) or (0, None)
    # A file contains pages and items; only items have `data`.
    required = ["data"] if _ITEM_FIELDS.intersection(fields) else []
    columns = list(dict.fromkeys(["crawl", "url", *required, *fields])) if fields else []
    refused: Exception = InvalidInput(f"Crawl {crawl.id!r} has no output, so it has no records.")
    for number, output in enumerate(crawl.spec.get("outputs", ())):
        if number < first:
            continue
        uri = context.server.settings.outputs.get(output, output)

        async def read(count: int, after: Cursor | None, uri: str = uri) -> tuple[list[Row], Cursor | None]:
            try:
                return await page(uri, crawl.id, count, after=after, columns=columns, items=kind == "item")
            except UnknownCrawl:
                return [], None

        try:
            rows, last = await read(min(limit, _BATCH_SIZE), after)
        except (SinkRefused, InvalidInput) as error:
            if after is not None:
                raise
            # Another output may be readable.
            refused = error
            continue
        return StreamingResponse(
            _stream(crawl, fields, rows, last, limit, read, partial(_to_cursor, number, of)),
            media_type="application/json",
        )
    raise refused


def _to_cursor(number: int, of: tuple[str, ...], last: Cursor) -> str:
    return make_cursor((number, last), *of)


async def _stream(
    crawl: Crawl, fields: list[str], rows: list[Row], last: Cursor | None, limit: int,
    read: Callable[[int, Cursor | None], Awaitable[tuple[list[Row], Cursor | None]]],
    to_cursor: Callable[[Cursor], str],
) -> AsyncIterator[bytes]:  # fmt: skip
    """A RecordPage, batch by batch: a whole page of long records need not fit into memory."""
    attributes = crawl.spec.get("attributes") or {}
    yield b'{"crawl":' + msgspec.json.encode(crawl.id) + b',"records":['
    count = 0
    while True:
        records = [_record(row, attributes, fields) for row in rows]
        if records:
            yield (b"," if count else b"") + b",".join(map(msgspec.json.encode, records))
        count += len(rows)
        if last is None or count >= limit:
            break
        rows, last = await read(min(limit - count, _BATCH_SIZE), last)
    yield b'],"next":' + msgspec.json.encode(None if last is None else to_cursor(last)) + b"}"


def _record(row: Row, attributes: dict[str, Any], fields: list[str]) -> dict[str, Any]:
    record: dict[str, Any] = msgspec.to_builtins(row)
    if fields:
        record = {name: record[name] for name in fields if name in record}
    return {**record, "attributes": attributes} if attributes else record
