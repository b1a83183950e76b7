"""The fastest bulk path of each plain driver, to compare sinks with: each batch is durable, without other guarantees.

It inserts where the sink replaces, and writes one file where the sink keeps receipts and omits rejected records.
Tables and their keys are the sink's. Parquet's driver cannot make a batch durable: it flushes once, at the end.
"""

from __future__ import annotations

import contextlib
import csv
import os
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from shoal.model.record import Capture, Item, Record
from shoal.sinks.columns import COLUMNS, ITEM_COLUMNS, digest, moment
from shoal.sinks.contract import Stored
from shoal.sinks.sql.server import item_id

# The records that a worker delivers at once (worker/delivery.py).
BATCH = 500

Run = Callable[[Sequence[Stored]], Awaitable[None]]


def batches(records: Sequence[Stored]) -> list[Sequence[Stored]]:
    return [records[at : at + BATCH] for at in range(0, len(records), BATCH)]


def row(record: Record) -> list[Any]:
    values: list[Any] = list(msgspec.structs.astuple(record))
    values[COLUMNS.index("redirects")] = "[]"
    values[COLUMNS.index("fetched_at")] = moment(record)
    return values


def item_row(item: Item) -> list[Any]:
    data = msgspec.json.encode(item.data).decode()
    return [item.crawl, item.url, item.spider, item.number, moment(item), data]


def apart(batch: Sequence[Stored]) -> tuple[list[Record], list[Item]]:
    return [row for row in batch if isinstance(row, Record)], [row for row in batch if isinstance(row, Item)]


def into_file(path: Path, opener: Callable[[Path], Any], write: Callable[[Any, Sequence[Stored]], None]) -> Run:
    async def run(records: Sequence[Stored]) -> None:
        with opener(path) as file:
            for batch in batches(records):
                write(file, batch)
                file.flush()
                os.fdatasync(file.fileno())

    return run


def write_lines(file: Any, batch: Sequence[Stored]) -> None:
    file.write(b"".join(msgspec.json.encode(record) + b"\n" for record in batch))


def write_csv(file: Any, batch: Sequence[Stored]) -> None:
    csv.writer(file).writerows(map(row, apart(batch)[0]))


def into_warc(path: Path) -> Run:
    """FastWARC's writer with the sink's gzip level: the same three records per response, with digests."""
    from fastwarc.stream_io import GzipWriter
    from fastwarc.warc import WarcRecord, WarcRecordType

    from shoal.sinks.files import warc_writer

    def records_of(capture: Capture) -> list[Any]:
        page = capture.page
        head = "".join(f"{name}: {value}\r\n" for name, value in page.headers)
        response = f"HTTP/1.1 {page.status} OK\r\n{head}\r\n".encode() + page.body
        headers = "".join(f"{name}: {value}\r\n" for name, value in capture.request_headers)
        contents = (
            (WarcRecordType.response, "application/http; msgtype=response", response),
            (WarcRecordType.request, "application/http; msgtype=request", f"GET / HTTP/1.1\r\n{headers}\r\n".encode()),
            (WarcRecordType.metadata, "application/warc-fields", b"fetchTimeMs: 43\r\n"),
        )
        made = []
        for kind, content_type, content in contents:
            record = WarcRecord()
            record.init_headers(record_type=kind)
            record.headers["WARC-Target-URI"] = page.url
            record.headers["WARC-IP-Address"] = page.address
            record.headers["Content-Type"] = content_type
            record.set_bytes_content(content)
            made.append(record)
        return made

    async def run(records: Sequence[Stored]) -> None:
        with path.open("wb") as file:
            writer = GzipWriter(file, compression_level=warc_writer.GZIP_LEVEL)
            for batch in batches(records):
                for capture in batch:
                    assert isinstance(capture, Capture)
                    for record in records_of(capture):
                        record.write(writer, checksum_data=True)
                        writer.finish()  # a record is a member of its own
                file.flush()
                os.fdatasync(file.fileno())
            writer.close()

    return run


def into_parquet(path: Path) -> Run:
    import pyarrow as pa
    import pyarrow.parquet as pq

    async def run(records: Sequence[Stored]) -> None:
        with path.open("wb") as file:
            writer = None
            # About 32 MB, as the sink's row groups.
            for at in range(0, len(records), 6000):
                columns = zip(*map(row, apart(records[at : at + 6000])[0]), strict=True)
                table = pa.table(dict(zip(COLUMNS, map(list, columns), strict=True)))
                writer = writer or pq.ParquetWriter(file, table.schema, compression="zstd")
                writer.write_table(table)
            assert writer is not None
            writer.close()
            file.flush()
            os.fdatasync(file.fileno())

    return run


