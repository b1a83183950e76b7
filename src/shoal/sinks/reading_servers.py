"""Tables of database servers, read: row after row by a cursor, so that little of them is in memory at once.

How to connect, and what errors mean, is the sinks' own. What they make when it is missing is not made here.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from shoal.errors import ShoalError, SinkUnavailable, UnknownCrawl
from shoal.sinks.connection import ANSWER_SECONDS
from shoal.sinks.patience import Hindrance
from shoal.sinks.reading import Values, Wanted, record_of
from shoal.sinks.row import Row
from shoal.sinks.server import ServerSink

# Texts are large: so many rows are in memory at once.
_ROWS = 100
_POSTGRESQL_COLUMNS = """
    SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped"""
_MYSQL_COLUMNS = """
    SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = %s"""


async def read(scheme: str, uri: str, wanted: Wanted) -> AsyncGenerator[list[Row], None]:
    sink, rows = _postgresql(uri) if scheme == "postgresql" else _mysql(uri)
    shown, table = sink._address.shown, sink._address.table
    if wanted.items:
        if sink._address.per_spider:
            raise sink._refused("has a table for each spider, which cannot be read back")
        table = sink._address.items("")
    batches = rows(sink, table, wanted)
    found = False
    try:
        while True:
            async with asyncio.timeout(ANSWER_SECONDS):
                batch: list[Values] = await anext(batches, [])
            if not batch:
                break
            found = True
            yield [record_of(values, wanted.type, f"A row of {shown}") for values in batch]
    except ShoalError:
        raise
    except Exception as error:
        meant = error if isinstance(error, Hindrance) else sink._meaning(error, connected=False)
        if isinstance(meant, Hindrance):
            raise SinkUnavailable(f"The output {shown} {meant}.") from error
        raise meant from error
    finally:
        with contextlib.suppress(Exception):
            await batches.aclose()
    if wanted.crawl is not None and not found:
        raise UnknownCrawl(f"The output {shown} has no page of crawl {wanted.crawl!r}.")


def _columns(sink: ServerSink[Any], table: str, found: Sequence[str], wanted: Wanted) -> list[str]:
    if not {"crawl", "url"} <= set(found):
        raise sink._refused(f"has no table {table} of Shoal's; name the output of a crawl")
    return wanted.of_table(found)


def _postgresql(uri: str) -> tuple[ServerSink[Any], Any]:
    module = importlib.import_module("shoal.sinks.postgresql")

    class Reading(module.PostgresqlSink):  # type: ignore[misc, name-defined]
        async def _prepare(self, connection: Any) -> None:
            """Nothing: it is read as it is."""

    async def rows(sink: Any, table: str, wanted: Wanted) -> AsyncIterator[list[Values]]:
        connection = await sink._connect()
        try:
            quoted = ".".join(f'"{name}"' for name in table.split("."))
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                found = [name for (name,) in await connection.fetch(_POSTGRESQL_COLUMNS, quoted)]
                columns = _columns(sink, table, found, wanted)
                chosen, given = ("", []) if wanted.crawl is None else (" WHERE crawl = $1", [wanted.crawl])
                query = f"SELECT {', '.join(columns)} FROM {quoted}{chosen}"  # noqa: S608 - names of our own
                cursor = await connection.cursor(query, *given)
                while some := await cursor.fetch(_ROWS):
                    yield [dict(row) for row in some]
        finally:
            sink._abandon(connection)

    return Reading(uri, worker="reader", on_trouble=lambda text: None), rows


def _mysql(uri: str) -> tuple[ServerSink[Any], Any]:
    module = importlib.import_module("shoal.sinks.mysql")
    cursors: Any = importlib.import_module("asyncmy.cursors")

    class Reading(module.MysqlSink):  # type: ignore[misc, name-defined]
        async def _prepare(self, connection: Any) -> None:
            """Nothing: it is read as it is."""

    async def rows(sink: Any, table: str, wanted: Wanted) -> AsyncIterator[list[Values]]:
        connection = await sink._connect()
        try:
            async with connection.cursor() as cursor:
                await cursor.execute(_MYSQL_COLUMNS, (table,))
                columns = _columns(sink, table, [name for (name,) in await cursor.fetchall()], wanted)
            # This one leaves the rows with the server until they are asked for.
            async with connection.cursor(cursors.SSCursor) as cursor:
                chosen, given = ("", ()) if wanted.crawl is None else (" WHERE crawl = %s", (wanted.crawl,))
                names = ", ".join(f"`{name}`" for name in columns)
                await cursor.execute(f"SELECT {names} FROM `{table}`{chosen}", given)  # noqa: S608 - names of our own
                while some := await cursor.fetchmany(_ROWS):
                    yield [dict(zip(columns, row, strict=True)) for row in some]
        finally:
            sink._abandon(connection)

    return Reading(uri, worker="reader", on_trouble=lambda text: None), rows
