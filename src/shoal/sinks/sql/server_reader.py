"""Tables of database servers, read: row after row by a cursor, so that little of them is in memory at once.

How to connect, and what errors mean, is the sinks' own. What they make when it is missing is not made here.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Annotated, Any

from msgspec import Meta

from shoal.errors import ShoalError, SinkUnavailable, UnknownCrawl
from shoal.sinks.columns import Row
from shoal.sinks.reader import Count, Place, ReadRequest, Values, place_of, record_of
from shoal.sinks.retry import ANSWER_SECONDS, TransientError
from shoal.sinks.sql.server import ServerSink
from shoal.sinks.sql.spider_tables import beginning_of, items_of, tables_of

# A row's key: `id`, a hash, and the number of an item.
_Key = tuple[Annotated[str, Meta(pattern="^[0-9a-f]{32}$")], Count]
# Texts are large: so many rows are in memory at once.
_ROWS = 100
_POSTGRESQL_COLUMNS = """
    SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped"""
_POSTGRESQL_TABLES = """
    SELECT tablename FROM pg_tables
    WHERE schemaname = coalesce($1, current_schema()) AND left(tablename, length($2::text)) = $2 ORDER BY tablename"""
_MYSQL_COLUMNS = """
    SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = %s"""


_MYSQL_TABLES = """
    SELECT table_name FROM information_schema.tables
    WHERE table_schema = DATABASE() AND LEFT(table_name, CHAR_LENGTH('{0}')) = '{0}' ORDER BY table_name"""


async def read(scheme: str, uri: str, wanted: ReadRequest) -> AsyncGenerator[list[tuple[Place, Row]], None]:
    sink, rows = _postgresql(uri) if scheme == "postgresql" else _mysql(uri)
    shown, found = sink._address.shown, False
    if wanted.items and wanted.most and sink._address.per_spider:
        raise sink._refused("has a table for each spider, which cannot be read by the page")
    async with contextlib.aclosing(answered(sink, rows(sink, wanted))) as batches:
        async for batch in batches:
            found = True
            yield [
                (_place(values, wanted), record_of(values, wanted.type, f"A row of {shown}")) for values in batch
            ]  # fmt: skip
    if wanted.crawl is not None and not found and wanted.behind is None:
        raise UnknownCrawl(f"The output {shown} has no page of crawl {wanted.crawl!r}.")


async def answered(sink: Any, batches: Any) -> AsyncGenerator[list[Any], None]:
    """What a server gives until there is no more, its errors in one sentence as its sink words them."""
    try:
        while True:
            async with asyncio.timeout(ANSWER_SECONDS):
                batch: list[Any] = await anext(batches, [])
            if not batch:
                break
            yield batch
    except ShoalError:
        raise
    except Exception as error:
        meant = error if isinstance(error, TransientError) else sink._meaning(error, connected=False)
        if isinstance(meant, TransientError):
            raise SinkUnavailable(f"The output {sink._address.shown} {meant}.") from error
        raise meant from error
    finally:
        with contextlib.suppress(Exception):
            await batches.aclose()


def _columns(sink: ServerSink[Any], table: str, found: Sequence[str], wanted: ReadRequest) -> list[str]:
    if not {"crawl", "url"} <= set(found):
        raise sink._refused(f"has no table {table} of Shoal's; name the output of a crawl")
    return list(dict.fromkeys([*(_key(wanted) if wanted.most else ()), *wanted.of_table(found)]))


def _key(wanted: ReadRequest) -> list[str]:
    return ["id", "number"] if wanted.items else ["id"]


def _place(values: Values, wanted: ReadRequest) -> Place:
    """Takes what is no field of a record out of a row."""
    return (values.pop("id").hex(), values.get("number", 0)) if wanted.most else ()


def _chosen(wanted: ReadRequest) -> tuple[str, list[Any]]:
    """What follows the name of a table, with a ? for each value.

    A page is read in the order of the key; there is no index of crawls, so rows of others are passed over on the way.
    """
    query, given = "", list[Any]()
    if wanted.crawl is not None:
        query, given = " WHERE crawl = ?", [wanted.crawl]
    if wanted.behind is not None:
        key, number = place_of(wanted.behind, _Key)
        behind = bytes.fromhex(key)
        if wanted.items:
            query, given = f"{query} AND id >= ? AND (id > ? OR number > ?)", [*given, behind, behind, number]
        else:
            query, given = f"{query} AND id > ?", [*given, behind]
    if wanted.most:
        query += f" ORDER BY {', '.join(_key(wanted))} LIMIT {wanted.most}"
    return query, given


def _numbered(wanted: ReadRequest) -> tuple[str, list[Any]]:
    """The same in the words of PostgreSQL."""
    chosen, given = _chosen(wanted)
    for number in range(1, len(given) + 1):
        chosen = chosen.replace("?", f"${number}", 1)
    return chosen, given


def _table(sink: Any, wanted: ReadRequest) -> str:
    name: str = sink._address.items("") if wanted.items else sink._address.table
    return name


def _postgresql(uri: str) -> tuple[ServerSink[Any], Any]:
    module = importlib.import_module("shoal.sinks.sql.postgresql")

    class Reading(module.PostgresqlSink):  # type: ignore[misc, name-defined]
        async def _prepare(self, connection: Any) -> None:
            """Nothing: it is read as it is."""

    async def rows(sink: Any, wanted: ReadRequest) -> AsyncIterator[list[Values]]:
        connection = await sink._connect()
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                if wanted.items and sink._address.per_spider:
                    schema, beginning = beginning_of(sink._address)
                    names = [name for (name,) in await connection.fetch(_POSTGRESQL_TABLES, schema or None, beginning)]
                    tables = [f"{schema}.{name}" if schema else name for name in names]
                    async for table, kinds in tables_of(sink, module, connection, tables):
                        chosen, given = _numbered(wanted)
                        query = f"SELECT * FROM {module._quoted(table)}{chosen}"  # noqa: S608 - one of our tables
                        cursor = await connection.cursor(query, *given)
                        while some := await cursor.fetch(_ROWS):
                            if items := items_of(sink, table, kinds, map(dict, some)):
                                yield items
                    return
                table = _table(sink, wanted)
                quoted = module._quoted(table)
                found = [name for (name,) in await connection.fetch(_POSTGRESQL_COLUMNS, quoted)]
                columns = _columns(sink, table, found, wanted)
                chosen, given = _numbered(wanted)
                query = f"SELECT {', '.join(columns)} FROM {quoted}{chosen}"  # noqa: S608 - names of our own
                cursor = await connection.cursor(query, *given)
                while some := await cursor.fetch(_ROWS):
                    yield [dict(row) for row in some]
        finally:
            sink._abandon(connection)

    return Reading(uri, worker="reader", on_trouble=lambda text: None), rows


def _mysql(uri: str) -> tuple[ServerSink[Any], Any]:
    module = importlib.import_module("shoal.sinks.sql.mysql")
    cursors: Any = importlib.import_module("asyncmy.cursors")

    class Reading(module.MysqlSink):  # type: ignore[misc, name-defined]
        async def _prepare(self, connection: Any) -> None:
            """Nothing: it is read as it is."""

    async def rows(sink: Any, wanted: ReadRequest) -> AsyncIterator[list[Values]]:
        connection = await sink._connect()
        try:
            if wanted.items and sink._address.per_spider:
                beginning = beginning_of(sink._address)[1]
                names = [name for (name,) in await module._ask(connection, _MYSQL_TABLES.format(beginning))]
                async for table, kinds in tables_of(sink, module, connection, names):
                    chosen, given = _chosen(wanted)
                    async with connection.cursor(cursors.SSCursor) as cursor:
                        await cursor.execute(f"SELECT * FROM `{table}`{chosen.replace('?', '%s')}", given)  # noqa: S608 - as above
                        named = [column[0] for column in cursor.description]
                        while some := await cursor.fetchmany(_ROWS):
                            if items := items_of(
                                sink, table, kinds, (dict(zip(named, row, strict=True)) for row in some)
                            ):
                                yield items
                return
            table = _table(sink, wanted)
            async with connection.cursor() as cursor:
                await cursor.execute(_MYSQL_COLUMNS, (table,))
                columns = _columns(sink, table, [name for (name,) in await cursor.fetchall()], wanted)
            # This one leaves the rows with the server until they are asked for.
            async with connection.cursor(cursors.SSCursor) as cursor:
                chosen, given = _chosen(wanted)
                asked = ", ".join(f"`{name}`" for name in columns)
                query = f"SELECT {asked} FROM `{table}`{chosen.replace('?', '%s')}"  # noqa: S608 - names of our own
                await cursor.execute(query, given)
                while some := await cursor.fetchmany(_ROWS):
                    yield [dict(zip(columns, row, strict=True)) for row in some]
        finally:
            sink._abandon(connection)

    return Reading(uri, worker="reader", on_trouble=lambda text: None), rows
