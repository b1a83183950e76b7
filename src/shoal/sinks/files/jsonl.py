"""JSON lines: one object per line. Workers write part files, which are merged into the output while the crawl runs."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import msgspec

from shoal.model.record import Item, RecordKey
from shoal.sinks.columns import Row, data_text, moment
from shoal.sinks.contract import LineFormat, Replay
from shoal.sinks.files import readers
from shoal.sinks.files.compression import with_compressed
from shoal.sinks.files.flat_items import flat
from shoal.sinks.files.merge import merge_parts
from shoal.sinks.files.part_writer import PartsSink
from shoal.sinks.files.technology import LinesTechnology
from shoal.sinks.reader import Cursor, ReadRequest

_ENCODER = msgspec.json.Encoder()
_SEPARATORS = tuple((sign.encode(), f"\\u{ord(sign):04x}".encode()) for sign in "\u2028\u2029\x85")


class JsonLinesSink(PartsSink):
    def _encoded(self, records: Sequence[Row]) -> dict[RecordKey, bytes]:
        return {record.key: file_line(record) for record in records}


class JsonLinesTechnology(LinesTechnology):
    schemes = ("jsonl",)
    endings = with_compressed(".jsonl", ".ndjson")
    sink_class = JsonLinesSink

    async def merge(self, address: Path, *, live: Collection[str], replay: Replay, spider: bool) -> None:
        await merge_parts(address, live=live, replay=replay)

    def rows(self, path: Path, request: ReadRequest) -> Iterator[tuple[Cursor, Row]]:
        return readers.jsonl_rows(path, request)

    def line_format(self, *, items: bool) -> LineFormat:
        return LineFormat(b"", file_line)

    def example_query(self, address: Path, crawl: str, *, items: bool) -> str:
        return "" if address.suffix in (".gz", ".zst") else f"head -n 3 {shlex.quote(str(address))}"


def file_line(record: Row) -> bytes:
    """The line of a record in a file: items are flat there. UnicodeEncodeError as for `json_line`."""
    if not isinstance(record, Item):
        return json_line(record)
    # The key, too, must be valid UTF-8.
    record.key[1].encode()
    return on_one_line(data_text(flat(record)).encode())


def json_line(record: Row) -> bytes:
    """The line of a record with one value per column. UnicodeEncodeError for text that needs `encodable` first."""
    if isinstance(record, Item):
        raw = msgspec.Raw(data_text(record.data).encode())
        return on_one_line(_ENCODER.encode(msgspec.structs.replace(record, fetched_at=moment(record), data=raw)))
    shown = msgspec.structs.replace(record, error=record.error or None, fetched_at=moment(record))
    return on_one_line(_ENCODER.encode(shown))


def on_one_line(encoded: bytes) -> bytes:
    """Escape characters that JSON allows, but that some readers, e.g. Python's `splitlines`, treat as a line end."""
    for separator, escaped in _SEPARATORS:
        if separator in encoded:
            encoded = encoded.replace(separator, escaped)
    return encoded + b"\n"


TECHNOLOGY = JsonLinesTechnology()
