"""Parquet: a folder of files, each made of one part of one worker.

A Parquet file cannot be read before its end is written, and a batch has to be durable long before. So a worker keeps
its batches as Arrow record batches in a part (part.py), and turns the whole part into a file of the output when it is
closed; the gatherer does that for workers that died. The file has the part's name, which is never used twice: whoever
is killed in between, the same file is written again over the first.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import get_type_hints

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from shoal.errors import SinkRefused
from shoal.model.record import Item, Record
from shoal.sinks.columns import COLUMNS, ITEM_COLUMNS, Row, data_text, last_of_each
from shoal.sinks.contract import Key
from shoal.sinks.files import part_folder
from shoal.sinks.files.merge import Replay
from shoal.sinks.files.part import Piece, flush, is_refused, scan, sync_folder
from shoal.sinks.files.part_folder import FolderSink

# Larger files are read faster; these are what a reader waits for at most, and what a worker converts at once.
FILE_SECONDS = 300.0
FILE_BYTES = 128 << 20
# A crawl that ended while its workers go on with others shows all of its pages after this time.
IDLE_SECONDS = 30.0
# A row group is built in memory.
GROUP_BYTES = 32 << 20

_HOPS = pa.list_(pa.struct([pa.field("url", pa.string(), False), pa.field("status", pa.int64(), False)]))
_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
_SPECIAL = {"fetched_at": pa.timestamp("ms", tz="UTC"), "redirects": _HOPS}
_HINTS = get_type_hints(Record)
SCHEMA = pa.schema(
    [pa.field(name, _SPECIAL.get(name) or _TYPES[_HINTS[name]], name in ("error", "fetched_at")) for name in COLUMNS]
)
_ITEM_TYPES = {"number": pa.int64(), "fetched_at": _SPECIAL["fetched_at"]}
ITEM_SCHEMA = pa.schema(
    [pa.field(name, _ITEM_TYPES.get(name, pa.string()), name == "fetched_at") for name in ITEM_COLUMNS]
)
_ERROR, _REDIRECTS, _FETCHED_AT = (COLUMNS.index(name) for name in ("error", "redirects", "fetched_at"))
_ITEM_FETCHED_AT, _DATA = ITEM_COLUMNS.index("fetched_at"), ITEM_COLUMNS.index("data")


class ParquetSink(FolderSink):
    part_seconds = FILE_SECONDS
    part_bytes = FILE_BYTES
    idle_seconds = IDLE_SECONDS

    def _touch(self) -> None:
        super()._touch()
        found = next(self._path.glob("*.parquet"), None)
        if found is not None and _has_items(found) is not (self._holds is Item):
            raise SinkRefused(f"The output {self._path} has files of other columns; name another folder.")

    def _encoded(self, records: Sequence[Row]) -> dict[Key, bytes]:
        """A batch is one piece: its length is given to its first key, and refused rows are left out when it is read."""
        rows = last_of_each(records)
        lines = dict.fromkeys((record.key for record in rows), b"")
        lines[rows[0].key] = _item_batch(rows) if self._holds is Item else _batch(rows)
        return lines

    def _convert(self, part: Path) -> None:
        convert(part, self._path)


async def gather(output: Path, *, live: Collection[str], replay: Replay, spider: bool) -> None:
    await part_folder.gather(output, live=live, replay=replay, convert=convert)


def convert(part: Path, output: Path) -> None:
    """Turn a settled part into a file of the output, durable and visible at once when this returns."""
    # Not of one name: the worker and the gatherer may both be at it.
    new = output / f".{part.stem}.{os.getpid()}.tmp"
    try:
        with part.open("rb") as source:
            pieces, _ = scan(source)
            writer: pq.ParquetWriter | None = None
            with new.open("wb") as target:
                for table in _groups(part, pieces.values()):
                    writer = writer or pq.ParquetWriter(target, table.schema, compression="zstd")
                    writer.write_table(table)
                if writer is not None:
                    writer.close()
                target.flush()
                flush(target.fileno())
        if writer is not None:
            new.rename(output / f"{part.stem}.parquet")
            sync_folder(output)
    finally:
        new.unlink(missing_ok=True)


def _has_items(file: Path) -> bool:
    try:
        return ITEM_COLUMNS[-1] in pq.read_schema(file).names
    except pa.ArrowInvalid as error:
        raise SinkRefused(f"The output {file.parent} has a file {file.name} that is no Parquet file.") from error


def _groups(part: Path, pieces: Collection[Piece]) -> Iterator[pa.Table]:
    """What a part shows, in tables of the size of a row group."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    with pa.OSFile(str(part)) as source:
        for piece in pieces:
            source.seek(piece.start)
            with pa.ipc.open_stream(source.read_buffer(piece.batch.length)) as stream:
                for batch in stream:
                    refused = set(piece.refused or ())
                    if refused:
                        kept = [not is_refused((crawl, url), refused) for crawl, url, _ in piece.batch.lines]
                        batch = batch.filter(pa.array(kept))
                    if batch.num_rows:
                        waiting.append(batch)
                        size += batch.nbytes
            if size >= GROUP_BYTES:
                yield pa.Table.from_batches(waiting)
                waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _batch(records: Sequence[Row]) -> bytes:
    columns = [list(column) for column in zip(*map(msgspec.structs.astuple, records), strict=True)]
    columns[_ERROR] = [error or None for error in columns[_ERROR]]
    columns[_FETCHED_AT] = [int(at * 1000) if at else None for at in columns[_FETCHED_AT]]
    columns[_REDIRECTS] = [[{"url": url, "status": status} for url, status in hops] for hops in columns[_REDIRECTS]]
    return _stream(columns, SCHEMA)


def _item_batch(items: Sequence[Row]) -> bytes:
    columns = [list(column) for column in zip(*map(msgspec.structs.astuple, items), strict=True)]
    columns[_ITEM_FETCHED_AT] = [int(at * 1000) if at else None for at in columns[_ITEM_FETCHED_AT]]
    columns[_DATA] = [data_text(data) for data in columns[_DATA]]
    return _stream(columns, ITEM_SCHEMA)


def _stream(columns: Sequence[Sequence[object]], schema: pa.Schema) -> bytes:
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    target = pa.BufferOutputStream()
    with pa.ipc.new_stream(target, schema) as stream:
        stream.write_batch(pa.record_batch(arrays, schema=schema))
    encoded: bytes = target.getvalue().to_pybytes()
    return encoded
