"""Tables of PostgreSQL, read back in one read-only transaction, so that all rows are from one point in time."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from shoal.sinks.reader import ReadRequest, Values
from shoal.sinks.sql.postgresql import KINDS, SPIDER_DEFINITIONS, PostgresqlSink, quoted
from shoal.sinks.sql.server_reader import FETCHED_ROWS, condition, selected_columns, table_of
from shoal.sinks.sql.spider_tables import items_of, name_prefix, no_spider_table, spider_table

_COLUMNS = """
    SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped"""
_TABLES = """
    SELECT tablename FROM pg_tables
    WHERE schemaname = coalesce($1, current_schema()) AND left(tablename, length($2::text)) = $2 ORDER BY tablename"""


async def batches(sink: PostgresqlSink, request: ReadRequest) -> AsyncGenerator[list[Values], None]:
    connection = await sink.connect()
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            if request.items and sink.address.per_spider:
                async for batch in _spider_items(sink, connection, request):
                    yield batch
                return
            table = table_of(sink, request)
            existing = [name for (name,) in await connection.fetch(_COLUMNS, quoted(table))]
            columns = ", ".join(selected_columns(sink, table, existing, request))
            clause, values = _numbered(request)
            query = f"SELECT {columns} FROM {quoted(table)}{clause}"  # noqa: S608 - names of our own
            cursor = await connection.cursor(query, *values)
            while rows := await cursor.fetch(FETCHED_ROWS):
                yield [dict(row) for row in rows]
    finally:
        sink.abandon(connection)


async def _spider_items(
    sink: PostgresqlSink, connection: Any, request: ReadRequest
) -> AsyncGenerator[list[Values], None]:
    schema, prefix = name_prefix(sink.address)
    names = [name for (name,) in await connection.fetch(_TABLES, schema or None, prefix)]
    is_empty = True
    for table in [f"{schema}.{name}" if schema else name for name in names]:
        kinds = await spider_table(sink, connection, table, SPIDER_DEFINITIONS, KINDS)
        if kinds is None:
            continue
        is_empty = False
        clause, values = _numbered(request)
        cursor = await connection.cursor(f"SELECT * FROM {quoted(table)}{clause}", *values)  # noqa: S608 - our table
        while rows := await cursor.fetch(FETCHED_ROWS):
            if items := items_of(sink.address, table, kinds, map(dict, rows)):
                yield items
    if is_empty:
        raise no_spider_table(sink)


def _numbered(request: ReadRequest) -> tuple[str, list[Any]]:
    """The condition with numbered parameters."""
    clause, values = condition(request)
    for number in range(1, len(values) + 1):
        clause = clause.replace("?", f"${number}", 1)
    return clause, values
