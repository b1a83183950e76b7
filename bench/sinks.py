"""Outputs: records a second and CPU per record of each sink, beside the fastest bulk path of its plain driver.

The plain path keeps no promise that a driver does not: it inserts where the sink replaces, writes one file where the
sink keeps receipts and cuts what was not acknowledged. Both make each batch durable, except Parquet, whose driver
cannot: there the plain path flushes once, at the end. CPU is that of this process, not of the database server.
"""

from __future__ import annotations

import csv
import gzip
import os
import random
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from bench.figures import Figure
from bench.size import Size
from shoal.model.record import Record
from shoal.sinks import gather, open_sink
from shoal.sinks.row import COLUMNS, digest, moment

# What a worker hands over at once (worker/delivery.py).
BATCH = 500
# Of the plain path's rate, for the sinks that have a driver to compare with.
TARGET = 0.6
COMPARED = ("sqlite", "postgresql", "mysql", "parquet")

Run = Callable[[Sequence[Record]], Awaitable[None]]


def pages(number: int) -> list[Record]:
    """Records like those of documentation: 5 KB of text, which compresses as language does."""
    chance = random.Random(1)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(2, 9))) for _ in range(3000)]
    weights = [1 / rank for rank in range(1, 3001)]
    return [
        Record(
            crawl="bench", url=f"https://docs.example/{chance.getrandbits(32)}/page-{at}.html", status=200,
            title=f"Chapter {at}", text=" ".join(chance.choices(words, weights, k=900)), language="en",
            content_type="text/html", charset="utf-8", bytes=39_000, depth=3, links=70, etag='"5f3e-1a2b"',
            fetched_at=1.7e9 + at, response_seconds=0.043, bytes_received=9_000, address="192.0.2.1",
            http_version="1.1", worker="worker1",
        )
        for at in range(number)
    ]  # fmt: skip


def batches(records: Sequence[Record]) -> list[Sequence[Record]]:
    return [records[at : at + BATCH] for at in range(0, len(records), BATCH)]


def row(record: Record) -> list[Any]:
    values: list[Any] = list(msgspec.structs.astuple(record))
    values[COLUMNS.index("redirects")] = "[]"
    values[COLUMNS.index("fetched_at")] = moment(record)
    return values


def through_sink(uri: str) -> Run:
    async def run(records: Sequence[Record]) -> None:
        sink = open_sink(uri, worker="worker")
        await sink.open()
        for batch in batches(records):
            await sink.write(batch, b"receipt")
            await sink.settle(())
        await sink.close()
        await gather(uri, live=(), replay=_nobody)

    return run


async def _nobody(receipt: bytes) -> list[tuple[str, str]]:
    raise AssertionError("everything was settled")


def plain_file(path: Path, opener: Callable[[Path], Any], write: Callable[[Any, Sequence[Record]], None]) -> Run:
    async def run(records: Sequence[Record]) -> None:
        with opener(path) as file:
            for batch in batches(records):
                write(file, batch)
                file.flush()
                os.fdatasync(file.fileno())

    return run


def _write_lines(file: Any, batch: Sequence[Record]) -> None:
    file.write(b"".join(msgspec.json.encode(record) + b"\n" for record in batch))


def _write_csv(file: Any, batch: Sequence[Record]) -> None:
    csv.writer(file).writerows(map(row, batch))


def plain_sqlite(path: Path) -> Run:
    async def run(records: Sequence[Record]) -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.executescript(
            "PRAGMA page_size = 16384; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
            f"CREATE TABLE pages ({', '.join(COLUMNS)}, PRIMARY KEY (crawl, url))"
        )
        insert = f"INSERT INTO pages VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608 - names of fields
        for batch in batches(records):
            connection.execute("BEGIN")
            connection.executemany(insert, map(row, batch))
            connection.execute("COMMIT")
        connection.close()

    return run


def plain_parquet(path: Path) -> Run:
    import pyarrow as pa
    import pyarrow.parquet as pq

    async def run(records: Sequence[Record]) -> None:
        with path.open("wb") as file:
            writer = None
            # About 32 MB, as the sink's row groups.
            for at in range(0, len(records), 6000):
                columns = zip(*map(row, records[at : at + 6000]), strict=True)
                table = pa.table(dict(zip(COLUMNS, map(list, columns), strict=True)))
                writer = writer or pq.ParquetWriter(file, table.schema, compression="zstd")
                writer.write_table(table)
            assert writer is not None
            writer.close()
            file.flush()
            os.fdatasync(file.fileno())

    return run


def plain_postgresql(uri: str, table: str) -> Run:
    """COPY into a table like the sink's, with its key."""
    import asyncpg

    from shoal.sinks import postgresql

    async def run(records: Sequence[Record]) -> None:
        connection = await asyncpg.connect(uri)
        columns = ", ".join(f"{name} {kind}" for name, kind in postgresql.DEFINITIONS.items())
        await connection.execute(f"CREATE TABLE {table} ({columns})")
        await connection.execute(f"ALTER TABLE {table} ALTER COLUMN text SET COMPRESSION lz4")
        for batch in batches(records):
            await connection.copy_records_to_table(
                table, records=[postgresql._row(record) for record in batch], columns=list(postgresql.DEFINITIONS)
            )
        await connection.close()

    return run


