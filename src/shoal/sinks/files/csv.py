"""CSV: a row of column names, then one row per record. Workers write part files, which are merged while the crawl runs.

The fields of items are columns. The first worker that writes an item decides which (flat_items.py).

A cell that a spreadsheet would execute as a formula gets an apostrophe before it: the texts come from strangers.
"""

from __future__ import annotations

import csv
import fcntl
import io
import os
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import msgspec

from shoal.errors import SinkRefused
from shoal.model.record import Item, Record, RecordKey
from shoal.sinks.columns import COLUMNS, Row, moment
from shoal.sinks.contract import LineFormat, Replay
from shoal.sinks.files import readers
from shoal.sinks.files.compression import beginning, compressor_of, with_compressed
from shoal.sinks.files.flat_items import MORE, ORIGIN, cell_text, cells, columns_of, fields_of
from shoal.sinks.files.merge import merge_parts
from shoal.sinks.files.part import flush
from shoal.sinks.files.part_writer import PartsSink
from shoal.sinks.files.technology import LinesTechnology
from shoal.sinks.reader import Cursor, ReadRequest

# The row of column names is shorter than this.
_MOST_HEAD = 1_000_000
# The first characters of a formula in Excel, LibreOffice and Google Sheets. A cell that has apostrophes before such a
# character gets one more, so that removing one always restores the original text.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")


class CsvSink(PartsSink):
    # The columns of items, as soon as they are known.
    _columns: tuple[str, ...] = ()

    def _encoded(self, records: Sequence[Row]) -> dict[RecordKey, bytes]:
        items = [record for record in records if isinstance(record, Item)]
        if not self._columns:
            self._columns = agree_on_columns(self._path, columns_of(fields_of(items)) if items else COLUMNS)
        if not items:
            return {record.key: line(record) for record in records}
        return {item.key: item_line(item, self._columns) for item in items}

    def _touch(self) -> None:
        super()._touch()
        if not self._path.stat().st_size:
            return
        self._columns = columns_in(self._path)
        if self._holds is Item:
            _check_items(self._path, self._columns)
        elif self._columns != COLUMNS:
            raise SinkRefused(f"The output {self._path} is not a CSV file with these columns; name another file.")


class CsvTechnology(LinesTechnology):
    schemes = ("csv",)
    endings = with_compressed(".csv")
    sink_class = CsvSink

    async def merge(self, address: Path, *, live: Collection[str], replay: Replay, spider: bool) -> None:
        # For items, the row of column names is written with the first item. A file of pages gets it again if the file
        # was moved.
        await merge_parts(address, live=live, replay=replay, head=b"" if spider else head())

    def rows(self, path: Path, request: ReadRequest) -> Iterator[tuple[Cursor, Row]]:
        return readers.csv_rows(path, request)

    def line_format(self, *, items: bool) -> LineFormat:
        return item_format(()) if items else LineFormat(head(), line)


def item_format(fields: Sequence[str]) -> LineFormat:
    """The format of items with columns for these fields; others are in `_more`."""
    columns = columns_of(fields)
    return LineFormat(
        _row([escaped(name) for name in columns]),
        lambda item: item_line(item, columns) if isinstance(item, Item) else b"",
    )


def head() -> bytes:
    return _row(COLUMNS)


def item_line(item: Item, columns: Sequence[str]) -> bytes:
    return _row(
        [escaped(cell_text(value)) if isinstance(value, str) else cell_text(value) for value in cells(item, columns)]
    )


def _row(values: Sequence[object]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(values)
    return text.getvalue().encode()


def columns_in(path: Path) -> tuple[str, ...]:
    """The columns of a file."""
    first = beginning(path, _MOST_HEAD).decode("utf-8", "replace")
    names = tuple(_unescaped(name) for name in next(csv.reader(io.StringIO(first, newline="")), ()))
    return names


def _check_items(path: Path, columns: tuple[str, ...]) -> None:
    if not {*ORIGIN, MORE} <= {*columns}:
        raise SinkRefused(f"The output {path} is not a CSV file of items with these columns; name another file.")


def agree_on_columns(path: Path, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Write the row of column names, unless another worker has done so; returns the columns that the file has."""
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_size:
            return columns_in(path)
        names = _row([escaped(name) for name in columns])
        compressor = compressor_of(path)
        file.write(compressor.compress(names) + compressor.flush() if compressor else names)
        file.flush()
        flush(file.fileno())
    return columns


def line(record: Row) -> bytes:
    values = msgspec.structs.asdict(record)
    values["fetched_at"] = moment(record) or ""
    if isinstance(record, Record):
        values["redirects"] = msgspec.json.encode(record.redirects).decode()
        values["robots_ignored"] = "true" if record.robots_ignored else "false"
    return _row([escaped(value) if type(value) is str else value for value in values.values()])


def escaped(text: str) -> str:
    """The text of a cell, escaped so that no spreadsheet executes it."""
    return "'" + text if _FORMULA.match(text) else text


def _unescaped(text: str) -> str:
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


TECHNOLOGY = CsvTechnology()
