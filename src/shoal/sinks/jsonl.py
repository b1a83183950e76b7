"""JSON lines: one object a line, in parts that are gathered into the output while the crawl runs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shoal.model.record import Record
from shoal.sinks.contract import Key
from shoal.sinks.gathering import gather
from shoal.sinks.row import moment
from shoal.sinks.writing import PartsSink

__all__ = ["JsonLinesSink", "gather"]

_ENCODER = msgspec.json.Encoder()


class JsonLinesSink(PartsSink):
    def _encoded(self, records: Sequence[Record]) -> dict[Key, bytes]:
        return {record.key: _line(record) for record in records}


def _line(record: Record) -> bytes:
    shown = msgspec.structs.replace(record, error=record.error or None, fetched_at=moment(record))
    return _ENCODER.encode(shown) + b"\n"
