"""Outputs read back: the rows of any technology as records, in batches, also while a crawl writes them.

The inverse of columns.py. An output of an older version of Shoal lacks columns; their values are the defaults. Reading
changes nothing, and does not merge part files.

`read` returns all rows. `page` returns some rows after a cursor: a key of a database, a byte of a file of lines, a row
of a Parquet file. Rows that are written meanwhile move no cursor, so each older row is on exactly one page.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import AsyncGenerator, Collection, Iterator, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from shoal.errors import InvalidInput, SinkRefused, UnknownCrawl
from shoal.model.record import Item, Record
from shoal.settings import masked
from shoal.sinks.columns import COLUMNS, ITEM_COLUMNS, Row
from shoal.sinks.executor import SinkThread
from shoal.sinks.registry import parse_output

Values = dict[str, Any]
# The position of a row, in values that JSON can carry. Its technology knows what they mean.
Cursor = Sequence[Any]

# A batch ends at either: pages differ in size, and a batch must fit into memory.
_BATCH_ROWS, _BATCH_CHARACTERS = 500, 4_000_000
# A page ends here at the latest, however few its rows are.
_PAGE_CHARACTERS = 20_000_000
_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
# Milliseconds are not exact floats. This keeps them unchanged when they are truncated again.
_ROUNDING_SECONDS = 5e-7


class ReadRequest(NamedTuple):
    """Which rows to read."""

    # The crawl whose rows are read; None reads the rows of all crawls.
    crawl: str | None
    # Items instead of pages, where an output has both.
    items: bool
    # The columns to read; () reads all. Others have their default values.
    columns: tuple[str, ...]
    # With a limit, rows come in the order of their cursors, and only those after this one.
    after: Cursor | None = None
    # 0 reads all rows in any order.
    limit: int = 0
    # Only the items of this URL and spider, of a database.
    of_page: tuple[str, str] | None = None

    def of_table(self, existing: Collection[str]) -> list[str]:
        """The columns to select from a table that has these."""
        return [name for name in self.columns or (ITEM_COLUMNS if self.items else COLUMNS) if name in existing]

    @property
    def of_file(self) -> frozenset[str]:
        return frozenset(self.columns or (*COLUMNS, *ITEM_COLUMNS))

    @property
    def type(self) -> type[Row]:
        return Item if self.items else Record


async def read(
    uri: str, *, crawl: str | None = None, columns: Sequence[str] = (), items: bool = False
) -> AsyncGenerator[list[Row], None]:
    """Batches of an output's records, of one crawl or of all. An empty output gives none.

    A caller that stops early must close the generator (`contextlib.aclosing`): a file or a connection is open.

    With `columns`, which must include crawl and url, only these are read: much faster where there are long texts.
    `items` selects the items of a database; a file holds pages or items.
    UnknownCrawl if the output has rows, but none of this crawl.
    """
    request = ReadRequest(crawl, items, tuple(columns))
    async with contextlib.aclosing(_rows(uri, request)) as batches:
        async for rows in batches:
            yield [row for _, row in rows]


async def items_of_page(uri: str, crawl: str, url: str, spider: str) -> list[Item]:
    """The items of one page in a database, found by its index."""
    request = ReadRequest(crawl, True, (), of_page=(url, spider))
    items: list[Item] = []
    with contextlib.suppress(UnknownCrawl):
        async with contextlib.aclosing(_rows(uri, request)) as batches:
            async for rows in batches:
                items += [row for _, row in rows if isinstance(row, Item)]
    return items


async def page(
    uri: str, crawl: str, limit: int, *, after: Cursor | None = None, columns: Sequence[str] = (), items: bool = False
) -> tuple[list[Row], Cursor | None]:
    """At most `limit` records of a crawl after a cursor, and the cursor of the last one; None on the last page.

    InvalidInput if this output does not have the cursor (any more). Otherwise like `read`.
    """
    rows, following = await page_with_cursors(uri, crawl, limit, after=after, columns=columns, items=items)
    return [row for _, row in rows], following


async def page_with_cursors(
    uri: str, crawl: str, limit: int, *, after: Cursor | None = None, columns: Sequence[str] = (), items: bool = False
) -> tuple[list[tuple[Cursor, Row]], Cursor | None]:
    """As `page`, each record with its own cursor: the next page after it starts with the record that follows."""
    records: list[tuple[Cursor, Row]] = []
    last, characters = after, 0
    request = ReadRequest(crawl, items, tuple(columns), after, limit + 1)
    async with contextlib.aclosing(_rows(uri, request)) as batches:
        async for rows in batches:
            for cursor, row in rows:
                if len(records) == limit or characters > _PAGE_CHARACTERS:
                    return records, last
                records.append((cursor, row))
                last = cursor
                characters += _characters(row)
    return records, None


async def _rows(uri: str, request: ReadRequest) -> AsyncGenerator[list[tuple[Cursor, Row]], None]:
    output = parse_output(uri)
    output.check_driver()
    if output.technology.repeats:
        raise SinkRefused(f"The output {masked(uri)} cannot be read back; name a database, JSON lines, CSV or Parquet.")
    async with contextlib.aclosing(output.technology.read(output.address, request)) as batches:
        async for rows in batches:
            yield rows


async def in_batches(
    rows: Iterator[tuple[Cursor, Row]], limit: int = 0
) -> AsyncGenerator[list[tuple[Cursor, Row]], None]:
    """Rows of a blocking iterator, read in a thread."""
    limit = min(limit or _BATCH_ROWS, _BATCH_ROWS)
    thread = SinkThread("reading")
    try:
        while batch := await thread.run(lambda: _batch(rows, limit)):
            yield batch
    finally:
        await thread.end(cast(Any, rows).close)


def cursor_values(cursor: Cursor, type_: Any) -> Any:
    """The values of a cursor, checked: it may come from any client."""
    try:
        return msgspec.convert(cursor, type_)
    except msgspec.ValidationError:
        raise unknown_cursor() from None


def unknown_cursor() -> InvalidInput:
    return InvalidInput("The output does not have this cursor, or no longer has it; omit the cursor to start again.")


def record_of(values: Values, type_: type[Row], description: str) -> Row:
    """The record of a row. `description` names the row in error messages."""
    if values.get("error", "") is None:
        values["error"] = ""
    try:
        if "fetched_at" in values:
            values["fetched_at"] = _seconds(values["fetched_at"])
        for name in ("redirects", "data"):
            if isinstance(values.get(name), str | bytes):
                values[name] = msgspec.json.decode(values[name])
    except msgspec.DecodeError as error:
        raise SinkRefused(f"The row of {values.get('url')!r:.200} has invalid JSON in {name}: {error}.") from None
    except (ValueError, TypeError, OverflowError) as error:
        raise SinkRefused(f"{description} has an invalid fetched_at: {error}.") from None
    if type_ is Item:
        values = {"spider": "", "number": 0, "fetched_at": 0.0, "data": {}} | values
    try:
        # Not strict: CSV has only text, SQLite no booleans.
        return msgspec.convert(values, type_, strict=False)
    except msgspec.ValidationError as error:
        raise SinkRefused(f"{description} is not a record of Shoal: {error}.") from None


def _seconds(fetched_at: object) -> float:
    if not fetched_at:
        return 0.0
    if isinstance(fetched_at, datetime.datetime):
        fetched_time = fetched_at
    else:
        fetched_time = datetime.datetime.fromisoformat(str(fetched_at))
    if fetched_time.tzinfo is None:
        fetched_time = fetched_time.replace(tzinfo=datetime.UTC)
    return (fetched_time - _EPOCH).total_seconds() + _ROUNDING_SECONDS


def _batch(rows: Iterator[tuple[Cursor, Row]], limit: int) -> list[tuple[Cursor, Row]]:
    batch: list[tuple[Cursor, Row]] = []
    characters = 0
    for cursor, row in rows:
        batch.append((cursor, row))
        characters += _characters(row)
        if len(batch) == limit or characters >= _BATCH_CHARACTERS:
            break
    return batch


def _characters(row: Row) -> int:
    return len(row.text) if isinstance(row, Record) else 0
