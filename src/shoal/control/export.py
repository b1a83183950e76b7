"""Rows of an SQLite output as JSON lines or CSV: the same lines that those outputs would have had, one row at a time.

Reads only. A crawl may write the file meanwhile: what is exported is its state of one moment.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from shoal.errors import InvalidInput, SinkRefused, UnknownCrawl
from shoal.model.record import Record

COLUMNS: tuple[str, ...] = Record.__struct_fields__
# What spreadsheets begin a formula with, also in full width. Text that has apostrophes before such a character gets
# one more, so that taking one away gives back what the page said.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
_REDIRECTS, _ROBOTS_IGNORED = COLUMNS.index("redirects"), COLUMNS.index("robots_ignored")
# What a file of an older Shoal says of a column that it does not have.
_ABSENT = {"error": "NULL", "fetched_at": "NULL", "redirects": "'[]'", "found": "'link'", "attempt": "1"}
_LOCK_SECONDS = 30.0

Line = Callable[[tuple[Any, ...]], bytes]


class Pages:
    """The table `pages` of one file. Close it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.is_file():
            raise InvalidInput(f"There is no file {path} to export; name the SQLite output of a crawl.")
        try:
            # By its URI, since only so can it be opened without the right to make a new one.
            uri = f"file:{quote(str(path.absolute()))}?mode=ro"
            self._connection = sqlite3.connect(uri, uri=True, timeout=_LOCK_SECONDS, isolation_level=None)
        except sqlite3.Error as error:
            raise self._refused(error) from error
        self._connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        try:
            with self._translated():
                # One moment for everything that follows.
                self._connection.execute("BEGIN")
                found = {row[0] for row in self._connection.execute("SELECT name FROM pragma_table_info('pages')")}
            if not {"crawl", "url"} <= found:
                raise SinkRefused(f"The file {path} has no table `pages` of Shoal's; name the output of a crawl.")
        except BaseException:
            self.close()
            raise
        self._columns = ", ".join(name if name in found else _absent(name) for name in COLUMNS)

    def check(self, crawl: str) -> None:
        """Refuse a crawl that has no row, and say which ones have."""
        ask = self._connection.execute
        with self._translated():
            if ask("SELECT 1 FROM pages WHERE crawl = ? LIMIT 1", (crawl,)).fetchone() is None:
                names = [row[0] for row in ask("SELECT DISTINCT crawl FROM pages LIMIT 5")]
                has = f"it has {', '.join(names)}" if names else "it is empty"
                raise UnknownCrawl(f"The file {self._path} has no page of crawl {crawl!r}; {has}.")

    def rows(self, crawl: str | None) -> Iterator[tuple[Any, ...]]:
        """Every row, as a tuple in the order of COLUMNS."""
        chosen, given = ("", ()) if crawl is None else (" WHERE crawl = ?", (crawl,))
        with self._translated():
            yield from self._connection.execute(f"SELECT {self._columns} FROM pages{chosen}", given)  # noqa: S608

    def close(self) -> None:
        self._connection.close()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._refused(error) from error

    def _refused(self, error: sqlite3.Error) -> SinkRefused:
        return SinkRefused(f"The file {self._path} cannot be read as an SQLite output: {error}.")


def lines_of(kind: str) -> tuple[bytes, Line]:
    """What a file of this kind, jsonl or csv, begins with, and how a row becomes a line of it."""
    return (b"", _json_line) if kind == "jsonl" else (",".join(COLUMNS).encode() + b"\r\n", _csv_line)


def _json_line(row: tuple[Any, ...]) -> bytes:
    values = dict(zip(COLUMNS, row, strict=True))
    try:
        values["redirects"] = msgspec.json.decode(values["redirects"])
    except (msgspec.DecodeError, TypeError) as error:
        raise SinkRefused(f"The row of {values['url']!r} has redirects that are not JSON: {error}.") from error
    values["robots_ignored"] = bool(values["robots_ignored"])
    return msgspec.json.encode(values) + b"\n"


def _csv_line(row: tuple[Any, ...]) -> bytes:
    values = list(row)
    values[_ROBOTS_IGNORED] = "true" if row[_ROBOTS_IGNORED] else "false"
    line = io.StringIO()
    csv.writer(line).writerow([_harmless(value) if isinstance(value, str) else value for value in values])
    return line.getvalue().encode()


def _harmless(text: str) -> str:
    return "'" + text if _FORMULA.match(text) else text


def _absent(name: str) -> str:
    default = msgspec.structs.fields(Record)[COLUMNS.index(name)].default
    return _ABSENT.get(name) or ("''" if isinstance(default, str) else "0")
