"""Parquet: a folder of files, each made of one part of one worker.

A Parquet file cannot be read before its end is written, but a batch must be durable before that. So a worker writes its
batches as Arrow record batches into a part (part.py), and converts the part to a file of the output when it closes it.
The merge does that for workers that died. The file has the part's name, which is never used twice: after a crash the
same file is written again over the first.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_type_hints

import msgspec

from shoal.errors import SinkRefused
from shoal.model.record import Item, Record, RecordKey
from shoal.sinks.columns import COLUMNS, ITEM_COLUMNS, Row, data_text, last_of_each
from shoal.sinks.driver import lazy_import
from shoal.sinks.files import readers
from shoal.sinks.files.flat_items import KEY
from shoal.sinks.files.parquet_items import flattened
from shoal.sinks.files.part import PartBatch, flush, is_rejected, scan, sync_folder
from shoal.sinks.files.part_folder import FolderSink, FolderTechnology
from shoal.sinks.reader import Cursor, ReadRequest

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa, pq = lazy_import("pyarrow"), lazy_import("pyarrow.parquet")

# Larger files are read faster. These limit how long a page stays invisible, and how much a worker converts at once.
FILE_SECONDS = 300.0
FILE_BYTES = 128 << 20
# The pages of a crawl that finished while its workers continue with others are visible after this time.
IDLE_SECONDS = 30.0
# A row group is built in memory.
GROUP_BYTES = 32 << 20

_HINTS = get_type_hints(Record)
_ERROR, _REDIRECTS, _FETCHED_AT = (COLUMNS.index(name) for name in ("error", "redirects", "fetched_at"))
_ITEM_FETCHED_AT, _DATA = ITEM_COLUMNS.index("fetched_at"), ITEM_COLUMNS.index("data")


@functools.cache
def page_schema() -> pa.Schema:
    hops = pa.list_(pa.struct([pa.field("url", pa.string(), False), pa.field("status", pa.int64(), False)]))
    types = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    special = {"fetched_at": _timestamp(), "redirects": hops}
    return pa.schema(
        [pa.field(name, special.get(name) or types[_HINTS[name]], name in ("error", "fetched_at")) for name in COLUMNS]
    )


@functools.cache
def item_schema() -> pa.Schema:
    types = {"number": pa.int64(), "fetched_at": _timestamp()}
    return pa.schema([pa.field(name, types.get(name, pa.string()), name == "fetched_at") for name in ITEM_COLUMNS])


def _timestamp() -> pa.DataType:
    return pa.timestamp("ms", tz="UTC")


class ParquetSink(FolderSink):
    part_seconds = FILE_SECONDS
    part_bytes = FILE_BYTES
    idle_seconds = IDLE_SECONDS

    def _touch(self) -> None:
        super()._touch()
        existing = next(self._path.glob("*.parquet"), None)
        if existing is not None and _has_items(existing) is not (self._holds is Item):
            raise SinkRefused(f"The output {self._path} has files with other columns; name another folder.")

    def _encoded(self, records: Sequence[Row]) -> dict[RecordKey, bytes]:
        """A batch is one Arrow stream, stored under its first key. The conversion leaves rejected rows out."""
        rows = last_of_each(records)
        lines = dict.fromkeys((record.key for record in rows), b"")
        lines[rows[0].key] = _item_batch(rows) if self._holds is Item else _batch(rows)
        return lines

    def _convert(self, part: Path) -> None:
        convert(part, self._path)


class ParquetTechnology(FolderTechnology):
    schemes = ("parquet",)
    endings = (".parquet",)
    driver = "pyarrow"
    extra = "parquet"
    sink_class = ParquetSink

    def convert(self, part: Path, output: Path) -> None:
        convert(part, output)

    def rows(self, path: Path, request: ReadRequest) -> Iterator[tuple[Cursor, Row]]:
        return readers.parquet_rows(path, request)


TECHNOLOGY = ParquetTechnology()


def convert(part: Path, output: Path) -> None:
    """Turn a committed part into a file of the output. The file is durable and complete when it becomes visible."""
    # With the process id: a worker and a merge may convert the same part.
    new = output / f".{part.stem}.{os.getpid()}.tmp"
    try:
        with part.open("rb") as source:
            batches, _ = scan(source)
            writer: pq.ParquetWriter | None = None
            with new.open("wb") as target:
                tables = _groups(part, batches.values())
                if _are_items(part, batches.values()):
                    tables = flattened(lambda: _groups(part, batches.values()))
                for table in tables:
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
        return KEY in pq.read_schema(file).names
    except pa.ArrowInvalid as error:
        raise SinkRefused(f"The output {file.parent} has a file {file.name} that is not a Parquet file.") from error


def _are_items(part: Path, batches: Collection[PartBatch]) -> bool:
    """Whether a part has items, by the schema of its first rows."""
    with pa.OSFile(str(part)) as source:
        for batch in batches:
            source.seek(batch.start)
            with pa.ipc.open_stream(source.read_buffer(batch.batch.length)) as stream:
                return ITEM_COLUMNS[-1] in stream.schema.names
    return False


def _groups(part: Path, batches: Collection[PartBatch]) -> Iterator[pa.Table]:
    """The visible rows of a part, in tables of the size of a row group."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    with pa.OSFile(str(part)) as source:
        for batch in batches:
            source.seek(batch.start)
            with pa.ipc.open_stream(source.read_buffer(batch.batch.length)) as stream:
                for rows in stream:
                    rejected = set(batch.rejected or ())
                    if rejected:
                        kept = [not is_rejected((crawl, url), rejected) for crawl, url, _ in batch.batch.lines]
                        rows = rows.filter(pa.array(kept))
                    if rows.num_rows:
                        waiting.append(rows)
                        size += rows.nbytes
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
    return _stream(columns, page_schema())


def _item_batch(items: Sequence[Row]) -> bytes:
    columns = [list(column) for column in zip(*map(msgspec.structs.astuple, items), strict=True)]
    columns[_ITEM_FETCHED_AT] = [int(at * 1000) if at else None for at in columns[_ITEM_FETCHED_AT]]
    columns[_DATA] = [data_text(data) for data in columns[_DATA]]
    return _stream(columns, item_schema())


def _stream(columns: Sequence[Sequence[object]], schema: pa.Schema) -> bytes:
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    target = pa.BufferOutputStream()
    with pa.ipc.new_stream(target, schema) as stream:
        stream.write_batch(pa.record_batch(arrays, schema=schema))
    encoded: bytes = target.getvalue().to_pybytes()
    return encoded
