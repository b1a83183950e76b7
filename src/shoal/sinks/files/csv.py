"""CSV: a row of column names, then one row per record. Workers write part files, which are merged while the crawl runs.

A cell that a spreadsheet would execute as a formula gets an apostrophe before it: the texts come from strangers.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import msgspec

from shoal.errors import SinkRefused
from shoal.model.record import Item
from shoal.sinks.columns import COLUMNS, ITEM_COLUMNS, Row, data_text, moment
from shoal.sinks.contract import Key, LineFormat, Replay
from shoal.sinks.files import readers
from shoal.sinks.files.compression import beginning, with_compressed
from shoal.sinks.files.merge import merge_parts
from shoal.sinks.files.part_writer import PartsSink
from shoal.sinks.files.technology import LinesTechnology
from shoal.sinks.reader import Cursor, ReadRequest

# The first characters of a formula in Excel, LibreOffice and Google Sheets. A cell that has apostrophes before such a
# character gets one more, so that removing one always restores the original text.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")


class CsvSink(PartsSink):
    def _encoded(self, records: Sequence[Row]) -> dict[Key, bytes]:
        return {record.key: line(record) for record in records}

    def _touch(self) -> None:
        super()._touch()
        expected = head(items=self._holds is Item)
        if self._path.stat().st_size and beginning(self._path, len(expected)) != expected:
            raise SinkRefused(f"The output {self._path} is not a CSV file with these columns; name another file.")


class CsvTechnology(LinesTechnology):
    schemes = ("csv",)
    endings = with_compressed(".csv")
    sink_class = CsvSink

    async def merge(self, address: Path, *, live: Collection[str], replay: Replay, spider: bool) -> None:
        await merge_parts(address, live=live, replay=replay, head=head(items=spider))

    def rows(self, path: Path, request: ReadRequest) -> Iterator[tuple[Cursor, Row]]:
        return readers.csv_rows(path, request)

    def line_format(self, *, items: bool) -> LineFormat:
        return LineFormat(head(items=items), line)


def head(*, items: bool) -> bytes:
    return ",".join(ITEM_COLUMNS if items else COLUMNS).encode() + b"\r\n"


def line(record: Row) -> bytes:
    values = msgspec.structs.asdict(record)
    values["fetched_at"] = moment(record) or ""
    if isinstance(record, Item):
        values["data"] = data_text(record.data)
    else:
        values["redirects"] = msgspec.json.encode(record.redirects).decode()
        values["robots_ignored"] = "true" if record.robots_ignored else "false"
    text = io.StringIO()
    csv.writer(text).writerow([escaped(value) if type(value) is str else value for value in values.values()])
    return text.getvalue().encode()


def escaped(text: str) -> str:
    """The text of a cell that no spreadsheet runs."""
    return "'" + text if _FORMULA.match(text) else text


TECHNOLOGY = CsvTechnology()
