"""Outputs, read: the rows of any of them as records again, streamed, whatever is written meanwhile.

Owns the way back from what row.py shows. A file or table of an older Shoal lacks columns: their values are the
defaults. Reads only: nothing is made, and nothing is gathered.

`read` gives all of them. `page` gives some behind a place: a key of a database, a byte of a file of lines, a row of a
file of Parquet. What is written meanwhile moves no place, so that what was there before is on one page and no other.
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import gzip
import hashlib
import importlib
import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple, cast

import msgspec
from msgspec import Meta

from shoal.errors import InvalidInput, ShoalError, SinkRefused, UnknownCrawl
from shoal.model.record import Item, Record
from shoal.settings import masked
from shoal.sinks import Technology, _check_driver, _parsed
from shoal.sinks.columns import COLUMNS, ITEM_COLUMNS, Row
from shoal.sinks.executor import SinkThread
from shoal.sinks.files.compression import ZSTD_MODULE

Values = dict[str, Any]
# Where a row is, as far as JSON can carry it; what it is made of is for the kind of output to know.
Place = Sequence[Any]
Count = Annotated[int, Meta(ge=0, le=2**53)]

# A batch ends at either: pages differ in size, and memory is to stay small.
_MOST_ROWS, _MOST_CHARACTERS = 500, 4_000_000
# What a page may weigh: texts are long.
_PAGE_CHARACTERS = 20_000_000
_SERVERS = ("postgresql", "mysql")
# What csv.py does to such cells.
_DEFUSED = re.compile(r"'+[=+\-@\t\r\n＝＋－＠]")
_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
# Milliseconds are no exact floats: a little more keeps them what they are when they are cut off again.
_LITTLE = 5e-7


class ReadRequest(NamedTuple):
    """Which rows: those of one crawl or of all (None), pages or items of a database, and which columns (() all).

    With `most`, so many at most, in the order of their places, behind one of them. Without, all in any order.
    """

    crawl: str | None
    items: bool
    columns: tuple[str, ...]
    behind: Place | None = None
    most: int = 0

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
    async with contextlib.aclosing(_placed(uri, ReadRequest(crawl, items, tuple(columns)))) as batches:
        async for rows in batches:
            yield [row for _, row in rows]


async def page(
    uri: str, crawl: str, most: int, *, behind: Place | None = None, columns: Sequence[str] = (), items: bool = False
) -> tuple[list[Row], Place | None]:
    """Records of a crawl behind a place, at most so many, and the place of the last; None when no more follow.

    InvalidInput for a place that this output does not have (any more). Otherwise as `read`.
    """
    found: list[Row] = []
    last, characters = behind, 0
    wanted = ReadRequest(crawl, items, tuple(columns), behind, most + 1)
    async with contextlib.aclosing(_placed(uri, wanted)) as batches:
        async for rows in batches:
            for place, row in rows:
                if len(found) == most or characters > _PAGE_CHARACTERS:
                    return found, last
                found.append(row)
                last = place
                characters += _weight(row)
    return found, None


async def _placed(uri: str, wanted: ReadRequest) -> AsyncGenerator[list[tuple[Place, Row]], None]:
    kind, where = kind_of(uri)
    if isinstance(where, str) and kind.scheme in _SERVERS:
        module = importlib.import_module("shoal.sinks.sql.server_reader")
        async with contextlib.aclosing(module.read(kind.scheme, where, wanted)) as batches:
            async for rows in batches:
                yield rows
        return
    open_ = _FILES.get(kind.scheme)
    if open_ is None or isinstance(where, str):
        shown = masked(uri)
        raise SinkRefused(f"The output {shown} cannot be read back; name a database, JSON lines, CSV or Parquet.")
    if not where.exists():
        raise InvalidInput(f"There is no output {where} to read.")
    async with contextlib.aclosing(in_batches(open_(where, wanted), wanted.most)) as batches:
        async for rows in batches:
            yield rows


def kind_of(uri: str) -> tuple[Technology, Path | str]:
    """The technology of an output, and its path or address; SinkRefused when it needs what is not installed."""
    kind, where = _parsed(uri)
    _check_driver(kind, where)
    return kind, where


async def in_batches(
    rows_of: Iterator[tuple[Place, Row]], most: int = 0
) -> AsyncGenerator[list[tuple[Place, Row]], None]:
    """Rows that wait for a disk, read by a thread."""
    most = min(most or _MOST_ROWS, _MOST_ROWS)
    thread = SinkThread("reading")
    try:
        while batch := await thread.run(lambda: _batch(rows_of, most)):
            yield batch
    finally:
        await thread.end(cast(Any, rows_of).close)


def place_of(place: Place, type_: Any) -> Any:
    """A place as its kind of output has them. It may come from anybody."""
    try:
        return msgspec.convert(place, type_)
    except msgspec.ValidationError:
        raise no_place() from None


def no_place() -> InvalidInput:
    return InvalidInput("The output has no such place to go on from (any more): begin again with its first records.")


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


def _batch(rows: Iterator[tuple[Place, Row]], most: int) -> list[tuple[Place, Row]]:
    batch: list[tuple[Place, Row]] = []
    characters = 0
    for one in rows:
        batch.append(one)
        characters += _weight(one[1])
        if len(batch) == most or characters >= _MOST_CHARACTERS:
            break
    return batch


def _weight(row: Row) -> int:
    return len(row.text) if isinstance(row, Record) else 0


def _of_crawl(
    found: Iterable[tuple[Place, str, Values]], wanted: ReadRequest, path: Path
) -> Iterator[tuple[Place, Row]]:
    """Rows of files, which have no index: all of them are looked at. Each comes with its name for people."""
    passed_over = taken = 0
    for place, where, values in found:
        if wanted.crawl not in (None, values.get("crawl")):
            passed_over += 1
            continue
        taken += 1
        yield place, record_of(values, Item if "data" in values else Record, where)
    if passed_over and not taken and wanted.behind is None:
        raise UnknownCrawl(f"The file {path} has no page of crawl {wanted.crawl!r}.")


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
    except ShoalError:
        raise
    except Exception as error:
        # Each library has its own error for a file that is not of its kind.
        raise SinkRefused(f"The file {path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error


def _begin(file: BinaryIO, wanted: ReadRequest, first: int = 0) -> int:
    """Go to where the last page ended, or to the first line. A place is behind the end of a line."""
    if wanted.behind is None:
        return first
    at: int = place_of(wanted.behind, tuple[Count])[0]
    file.seek(max(at - 1, 0))
    if at <= first or file.read(1) != b"\n":
        raise no_place()
    return at


def _named(path: Path, began: int) -> str:
    """How lines that are counted from here on are told to people."""
    return f"behind byte {began:,} of {path}" if began else f"of {path}"


def line_decoder(wanted: ReadRequest) -> Callable[[bytes, str], Values]:
    """What reads the values of one JSON object, which `where` names to people."""
    shape = msgspec.defstruct("Line", [(name, Any, msgspec.UNSET) for name in wanted.of_file])
    decode = msgspec.json.Decoder(shape).decode

    def values_of(line: bytes, where: str) -> Values:
        try:
            told = msgspec.structs.asdict(decode(line))
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise SinkRefused(f"{where} is no record of Shoal's: {error}.") from None
        return {name: value for name, value in told.items() if value is not msgspec.UNSET}

    return values_of


def _jsonl(path: Path, wanted: ReadRequest) -> Iterator[tuple[Place, Row]]:
    def lines() -> Iterator[tuple[Place, str, Values]]:
        values_of = line_decoder(wanted)
        with _opened(path) as file:
            at = _begin(file, wanted)
            named = _named(path, at)
            for number, line in enumerate(file, 1):
                # A last line without an end is not there yet.
                if not line.endswith(b"\n"):
                    break
                at += len(line)
                where = f"Line {number:,} {named}"
                yield (at,), where, values_of(line, where)

    yield from _of_crawl(lines(), wanted, path)


def _csv(path: Path, wanted: ReadRequest) -> Iterator[tuple[Place, Row]]:
    def lines() -> Iterator[tuple[Place, str, Values]]:
        csv.field_size_limit(1 << 30)
        with _opened(path) as file:
            head = file.readline()
            names = next(csv.reader([head.decode()]), [])
            if head and not {"crawl", "url"} <= {*names}:
                raise SinkRefused(f"The file {path} is no CSV file of Shoal's; name the output of a crawl.")
            at = _begin(file, wanted, len(head))
            named, first = _named(path, at if wanted.behind else 0), 0 if wanted.behind else 1
            over = False

            def pulled() -> Iterator[str]:
                nonlocal at, over
                for line in file:
                    if wanted.most and not line.endswith(b"\n"):
                        break
                    at += len(line)
                    yield line.decode()
                over = True

            known = wanted.of_file
            rows = csv.reader(pulled())
            for row in rows:
                # A row that ended with the file, and not with its line, is not all there yet.
                if wanted.most and over:
                    break
                values = {name: _said(cell) for name, cell in zip(names, row, strict=False) if name in known}
                if values:
                    yield (at,), f"Line {rows.line_num + first:,} {named}", values

    yield from _of_crawl(lines(), wanted, path)


def _said(cell: str) -> str:
    return cell[1:] if _DEFUSED.match(cell) else cell


def _parquet(path: Path, wanted: ReadRequest) -> Iterator[tuple[Place, Row]]:
    pa, pq = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")

    def rows() -> Iterator[tuple[Place, str, Values]]:
        files = sorted(path.glob("*.parquet"))
        # Their names tell of workers.
        marks = [hashlib.blake2b(file.name.encode(), digest_size=8).hexdigest() for file in files]
        first, passed = 0, 0
        if wanted.behind is not None:
            mark, passed = place_of(wanted.behind, tuple[str, Count])
            if mark not in marks:
                raise no_place()
            first = marks.index(mark)
        for mark, file in zip(marks[first:], files[first:], strict=True):
            try:
                with pq.ParquetFile(file) as source:
                    names = [name for name in source.schema_arrow.names if name in wanted.of_file]
                    row, group = 0, 0
                    while group < source.num_row_groups:
                        if row + source.metadata.row_group(group).num_rows > passed:
                            break
                        row, group = row + source.metadata.row_group(group).num_rows, group + 1
                    groups = range(group, source.num_row_groups)
                    for batch in source.iter_batches(batch_size=100, row_groups=groups, columns=names):
                        skipped = min(max(passed - row, 0), batch.num_rows)
                        row += skipped
                        for values in batch.slice(skipped).to_pylist():
                            row += 1
                            if hops := values.get("redirects"):
                                values["redirects"] = [(hop["url"], hop["status"]) for hop in hops]
                            yield (mark, row), f"The row of {values.get('url')!r:.200} in {file}", values
                passed = 0
            except (pa.ArrowException, OSError) as error:
                raise SinkRefused(f"The file {file} cannot be read as Parquet: {error}.") from error

    yield from _of_crawl(rows(), wanted, path)


def _sqlite(path: Path, wanted: ReadRequest) -> Iterator[tuple[Place, Row]]:
    found: Iterator[tuple[Place, Row]] = importlib.import_module("shoal.sinks.sql.sqlite_reader").rows(path, wanted)
    return found


_FILES: dict[str, Callable[[Path, ReadRequest], Iterator[tuple[Place, Row]]]] = {
    "sqlite": _sqlite, "jsonl": _jsonl, "csv": _csv, "parquet": _parquet,
}  # fmt: skip
