"""Tables of MySQL and MariaDB, read back."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from asyncmy.cursors import SSCursor

from shoal.sinks.reader import ReadRequest, Values
from shoal.sinks.sql.mysql import KINDS, SPIDER_DEFINITIONS, MysqlSink
from shoal.sinks.sql.server_reader import FETCHED_ROWS, condition, selected_columns, table_of
from shoal.sinks.sql.spider_tables import items_of, name_prefix, no_spider_table, spider_table

_COLUMNS = """
    SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = %s"""
_TABLES = """
    SELECT table_name FROM information_schema.tables
    WHERE table_schema = DATABASE() AND LEFT(table_name, CHAR_LENGTH(%s)) = %s ORDER BY table_name"""


async def batches(sink: MysqlSink, request: ReadRequest) -> AsyncGenerator[list[Values], None]:
    connection = await sink.connect()
    try:
        if request.items and sink.address.per_spider:
            async for batch in _spider_items(sink, connection, request):
                yield batch
            return
        table = table_of(sink, request)
        existing = await _names(connection, _COLUMNS, table)
        columns = ", ".join(f"`{name}`" for name in selected_columns(sink, table, existing, request))
        async for rows in _selected(connection, columns, table, request):
            yield rows
    finally:
        sink.abandon(connection)


async def _spider_items(sink: MysqlSink, connection: Any, request: ReadRequest) -> AsyncGenerator[list[Values], None]:
    prefix = name_prefix(sink.address)[1]
    is_empty = True
    for table in await _names(connection, _TABLES, prefix, prefix):
        kinds = await spider_table(sink, connection, table, SPIDER_DEFINITIONS, KINDS)
        if kinds is None:
            continue
        is_empty = False
        async for rows in _selected(connection, "*", table, request):
            if items := items_of(sink.address, table, kinds, rows):
                yield items
    if is_empty:
        raise no_spider_table(sink)


async def _selected(
    connection: Any, columns: str, table: str, request: ReadRequest
) -> AsyncGenerator[list[Values], None]:
    clause, values = condition(request)
    # This cursor leaves the rows on the server until they are fetched.
    async with connection.cursor(SSCursor) as cursor:
        await cursor.execute(f"SELECT {columns} FROM `{table}`{clause.replace('?', '%s')}", values)  # noqa: S608 - our table
        names = [column[0] for column in cursor.description]
        while rows := await cursor.fetchmany(FETCHED_ROWS):
            yield [dict(zip(names, row, strict=True)) for row in rows]


async def _names(connection: Any, statement: str, *values: str) -> list[str]:
    async with connection.cursor() as cursor:
        await cursor.execute(statement, values)
        return [name for (name,) in await cursor.fetchall()]
