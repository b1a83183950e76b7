"""Tables of an SQLite file, read while others write it: the state of one moment."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from shoal.errors import SinkRefused, UnknownCrawl
from shoal.sinks.columns import Row
from shoal.sinks.reader import Count, Place, ReadRequest, place_of, record_of

_LOCK_SECONDS = 30.0
_KEY, _ITEM_KEY = ("url",), ("url", "spider", "number")


def rows(path: Path, wanted: ReadRequest) -> Iterator[tuple[Place, Row]]:
    table, key, type_ = ("items", _ITEM_KEY, tuple[str, str, Count]) if wanted.items else ("pages", _KEY, tuple[str])
    try:
        # By its URI, since only so can it be opened without the right to make a new one. Whoever reads a log must make
        # the files beside the database, and only who may write takes them away again when nobody else is there.
        uri = f"file:{quote(str(path))}?mode=rw"
        with contextlib.closing(
            sqlite3.connect(uri, uri=True, timeout=_LOCK_SECONDS, isolation_level=None)
        ) as connection:
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            connection.execute("PRAGMA query_only = 1")
            # One moment for everything that follows.
            connection.execute("BEGIN")
            found = {row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", [table])}
            if not {"crawl", "url"} <= found:
                raise SinkRefused(f"The file {path} has no table `{table}` of Shoal's; name the output of a crawl.")
            columns = wanted.of_table(found)
            place = key if wanted.most else ()
            given: list[Any] = []
            query = f"SELECT {', '.join([*place, *columns])} FROM {table}"  # noqa: S608 - names of our own
            if wanted.crawl is not None:
                _check(connection, path, table, wanted.crawl)
                query, given = f"{query} WHERE crawl = ?", [wanted.crawl]
            if wanted.behind is not None:
                query += f" AND ({', '.join(key)}) > ({', '.join('?' * len(key))})"
                given += place_of(wanted.behind, type_)
            if wanted.most:
                query, given = f"{query} ORDER BY {', '.join(key)} LIMIT ?", [*given, wanted.most]
            for row in connection.execute(query, given):
                values = dict(zip(columns, row[len(place) :], strict=True))
                yield row[: len(place)], record_of(values, wanted.type, f"The row of {values.get('url')!r:.200}")
    except sqlite3.Error as error:
        raise SinkRefused(f"The file {path} cannot be read as an SQLite output: {error}.") from error


def _check(connection: sqlite3.Connection, path: Path, table: str, crawl: str) -> None:
    """Refuse a crawl that has no row, and say which ones have."""
    ask = connection.execute
    if ask(f"SELECT 1 FROM {table} WHERE crawl = ? LIMIT 1", (crawl,)).fetchone() is None:  # noqa: S608
        names = [row[0] for row in ask(f"SELECT DISTINCT crawl FROM {table} LIMIT 5")]  # noqa: S608
        has = f"it has {', '.join(names)}" if names else "it is empty"
        raise UnknownCrawl(f"The file {path} has no page of crawl {crawl!r}; {has}.")
