"""Outputs, read: the rows of any of them as records again, streamed, whatever is written meanwhile.

Owns the way back from what row.py shows. A file or table of an older Shoal lacks columns: their values are the
defaults. Reads only: nothing is made, and nothing is gathered.
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import gzip
import importlib
import io
import re
import sqlite3
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast
from urllib.parse import quote

import msgspec

from shoal.errors import InvalidInput, SinkRefused, UnknownCrawl
from shoal.model.record import Item, Record
from shoal.sinks import _check_driver, _parsed
from shoal.sinks.packing import ZSTD_MODULE
from shoal.sinks.row import COLUMNS, ITEM_COLUMNS, Row
from shoal.sinks.thread import OwnThread

Values = dict[str, Any]

# A batch ends at either: pages differ in size, and memory is to stay small.
_MOST_ROWS, _MOST_CHARACTERS = 500, 4_000_000
_LOCK_SECONDS = 30.0
# What csv.py does to such cells.
_DEFUSED = re.compile(r"'+[=+\-@\t\r\n＝＋－＠]")
_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
# Milliseconds are no exact floats: a little more keeps them what they are when they are cut off again.
_LITTLE = 5e-7


class Wanted(NamedTuple):
    """Which rows: those of one crawl or of all (None), pages or items of a database, and which columns (() all)."""

    crawl: str | None
    items: bool
    columns: tuple[str, ...]

    def of_table(self, found: Collection[str]) -> list[str]:
        """What to ask a table for that has these columns."""
        return [name for name in self.columns or (ITEM_COLUMNS if self.items else COLUMNS) if name in found]

    @property
    def of_file(self) -> frozenset[str]:
        return frozenset(self.columns or (*COLUMNS, *ITEM_COLUMNS))

    @property
    def type(self) -> type[Row]:
        return Item if self.items else Record


async def read(
    uri: str, *, crawl: str | None = None, columns: Sequence[str] = (), items: bool = False
) -> AsyncGenerator[list[Row], None]:
    """Batches of the records an output has, of one crawl or of all. An output without any gives nothing.

    Whoever stops early closes it (`contextlib.aclosing`): a file or a connection is open.

    With `columns`, which must have crawl and url, only those are read and the others are their defaults: far faster
    where there are texts. `items` asks for those of a database; what a file has is what it has.
    UnknownCrawl when the output has rows, but none of this crawl.
    """
    kind, where = _parsed(uri)
    _check_driver(kind, where)
    wanted = Wanted(crawl, items, tuple(columns))
    if isinstance(where, str):
        module = importlib.import_module("shoal.sinks.reading_servers")
        async with contextlib.aclosing(module.read(kind.scheme, where, wanted)) as batches:
            async for rows in batches:
                yield rows
        return
    open_: Callable[[Path, Wanted], Iterator[Row]] | None = _FILES.get(kind.scheme)
    if open_ is None:
        raise SinkRefused(f"The output {uri} cannot be read back; name a database, JSON lines, CSV or Parquet.")
    if not where.exists():
        raise InvalidInput(f"There is no output {where} to read.")
    rows_of = open_(where, wanted)
    thread = OwnThread("reading")
    try:
        while batch := await thread.run(lambda: _batch(rows_of)):
            yield batch
    finally:
        await thread.end(cast(Any, rows_of).close)


def record_of(values: Values, type_: type[Row], where: str) -> Row:
    """A row as the record it was. `where` names it to people when it is none."""
    if values.get("error", "") is None:
        values["error"] = ""
    try:
        if "fetched_at" in values:
            values["fetched_at"] = _seconds(values["fetched_at"])
        for name in ("redirects", "data"):
            if isinstance(values.get(name), str | bytes):
                values[name] = msgspec.json.decode(values[name])
    except msgspec.DecodeError as error:
        raise SinkRefused(f"The row of {values.get('url')!r:.200} has {name} that are not JSON: {error}.") from None
    except (ValueError, TypeError, OverflowError) as error:
        raise SinkRefused(f"{where} has a fetched_at that is no moment: {error}.") from None
    if type_ is Item:
        values = {"spider": "", "number": 0, "fetched_at": 0.0, "data": {}} | values
    try:
        # Not strict: CSV has nothing but text, SQLite no booleans.
        return msgspec.convert(values, type_, strict=False)
    except msgspec.ValidationError as error:
        raise SinkRefused(f"{where} is no record of Shoal's: {error}.") from None


def _seconds(at: object) -> float:
    if not at:
        return 0.0
    moment = at if isinstance(at, datetime.datetime) else datetime.datetime.fromisoformat(str(at))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return (moment - _EPOCH).total_seconds() + _LITTLE


def _batch(rows: Iterator[Row]) -> list[Row]:
    batch: list[Row] = []
    characters = 0
    for row in rows:
        batch.append(row)
        characters += len(row.text) if isinstance(row, Record) else 0
        if len(batch) == _MOST_ROWS or characters >= _MOST_CHARACTERS:
            break
    return batch


def _of_crawl(found: Iterable[tuple[str, Values]], wanted: Wanted, path: Path) -> Iterator[Row]:
    """Rows of files, which have no index: all of them are looked at. Each comes with its name for people."""
    passed_over = taken = 0
    for where, values in found:
        if wanted.crawl not in (None, values.get("crawl")):
            passed_over += 1
            continue
        taken += 1
        yield record_of(values, Item if "data" in values else Record, where)
    if passed_over and not taken:
        raise UnknownCrawl(f"The file {path} has no page of crawl {wanted.crawl!r}.")


# SQLite


def _sqlite(path: Path, wanted: Wanted) -> Iterator[Row]:
    table = "items" if wanted.items else "pages"
    try:
        # By its URI, since only so can it be opened without the right to make a new one.
        uri = f"file:{quote(str(path))}?mode=ro"
        with contextlib.closing(
            sqlite3.connect(uri, uri=True, timeout=_LOCK_SECONDS, isolation_level=None)
        ) as connection:
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            # One moment for everything that follows.
            connection.execute("BEGIN")
            found = {row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", [table])}
            if not {"crawl", "url"} <= found:
                raise SinkRefused(f"The file {path} has no table `{table}` of Shoal's; name the output of a crawl.")
            columns = wanted.of_table(found)
            query, given = f"SELECT {', '.join(columns)} FROM {table}", []  # noqa: S608 - names of our own
            if wanted.crawl is not None:
                _check(connection, path, table, wanted.crawl)
                query, given = f"{query} WHERE crawl = ?", [wanted.crawl]
            for row in connection.execute(query, given):
                values = dict(zip(columns, row, strict=True))
                yield record_of(values, wanted.type, f"The row of {values.get('url')!r:.200}")
    except sqlite3.Error as error:
        raise SinkRefused(f"The file {path} cannot be read as an SQLite output: {error}.") from error


def _check(connection: sqlite3.Connection, path: Path, table: str, crawl: str) -> None:
    """Refuse a crawl that has no row, and say which ones have."""
    ask = connection.execute
    if ask(f"SELECT 1 FROM {table} WHERE crawl = ? LIMIT 1", (crawl,)).fetchone() is None:  # noqa: S608
        names = [row[0] for row in ask(f"SELECT DISTINCT crawl FROM {table} LIMIT 5")]  # noqa: S608
        has = f"it has {', '.join(names)}" if names else "it is empty"
        raise UnknownCrawl(f"The file {path} has no page of crawl {crawl!r}; {has}.")


# Files of lines


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """What a file holds, unpacked; SinkRefused for one that is not what its ending says."""
    ending = path.name.lower().rpartition(".")[2]
    opened: Any = (
        gzip.open if ending == "gz" else importlib.import_module(ZSTD_MODULE).open if ending == "zst" else open
    )
    try:
        with opened(path, "rb") as file:
            yield file
    except (SinkRefused, UnknownCrawl):
        raise
    except Exception as error:
        # Each library has its own error for a file that is not of its kind.
        raise SinkRefused(f"The file {path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error


def _jsonl(path: Path, wanted: Wanted) -> Iterator[Row]:
    def lines() -> Iterator[tuple[str, Values]]:
        shape = msgspec.defstruct("Line", [(name, Any, msgspec.UNSET) for name in wanted.of_file])
        decode = msgspec.json.Decoder(shape).decode
        with _opened(path) as file:
            for number, line in enumerate(file, 1):
                # A last line without an end is not there yet.
                if not line.endswith(b"\n"):
                    break
                where = f"Line {number:,} of {path}"
                try:
                    told = msgspec.structs.asdict(decode(line))
                except (msgspec.DecodeError, msgspec.ValidationError) as error:
                    raise SinkRefused(f"{where} is no record of Shoal's: {error}.") from None
                yield where, {name: value for name, value in told.items() if value is not msgspec.UNSET}

    yield from _of_crawl(lines(), wanted, path)


def _csv(path: Path, wanted: Wanted) -> Iterator[Row]:
    def lines() -> Iterator[tuple[str, Values]]:
        csv.field_size_limit(1 << 30)
        with _opened(path) as file, io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
            rows = csv.DictReader(text)
            if not {"crawl", "url"} <= {*(rows.fieldnames or ())} and path.stat().st_size:
                raise SinkRefused(f"The file {path} is no CSV file of Shoal's; name the output of a crawl.")
            known = wanted.of_file
            for row in rows:
                values = {name: _said(row[name]) for name in row if name in known and row[name] is not None}
                yield f"Line {rows.line_num:,} of {path}", values

    yield from _of_crawl(lines(), wanted, path)


def _said(cell: str) -> str:
    return cell[1:] if _DEFUSED.match(cell) else cell


def _parquet(path: Path, wanted: Wanted) -> Iterator[Row]:
    pa, pq = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")

    def rows() -> Iterator[tuple[str, Values]]:
        for file in sorted(path.glob("*.parquet")):
            try:
                with pq.ParquetFile(file) as source:
                    names = [name for name in source.schema_arrow.names if name in wanted.of_file]
                    for batch in source.iter_batches(batch_size=100, columns=names):
                        for values in batch.to_pylist():
                            if hops := values.get("redirects"):
                                values["redirects"] = [(hop["url"], hop["status"]) for hop in hops]
                            yield f"The row of {values.get('url')!r:.200} in {file}", values
            except (pa.ArrowException, OSError) as error:
                raise SinkRefused(f"The file {file} cannot be read as Parquet: {error}.") from error

    yield from _of_crawl(rows(), wanted, path)


_FILES: dict[str, Callable[[Path, Wanted], Iterator[Row]]] = {
    "sqlite": _sqlite, "jsonl": _jsonl, "csv": _csv, "parquet": _parquet,
}  # fmt: skip