def into_sqlite(path: Path) -> Run:
    """`executemany` in one transaction per batch, with the sink's settings of the file."""

    async def run(records: Sequence[Stored]) -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.executescript(
            "PRAGMA page_size = 16384; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
            f"CREATE TABLE pages ({', '.join(COLUMNS)}, PRIMARY KEY (crawl, url));"
            f"CREATE TABLE items ({', '.join(ITEM_COLUMNS)}, PRIMARY KEY (crawl, url, spider, number));"
        )
        insert = f"INSERT INTO pages VALUES ({_places('?', COLUMNS)})"  # noqa: S608 - names of fields
        insert_item = f"INSERT INTO items VALUES ({_places('?', ITEM_COLUMNS)})"  # noqa: S608 - names of fields
        for batch in batches(records):
            pages, items = apart(batch)
            connection.execute("BEGIN")
            connection.executemany(insert, map(row, pages))
            connection.executemany(insert_item, map(item_row, items))
            connection.execute("COMMIT")
        connection.close()

    return run


def into_postgresql(uri: str, table: str, *, known: bool = False) -> Run:
    """COPY into tables like the sink's. If pages are known, COPY into a temporary table, and an upsert from there."""
    import asyncpg

    from shoal.sinks.sql import postgresql

    def values(item: Item) -> list[Any]:
        return postgresql._item_row(item, {}, per_spider=False)

    async def run(records: Sequence[Stored]) -> None:
        connection = await asyncpg.connect(uri)
        for name, definitions, key, compressed in (
            (table, postgresql.DEFINITIONS, "id", "text"),
            (f"{table}_items", postgresql.ITEM_DEFINITIONS, "id, number", "data"),
        ):
            columns = ", ".join(f"{column} {kind}" for column, kind in definitions.items())
            await connection.execute(f"CREATE TABLE IF NOT EXISTS {name} ({columns}, PRIMARY KEY ({key}))")
            await connection.execute(f"ALTER TABLE {name} ALTER COLUMN {compressed} SET COMPRESSION lz4")
        names = list(postgresql.DEFINITIONS)
        if known:
            await connection.execute(f"CREATE TEMP TABLE staged (LIKE {table} INCLUDING ALL) ON COMMIT DELETE ROWS")
        changes = ", ".join(f"{name} = excluded.{name}" for name in names)
        upsert = f"INSERT INTO {table} SELECT * FROM staged ON CONFLICT (id) DO UPDATE SET {changes}"  # noqa: S608 - names of fields
        for batch in batches(records):
            pages, items = apart(batch)
            # A COPY alone is a transaction.
            async with connection.transaction() if known or items else contextlib.nullcontext():
                rows = [postgresql._row(page) for page in pages]
                await connection.copy_records_to_table("staged" if known else table, records=rows, columns=names)
                if known:
                    await connection.execute(upsert)
                if items:
                    await connection.copy_records_to_table(
                        f"{table}_items", records=map(values, items), columns=list(postgresql.ITEM_DEFINITIONS)
                    )
        await connection.close()

    return run


def into_mysql(address: dict[str, Any], table: str) -> Run:
    """`executemany`, which builds statements of many rows. LOAD DATA LOCAL fails in asyncmy 0.2 with a TypeError."""
    import asyncmy

    from shoal.sinks.sql import mysql

    async def run(records: Sequence[Stored]) -> None:
        connection = await asyncmy.connect(**address, charset="utf8mb4")
        async with connection.cursor() as cursor:
            # Statements as large as the server accepts.
            cursor.max_stmt_length = 15_000_000
            for name, definitions, key in (
                (table, mysql.DEFINITIONS, "id"),
                (f"{table}_items", mysql.ITEM_DEFINITIONS, "id, number"),
            ):
                columns = ", ".join(f"`{column}` {kind}" for column, kind in definitions.items())
                made = f"CREATE TABLE {name} ({columns}, PRIMARY KEY ({key}))"
                await cursor.execute(f"{made} CHARSET = utf8mb4 COLLATE = utf8mb4_bin")
            insert = f"INSERT INTO {table} VALUES ({_places('%s', mysql.DEFINITIONS)})"  # noqa: S608 - names of fields
            insert_item = f"INSERT INTO {table}_items VALUES ({_places('%s', mysql.ITEM_DEFINITIONS)})"  # noqa: S608 - names of fields
            for batch in batches(records):
                pages, items = apart(batch)
                rows = [[digest(page.crawl, page.url), *map(_mysql_value, row(page))] for page in pages]
                await cursor.executemany(insert, rows)
                if items:
                    values = [[item_id(item), *map(_mysql_value, item_row(item))] for item in items]
                    await cursor.executemany(insert_item, values)
                await connection.commit()
        await connection.ensure_closed()

    return run


def _mysql_value(value: Any) -> Any:
    return value[:-1].replace("T", " ") if type(value) is str and value.endswith("Z") and value[10:11] == "T" else value


def _places(mark: str, columns: Any) -> str:
    return ", ".join([mark] * len(columns))
