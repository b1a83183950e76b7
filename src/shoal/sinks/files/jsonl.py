"""JSON lines: one object a line, in parts that are gathered into the output while the crawl runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from shoal.model.record import Item
from shoal.sinks.columns import Row, data_text, moment
from shoal.sinks.contract import Key
from shoal.sinks.files import merge
from shoal.sinks.files.merge import Replay
from shoal.sinks.files.part_writer import PartsSink

_ENCODER = msgspec.json.Encoder()


class JsonLinesSink(PartsSink):
    def _encoded(self, records: Sequence[Row]) -> dict[Key, bytes]:
        return {record.key: json_line(record) for record in records}


async def gather(output: Path, *, live: Collection[str], replay: Replay, spider: bool) -> None:
    await merge.gather(output, live=live, replay=replay)


def json_line(record: Row) -> bytes:
    """UnicodeEncodeError for text that needs `encodable`."""
    if isinstance(record, Item):
        raw = msgspec.Raw(data_text(record.data).encode())
        return _ENCODER.encode(msgspec.structs.replace(record, fetched_at=moment(record), data=raw)) + b"\n"
    shown = msgspec.structs.replace(record, error=record.error or None, fetched_at=moment(record))
    return _ENCODER.encode(shown) + b"\n"