def plain_mysql(address: dict[str, Any], table: str) -> Run:
    import asyncmy

    from shoal.sinks import mysql

    async def run(records: Sequence[Record]) -> None:
        connection = await asyncmy.connect(**address, charset="utf8mb4", autocommit=True)
        async with connection.cursor() as cursor:
            columns = ", ".join(f"`{name}` {kind}" for name, kind in mysql.DEFINITIONS.items())
            await cursor.execute(f"CREATE TABLE {table} ({columns}) CHARSET = utf8mb4 COLLATE = utf8mb4_bin")
            insert = f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(mysql.DEFINITIONS))})"  # noqa: S608 - names of fields
            for batch in batches(records):
                await cursor.executemany(
                    insert, [[digest(record.crawl, record.url), *map(_mysql_value, row(record))] for record in batch]
                )
        await connection.ensure_closed()

    return run


def _mysql_value(value: Any) -> Any:
    return value[:-1].replace("T", " ") if type(value) is str and value.endswith("Z") and value[10:11] == "T" else value


def contestants(stack: ExitStack, folder: Path) -> dict[str, tuple[Callable[[int], Run], Callable[[int], Run]]]:
    """Of each technology that is on this machine: the sink and the plain path, each made for one repeat."""
    found: dict[str, tuple[Callable[[int], Run], Callable[[int], Run]]] = {
        "sqlite": (
            lambda at: through_sink(str(folder / f"{at}.db")),
            lambda at: plain_sqlite(folder / f"plain{at}.db"),
        ),
        "jsonl": (
            lambda at: through_sink(str(folder / f"{at}.jsonl")),
            lambda at: plain_file(folder / f"plain{at}.jsonl", lambda path: path.open("wb"), _write_lines),
        ),
        "jsonl.gz": (
            lambda at: through_sink(str(folder / f"{at}.jsonl.gz")),
            lambda at: plain_file(folder / f"plain{at}.gz", lambda path: gzip.GzipFile(path, "wb", 1), _write_lines),
        ),
        "csv": (
            lambda at: through_sink(str(folder / f"{at}.csv")),
            lambda at: plain_file(folder / f"plain{at}.csv", lambda path: path.open("w", newline=""), _write_csv),
        ),
        "parquet": (
            lambda at: through_sink(str(folder / f"{at}.parquet")),
            lambda at: plain_parquet(folder / f"plain{at}.parquet"),
        ),
    }
    from tests.sinks import databases

    if shutil.which("psql"):
        server = stack.enter_context(databases.postgresql(durable=True))
        found["postgresql"] = (
            lambda at: through_sink(server.uri(table=f"sink{at}")),
            lambda at: plain_postgresql(server.uri(), f"plain{at}"),
        )
    if shutil.which("mariadb"):
        there = stack.enter_context(databases.mariadb())
        place = {
            "host": "127.0.0.1", "port": there.port, "user": "shoal", "password": databases.PASSWORD,
            "database": "shoal",
        }  # fmt: skip
        found["mysql"] = (
            lambda at: through_sink(there.uri(table=f"sink{at}")),
            lambda at: plain_mysql(place, f"plain{at}"),
        )
    return found


async def sinks(size: Size) -> list[Figure]:
    """Records a second of each sink as a share of the plain path, and its CPU per record."""
    records = pages(size.of(20_000))
    figures = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-bench-")))
        for name, (make_sink, make_plain) in contestants(stack, folder).items():
            ours, theirs = [], []
            # The first of each loads what it needs, and does not count.
            for at in range(size.repeats + 1):
                theirs.append(await _measured(make_plain(at), records))
                ours.append(await _measured(make_sink(at), records))
            figures += _figures(name, ours[1:], theirs[1:], len(records))
    return figures


async def _measured(run: Run, records: Sequence[Record]) -> tuple[float, float]:
    """Seconds by the clock and of CPU."""
    os.sync()
    began, used = time.perf_counter(), time.process_time()
    await run(records)
    return time.perf_counter() - began, time.process_time() - used


def _figures(
    name: str, ours: list[tuple[float, float]], theirs: list[tuple[float, float]], records: int
) -> list[Figure]:
    rate = sorted(records / seconds for seconds, _ in theirs)[len(theirs) // 2]
    cpu = sorted(used / records * 1e6 for _, used in theirs)[len(theirs) // 2]
    return [
        Figure(
            name=f"sink {name}: share of the plain path", unit="x",
            values=[there[0] / here[0] for here, there in zip(ours, theirs, strict=True)],
            at_least=TARGET if name in COMPARED else None, note="the two in turn",
        ),
        Figure(
            name=f"sink {name}: speed", unit="records/s", values=[records / seconds for seconds, _ in ours],
            note=f"plain path {rate:,.0f} records/s",
        ),
        Figure(
            name=f"sink {name}: CPU", unit="us/record", values=[used / records * 1e6 for _, used in ours],
            note=f"plain path {cpu:.0f} us/record",
        ),
    ]  # fmt: skip
