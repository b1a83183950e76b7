"""Tables of database servers, read back by a server-side cursor, so that only a few rows are in memory.

postgresql_reader.py and mysql_reader.py run the queries. Their sinks connect and explain errors. Missing tables are not
created.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Any

from msgspec import Meta

from shoal.errors import UnknownCrawl
from shoal.model.record import Item
from shoal.model.validation import Count
from shoal.sinks.columns import Row
from shoal.sinks.reader import Cursor, ReadRequest, Values, cursor_values, record_of
from shoal.sinks.sql.server import ServerSink, item_id

# Texts are large: this many rows are in memory at a time.
FETCHED_ROWS = 100
# A row's key: `id`, a hash, and the number of an item.
_Key = tuple[Annotated[str, Meta(pattern="^[0-9a-f]{32}$")], Count]


async def read(
    sink: ServerSink[Any], batches: AsyncGenerator[list[Values], None], request: ReadRequest
) -> AsyncGenerator[list[tuple[Cursor, Row]], None]:
    """The rows that a technology's `batches` selects, as records with their cursors."""
    if request.items and (request.limit or request.of_page) and sink.address.per_spider:
        raise sink.refused("has a table for each spider, which cannot be read by page")
    is_empty = True
    async with contextlib.aclosing(sink.translated(batches)) as translated:
        async for batch in translated:
            is_empty = False
            yield [
                (_cursor(values, request), record_of(values, request.type, f"A row of {sink.shown}"))
                for values in batch
            ]
    if request.crawl is not None and is_empty and request.after is None:
        raise UnknownCrawl(f"The output {sink.shown} has no page of crawl {request.crawl!r}.")


def table_of(sink: ServerSink[Any], request: ReadRequest) -> str:
    return sink.address.items("") if request.items else sink.address.table


def selected_columns(sink: ServerSink[Any], table: str, existing: Sequence[str], request: ReadRequest) -> list[str]:
    if not {"crawl", "url"} <= set(existing):
        raise sink.refused(f"has no table {table} of Shoal; name the output of a crawl")
    return list(dict.fromkeys([*(_key(request) if request.limit else ()), *request.of_table(existing)]))


def condition(request: ReadRequest) -> tuple[str, list[Any]]:
    """The SQL after the name of the table, with a ? for each value, and the values.

    A page is read in the order of the key. There is no index of crawls, so rows of other crawls are skipped.
    """
    clause, values = "", list[Any]()
    if request.crawl is not None:
        clause, values = " WHERE crawl = ?", [request.crawl]
        if request.of_page is not None:
            url, spider = request.of_page
            item = Item(crawl=request.crawl, url=url, spider=spider, number=0, fetched_at=0.0, data={})
            clause, values = f"{clause} AND id = ?", [request.crawl, item_id(item)]
    if request.after is not None:
        key, number = cursor_values(request.after, _Key)
        id_ = bytes.fromhex(key)
        if request.items:
            clause, values = f"{clause} AND id >= ? AND (id > ? OR number > ?)", [*values, id_, id_, number]
        else:
            clause, values = f"{clause} AND id > ?", [*values, id_]
    if request.limit:
        clause += f" ORDER BY {', '.join(_key(request))} LIMIT {request.limit}"
    return clause, values


def _key(request: ReadRequest) -> list[str]:
    return ["id", "number"] if request.items else ["id"]


def _cursor(values: Values, request: ReadRequest) -> Cursor:
    """The cursor of a row. Removes the id, which is not a field of a record."""
    return (values.pop("id").hex(), values.get("number", 0)) if request.limit else ()
