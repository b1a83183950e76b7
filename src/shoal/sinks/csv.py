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
from shoal.model.record import Record
from shoal.sinks import gathering
from shoal.sinks.contract import Key
from shoal.sinks.gathering import Replay
from shoal.sinks.packing import beginning
from shoal.sinks.row import COLUMNS, moment
from shoal.sinks.writing import PartsSink

HEAD = ",".join(COLUMNS).encode() + b"\r\n"
# What Excel, LibreOffice or Google Sheets begin a formula with. A cell that begins with apostrophes before such a
# character gets one more, so that taking one away gives back what the page said.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
_REDIRECTS, _FETCHED_AT, _ROBOTS_IGNORED = map(COLUMNS.index, ("redirects", "fetched_at", "robots_ignored"))


class CsvSink(PartsSink):
    def _encoded(self, records: Sequence[Record]) -> dict[Key, bytes]:
        return {record.key: _line(record) for record in records}

    def _touch(self) -> None:
        super()._touch()
        if self._path.stat().st_size and beginning(self._path, len(HEAD)) != HEAD:
            raise SinkRefused(f"The output {self._path} is no CSV file of these columns; name another file.")


async def gather(output: Path, *, live: Collection[str], replay: Replay) -> None:
    await gathering.gather(output, live=live, replay=replay, head=HEAD)


def _line(record: Record) -> bytes:
    values: list[object] = list(msgspec.structs.astuple(record))
    values[_REDIRECTS] = msgspec.json.encode(record.redirects).decode()
    values[_FETCHED_AT] = moment(record) or ""
    values[_ROBOTS_IGNORED] = "true" if record.robots_ignored else "false"
    line = io.StringIO()
    csv.writer(line).writerow([_harmless(value) if type(value) is str else value for value in values])
    return line.getvalue().encode()


def _harmless(text: str) -> str:
    return "'" + text if _FORMULA.match(text) else text
