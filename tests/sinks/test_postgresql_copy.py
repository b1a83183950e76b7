"""PostgreSQL stores many new pages by COPY, and keeps its guarantees where COPY is impossible."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import asyncpg
import pytest

from shoal.sinks.sql.postgresql import COPIED_ROWS
from tests.proxy import proxy
from tests.servers import WAIT_SECONDS
from tests.sinks.databases import Database
from tests.sinks.outputs import item, page
from tests.sinks.test_servers import opened, rows, until

MANY = range(100, 100 + COPIED_ROWS * 2)


@pytest.fixture
def database(postgresql_server: Database) -> Database:
    return postgresql_server


async def many(database: Database, name: str, **values: Any) -> None:
    async with opened(database.uri(table=name)) as sink:
        await sink.write([page(number, **values) for number in MANY], b"")


def seen(database: Database, name: str, column: str) -> set[Any]:
    stored = rows(database, name)
    assert len(stored) == len(MANY)
    return {row[column] for row in stored}


async def blocked(database: Database, name: str, statement: str) -> asyncio.subprocess.Process:
    """Do the statement, and keep a lock on the table, which can be read and not written until `released`."""
    psql = await asyncio.create_subprocess_exec(
        "psql", database.uri(), "-XAtq", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert psql.stdin is not None
    assert psql.stdout is not None
    psql.stdin.write(f"BEGIN; LOCK TABLE {name} IN SHARE ROW EXCLUSIVE MODE; {statement}; SELECT 1;\n".encode())
    assert await psql.stdout.readline() == b"1\n"
    return psql


async def released(psql: asyncio.subprocess.Process) -> None:
    await psql.communicate(b"COMMIT;\n")


def waits(database: Database, name: str) -> bool:
    query = f"SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '{name}'::regclass"  # noqa: S608
    return database.sql(query).strip() == b"1"


async def test_many_new_pages_are_copied(database: Database, table: str) -> None:
    async with opened(database.uri(table=table)) as sink:
        psql = await blocked(database, table, "SELECT 1 LIMIT 0")
        write = asyncio.create_task(sink.write([page(number) for number in MANY], b""))
        await until(lambda: waits(database, table))
        doing = f"SELECT query FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{table}%'"  # noqa: S608
        assert database.sql(doing).startswith(b"COPY ")
        await released(psql)
        await asyncio.wait_for(write, WAIT_SECONDS)
    assert seen(database, table, "status") == {200}


async def test_pages_stored_meanwhile_by_another_worker_are_replaced(database: Database, table: str) -> None:
    async with opened(database.uri(table=table)) as sink:
        await sink.write([page(MANY[3], title="first")], b"")
        database.sql(f"CREATE TABLE {table}_kept AS TABLE {table}; TRUNCATE {table}")
        psql = await blocked(database, table, f"INSERT INTO {table} TABLE {table}_kept")
        write = asyncio.create_task(sink.write([page(number, title="second") for number in MANY], b""))
        await until(lambda: waits(database, table))
        await released(psql)
        await asyncio.wait_for(write, WAIT_SECONDS)
    assert seen(database, table, "title") == {"second"}


async def test_a_copy_whose_response_was_lost_stores_each_page_once(database: Database, table: str) -> None:
    async with proxy(database.port) as between, opened(database.uri(table=table, port=between.port)) as sink:
        psql = await blocked(database, table, "SELECT 1 LIMIT 0")
        write = asyncio.create_task(sink.write([page(number) for number in MANY], b""))
        await until(lambda: waits(database, table))
        between.swallow_replies = True
        await released(psql)
        await until(lambda: len(rows(database, table)) == len(MANY))
        assert not write.done()
        between.swallow_replies = False
        between.cut()
        await asyncio.wait_for(write, WAIT_SECONDS)
    assert seen(database, table, "status") == {200}


async def test_a_sink_can_be_used_after_a_cancelled_copy(database: Database, table: str) -> None:
    async with opened(database.uri(table=table)) as sink:
        psql = await blocked(database, table, "SELECT 1 LIMIT 0")
        # More text than buffers hold, so that it is cancelled while it sends.
        write = asyncio.create_task(sink.write([page(number, text="x" * 300_000) for number in MANY[:20]], b""))
        await until(lambda: waits(database, table))
        write.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(write, WAIT_SECONDS)
        await released(psql)
        await asyncio.wait_for(sink.write([page(number) for number in MANY], b""), WAIT_SECONDS)
    assert seen(database, table, "status") == {200}


@pytest.mark.parametrize("text", ["half \ud800 of a pair", "a NUL \0 inside"])
async def test_a_text_that_copy_refuses_is_stored_anyway(database: Database, table: str, text: str) -> None:
    troubles: list[str] = []
    async with opened(database.uri(table=table), troubles) as sink:
        await sink.write([page(number, title=text) for number in MANY], b"")
        assert seen(database, table, "title") == {text.replace("\ud800", "\ufffd").replace("\0", "\ufffd")}
        # Within a transaction, too.
        pages = [page(number + 1000, title=text, spider="books") for number in MANY]
        await sink.write([*pages, item(1100)], b"")
    assert troubles == []
    assert len(rows(database, table)) == 2 * len(MANY)


async def test_a_table_whose_columns_have_other_types_takes_many_pages(database: Database, table: str) -> None:
    await many(database, table)
    database.sql(f"TRUNCATE {table}; ALTER TABLE {table} ALTER status TYPE integer, ALTER fetched_at TYPE timestamp")
    await many(database, table, title="again")
    assert seen(database, table, "title") == {"again"}


async def test_a_table_with_row_level_security_takes_many_pages(database: Database, table: str) -> None:
    await many(database, table)
    database.sql(
        f"TRUNCATE {table}; CREATE ROLE {table} LOGIN PASSWORD 'p'; GRANT ALL ON {table} TO {table}; "
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY; CREATE POLICY own ON {table} USING (true) WITH CHECK (true)"
    )
    async with opened(database.uri(table=table, login=f"{table}:p")) as sink:
        await sink.write([page(number) for number in MANY], b"")
    assert seen(database, table, "status") == {200}


async def test_a_lost_connection_is_not_reported_by_the_event_loop_too(database: Database, table: str) -> None:
    """asyncpg raises the error, and leaves a future with the same error behind."""
    loop = asyncio.get_running_loop()
    reported: list[Any] = []
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    await many(database, table)
    await many(database, table)
    other = RuntimeError("another one")
    for error in (asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"), other):
        loop.create_future().set_exception(error)
    gc.collect()
    assert reported == [other]
