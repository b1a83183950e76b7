"""Tables of an SQLite file, read back while workers write it. All rows are from one point in time."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from shoal.errors import SinkRefused, UnknownCrawl
from shoal.model.validation import Count
from shoal.sinks.columns import Row
from shoal.sinks.reader import Cursor, ReadRequest, cursor_values, record_of

_LOCK_SECONDS = 30.0
_KEY, _ITEM_KEY = ("url",), ("url", "spider", "number")


def rows(path: Path, request: ReadRequest) -> Iterator[tuple[Cursor, Row]]:
    table, key, type_ = ("items", _ITEM_KEY, tuple[str, str, Count]) if request.items else ("pages", _KEY, tuple[str])
    try:
        # A URI can prevent the creation of a new file. Read-write: a reader of a WAL creates files beside the database,
        # and only a connection that may write removes them again.
        uri = f"file:{quote(str(path))}?mode=rw"
        with contextlib.closing(
            sqlite3.connect(uri, uri=True, timeout=_LOCK_SECONDS, isolation_level=None)
        ) as connection:
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            connection.execute("PRAGMA query_only = 1")
            # All queries below see the same state.
            connection.execute("BEGIN")
            existing = {row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", [table])}
            if not {"crawl", "url"} <= existing:
                raise SinkRefused(f"The file {path} has no table `{table}` of Shoal; name the output of a crawl.")
            columns = request.of_table(existing)
            cursor = key if request.limit else ()
            values: list[Any] = []
            query = f"SELECT {', '.join([*cursor, *columns])} FROM {table}"  # noqa: S608 - names of our own
            if request.crawl is not None:
                _check(connection, path, table, request.crawl)
                query, values = f"{query} WHERE crawl = ?", [request.crawl]
            if request.of_page is not None:
                query, values = f"{query} AND url = ? AND spider = ?", [*values, *request.of_page]
            if request.after is not None:
                query += f" AND ({', '.join(key)}) > ({', '.join('?' * len(key))})"
                values += cursor_values(request.after, type_)
            if request.limit:
                query, values = f"{query} ORDER BY {', '.join(key)} LIMIT ?", [*values, request.limit]
            for row in connection.execute(query, values):
                fields = dict(zip(columns, row[len(cursor) :], strict=True))
                yield row[: len(cursor)], record_of(fields, request.type, f"The row of {fields.get('url')!r:.200}")
    except sqlite3.Error as error:
        raise SinkRefused(f"The file {path} cannot be read as an SQLite output: {error}.") from error


def _check(connection: sqlite3.Connection, path: Path, table: str, crawl: str) -> None:
    """UnknownCrawl if a crawl has no row, with the names of those that have."""
    execute = connection.execute
    if execute(f"SELECT 1 FROM {table} WHERE crawl = ? LIMIT 1", (crawl,)).fetchone() is None:  # noqa: S608
        names = [row[0] for row in execute(f"SELECT DISTINCT crawl FROM {table} LIMIT 5")]  # noqa: S608
        has = f"it has {', '.join(names)}" if names else "it is empty"
        raise UnknownCrawl(f"The file {path} has no page of crawl {crawl!r}; {has}.")
