"""Records of a crawl over HTTP, page by page, from its first output that this server can read."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from shoal.api.pagination import MAX_PAGE_SIZE, make_cursor
from shoal.api.problem_details import Json
from shoal.api.request import RequestContext
from shoal.errors import InvalidInput, SinkRefused, UnknownCrawl
from shoal.model.crawl import Crawl
from shoal.model.record import Item, Record
from shoal.sinks.columns import Row
from shoal.sinks.reader import Cursor, page

_FIELDS = frozenset((*Record.__struct_fields__, *Item.__struct_fields__))
_ITEM_FIELDS = frozenset(Item.__struct_fields__) - frozenset(Record.__struct_fields__)
# The number of the crawl's output, and the position in it.
_Position = tuple[Annotated[int, Meta(ge=0)], list[Any]]


class RecordPage(msgspec.Struct, frozen=True, kw_only=True):
    """Records as they are in the output, with the crawl's attributes."""

    crawl: str
    records: list[dict[str, Any]]
    next: Annotated[str | None, Meta(description="Cursor of the next page; null on the last page.")] = None


async def listing(context: RequestContext) -> Response:
    crawl = await context.crawl()
    limit = context.integer("limit", 100, MAX_PAGE_SIZE)
    kind = context.text("kind", "page", "item") or "page"
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
        rows: list[Row] = []
        last: Cursor | None = None
        try:
            rows, last = await page(uri, crawl.id, limit, after=after, columns=columns, items=kind == "item")
        except UnknownCrawl:
            pass
        except (SinkRefused, InvalidInput) as error:
            if after is not None:
                raise
            # Another output may be readable.
            refused = error
            continue
        records = [_record(row, crawl, fields) for row in rows]
        following = make_cursor((number, last), *of) if last is not None else None
        return Json(RecordPage(crawl=crawl.id, records=records, next=following))
    raise refused


def _record(row: Row, crawl: Crawl, fields: list[str]) -> dict[str, Any]:
    record: dict[str, Any] = msgspec.to_builtins(row)
    if fields:
        record = {name: record[name] for name in fields if name in record}
    attributes = crawl.spec.get("attributes") or {}
    return {**record, "attributes": attributes} if attributes else record
