"""CSV: one row a record after a row of names, in parts that are gathered into the output while the crawl runs.

A cell that a spreadsheet would take for a formula gets an apostrophe before it: pages are written by strangers.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from shoal.errors import SinkRefused
from shoal.model.record import Item
from shoal.sinks.columns import COLUMNS, ITEM_COLUMNS, Row, data_text, moment
from shoal.sinks.contract import Key
from shoal.sinks.files import merge
from shoal.sinks.files.compression import beginning
from shoal.sinks.files.merge import Replay
from shoal.sinks.files.part_writer import PartsSink

# What Excel, LibreOffice or Google Sheets begin a formula with. A cell that begins with apostrophes before such a
# character gets one more, so that taking one away gives back what the page said.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")


class CsvSink(PartsSink):
    def _encoded(self, records: Sequence[Row]) -> dict[Key, bytes]:
        return {record.key: line(record) for record in records}

    def _touch(self) -> None:
        super()._touch()
        begins = head(spider=self._holds is Item)
        if self._path.stat().st_size and beginning(self._path, len(begins)) != begins:
            raise SinkRefused(f"The output {self._path} is no CSV file of these columns; name another file.")


async def gather(output: Path, *, live: Collection[str], replay: Replay, spider: bool) -> None:
    await merge.gather(output, live=live, replay=replay, head=head(spider=spider))


def head(*, spider: bool) -> bytes:
    return ",".join(ITEM_COLUMNS if spider else COLUMNS).encode() + b"\r\n"


def line(record: Row) -> bytes:
    values = msgspec.structs.asdict(record)
    values["fetched_at"] = moment(record) or ""
    if isinstance(record, Item):
        values["data"] = data_text(record.data)
    else:
        values["redirects"] = msgspec.json.encode(record.redirects).decode()
        values["robots_ignored"] = "true" if record.robots_ignored else "false"
    text = io.StringIO()
    csv.writer(text).writerow([_harmless(value) if type(value) is str else value for value in values.values()])
    return text.getvalue().encode()


def _harmless(text: str) -> str:
    return "'" + text if _FORMULA.match(text) else text
