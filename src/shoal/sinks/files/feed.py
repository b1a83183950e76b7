"""Feeds of Scrapy as part files: lines that Scrapy's exporters made, in a frame such as the brackets of a JSON array.

The parts and their merge are those of Shoal's own outputs. Here a line is opaque, and the output can have text after
its last line: the merge removes that text, appends, and writes it again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from shoal.model.record import RecordKey
from shoal.sinks.contract import Replay
from shoal.sinks.executor import SinkThread
from shoal.sinks.files.merge import Merger, merge_parts, write_all
from shoal.sinks.files.part import flush
from shoal.sinks.files.part_writer import PartsSink


class FeedLine(msgspec.Struct, frozen=True):
    """An item as Scrapy exports it. Its key names the visit, and the item's number after `#`."""

    key: RecordKey
    line: bytes


class Frame(NamedTuple):
    """The bytes before the first line, between lines and after the last line."""

    head: bytes = b""
    separator: bytes = b""
    tail: bytes = b""


class FeedSink(PartsSink):
    holds = FeedLine  # type: ignore[assignment]

    def _encoded(self, records: Sequence[Any]) -> dict[RecordKey, bytes]:
        return {record.key: record.line for record in records}

    def _touch(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)


async def merge_feed(output: Path, frame: Frame, *, replay: Replay) -> None:
    """Append the parts that no process writes any more. A process holds a lock on its part as long as it lives."""
    await merge_parts(
        output,
        live=(),
        replay=replay,
        head=frame.head,
        merger=partial(_FeedMerger, frame=frame) if frame.tail else None,
    )


class _FeedMerger(Merger):
    """Between two merges each line is followed by a separator, or the last one by the tail."""

    def __init__(
        self, output: Path, folder: Path, thread: SinkThread, replay: Replay, head: bytes, *, frame: Frame
    ) -> None:
        super().__init__(output, folder, thread, replay, head)
        self._frame = frame

    def _begin(self, output: FileIO) -> None:
        head, separator, tail = self._frame
        if _ends_with(output, tail):
            length = os.fstat(output.fileno()).st_size - len(tail)
            output.truncate(length)
            if length > len(head):
                write_all(output, separator)

    def _end(self, output: FileIO) -> None:
        _, separator, tail = self._frame
        if separator and _ends_with(output, separator):
            output.truncate(os.fstat(output.fileno()).st_size - len(separator))
        write_all(output, tail)


def _ends_with(output: FileIO, text: bytes) -> bool:
    length = os.fstat(output.fileno()).st_size
    if length < len(text):
        return False
    output.seek(length - len(text))
    return output.read(len(text)) == text


def agree_on_head(output: Path, head: bytes) -> bytes:
    """Write the first line of an output unless it has one; returns the line that it has. Blocks briefly."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if line := file.readline():
            return line
        file.write(head)
        file.flush()
        flush(file.fileno())
    return head


def write_empty(output: Path, frame: Frame) -> None:
    """Create an output without lines, unless it exists."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not os.fstat(file.fileno()).st_size:
            file.write(frame.head + frame.tail)
