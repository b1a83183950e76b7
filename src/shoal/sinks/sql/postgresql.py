"""PostgreSQL: tables with one row per key, written by any number of workers at the same time.

Pages that are all new, as nearly all are, are stored with COPY. Items, small batches, and batches with a known page are
stored with one statement: `INSERT ... SELECT FROM unnest(arrays) ON CONFLICT`. It takes three times the CPU time in
this process and half as much again in the server. (COPY into a temporary table and an upsert from there is faster only
from about 100 rows. asyncpg's `executemany` hangs when it is cancelled.)

The key of a page is `id`, a hash of crawl and URL: an index of PostgreSQL cannot hold a long URL. The key of an item is
`id`, a hash of crawl, URL and spider, and `number`.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from shoal.brokers.connection import CONNECT_SECONDS
from shoal.model.record import Item, Record
from shoal.sinks.columns import (
    COLUMNS,
    MOST_COLUMNS,
    REPLACEMENT,
    ColumnKind,
    Row,
    confirmed_sql,
    data_text,
    digest,
    spread,
)
from shoal.sinks.contract import OnTrouble
from shoal.sinks.driver import lazy_import
from shoal.sinks.retry import QUIET_SECONDS, TransientError
from shoal.sinks.sql.column_types import ColumnTypes, item_columns, page_columns, spider_columns
from shoal.sinks.sql.server import TABLE_NAME, ServerAddress, ServerSink, ServerTable, ServerTechnology, item_id

if TYPE_CHECKING:
    import asyncpg

    from shoal.sinks.reader import Cursor, ReadRequest
else:
    asyncpg = lazy_import("asyncpg")

_TYPES = ColumnTypes(
    key="TEXT NOT NULL",
    text="TEXT NOT NULL DEFAULT ''",
    whole="BIGINT NOT NULL DEFAULT 0",
    real="DOUBLE PRECISION NOT NULL DEFAULT 0",
    flag="BOOLEAN NOT NULL DEFAULT false",
    error="TEXT",
    list="JSONB NOT NULL DEFAULT '[]'",
    fetched_at="TIMESTAMPTZ",
    number="BIGINT",
    data="JSONB NOT NULL DEFAULT '{}'",
)
_ID = {"id": "BYTEA"}
DEFINITIONS = _ID | page_columns(_TYPES)
ITEM_DEFINITIONS = _ID | item_columns(_TYPES)
SPIDER_DEFINITIONS = spider_columns(ITEM_DEFINITIONS)
FIELD_TYPES = {
    ColumnKind.TEXT: "text",
    ColumnKind.NUMBER: "double precision",
    ColumnKind.BOOLEAN: "boolean",
    ColumnKind.JSON: "jsonb",
}
KINDS = {type_: kind for kind, type_ in FIELD_TYPES.items()}

# A 304 response updates the row of its page; any other response replaces it.
_CONFIRMED = confirmed_sql(lambda name: f"stored.{name}", lambda name: f"excluded.{name}")
_CHANGES = ", ".join(
    f"{name} = CASE WHEN excluded.status = 304 THEN {_CONFIRMED.get(name, f'stored.{name}')} ELSE excluded.{name} END"
    for name in COLUMNS
)
_ERROR, _REDIRECTS, _FETCHED_AT = (COLUMNS.index(name) for name in ("error", "redirects", "fetched_at"))

_FIND_COLUMNS = """
    SELECT attname, format_type(atttypid, NULL) FROM pg_attribute
    WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped"""
_FIND_KEY = """
    SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
    WHERE indrelid = to_regclass($1) AND indisprimary"""

# Errors that pass or that an administrator repairs, by the start of their SQLSTATE.
_TRANSIENT = {
    "08": "lost the connection",
    "40": "is locked by another session",
    "55": "is locked by another session",
    "25006": "is read-only",
    "42P01": "no longer has its table",
    "42703": "lacks a column",
    "53100": "has no space left on its disk",
    "53": "is out of resources",
    "57": "is not ready",
    "58": "has a disk I/O error",
}
_QUIET = ("08", "40", "55", "42P01", "42703")
_ADVICE = {"28": "check user and password", "3D000": "create it first", "42501": "ask an administrator to grant it"}
# For fewer pages, checking whether they are known costs more time than COPY saves.
COPIED_ROWS = 20


class PostgresqlSink(ServerSink["asyncpg.Connection"]):
    nul = REPLACEMENT

    def encoding_errors(self) -> tuple[type[Exception], ...]:
        return (UnicodeEncodeError, asyncpg.DataError)

    async def connect(self) -> asyncpg.Connection:
        _ignore_lost_connections(asyncio.get_running_loop())
        try:
            return await asyncpg.connect(
                self.address.without("table", "table_per_spider"),
                timeout=CONNECT_SECONDS,
                server_settings={"application_name": "shoal"},
            )
        except asyncpg.InterfaceError as error:
            # The driver's message may quote the URI.
            raise self.refused("has an invalid URI or login method; check its options") from error

    async def _prepare(self, connection: asyncpg.Connection) -> None:
        encoding = await connection.fetchval("SHOW server_encoding")
        if encoding != "UTF8":
            raise self.refused(f"has the encoding {encoding}, which cannot hold every page; name a database with UTF8")
        # An acknowledged page is never fetched again. A stronger setting than `on` is the administrator's decision.
        if await connection.fetchval("SHOW synchronous_commit") == "off":
            await connection.execute("SET synchronous_commit = on")
        await self._ensure(connection, ServerTable(self.address.table, DEFINITIONS, ("id",)))
        await super()._prepare(connection)

    async def _ensure_items(
        self, connection: asyncpg.Connection, name: str, fields: Mapping[str, ColumnKind]
    ) -> dict[str, ColumnKind]:
        definitions = SPIDER_DEFINITIONS if self.address.per_spider else ITEM_DEFINITIONS
        columns = await self._ensure(connection, ServerTable(name, definitions, ("id", "number")), fields)
        return {name: KINDS[type_] for name, type_ in columns.items() if name not in definitions and type_ in KINDS}

    async def _ensure(
        self, connection: asyncpg.Connection, table: ServerTable, fields: Mapping[str, ColumnKind] | None = None
    ) -> dict[str, str]:
        """Create the table or its missing columns, `fields` as far as possible; returns the types of its columns."""
        needed = table.definitions.keys() | (fields or {}).keys()
        columns = await self.columns(connection, table)
        if needed - columns.keys():
            async with connection.transaction():
                # Workers start together: only one of them at a time checks and changes the table.
                await connection.execute("SELECT pg_advisory_xact_lock(hashtext('shoal ' || $1))", table.name)
                await self._make(connection, table, await self.columns(connection, table))
                columns = await self.columns(connection, table)
                room = MOST_COLUMNS + len(table.definitions) - len(columns)
                missing = [(name, kind) for name, kind in (fields or {}).items() if name not in columns]
                for name, kind in missing[: max(room, 0)]:
                    await self._add_field(connection, table, name, kind)
                columns = await self.columns(connection, table)
        return columns

    async def columns(self, connection: asyncpg.Connection, table: ServerTable) -> dict[str, str]:
        """The types of the table's columns, {} if there is no table; SinkRefused if it is not a table of Shoal."""
        columns = dict(await connection.fetch(_FIND_COLUMNS, quoted(table.name)))
        if columns:
            key = {name for (name,) in await connection.fetch(_FIND_KEY, quoted(table.name))}
            if key != set(table.key) or columns["id"] != "bytea" or not columns.keys() >= {"crawl", "url"}:
                raise self.refused(f"has a table {table.name} that is not from Shoal; choose another with ?table=NAME")
        return columns

    async def _make(self, connection: asyncpg.Connection, table: ServerTable, existing: Mapping[str, str]) -> None:
        quoted_name = quoted(table.name)
        if existing:
            for name in table.definitions.keys() - existing:
                await connection.execute(f"ALTER TABLE {quoted_name} ADD COLUMN {name} {table.definitions[name]}")
            return
        columns = ", ".join(f"{name} {definition}" for name, definition in table.definitions.items())
        await connection.execute(f"CREATE TABLE {quoted_name} ({columns}, PRIMARY KEY ({', '.join(table.key)}))")
        for name in table.definitions.keys() & {"text", "data", "extra"}:
            try:
                async with connection.transaction():
                    # Texts compressed with lz4 are stored twice as fast as with the default.
                    await connection.execute(f"ALTER TABLE {quoted_name} ALTER COLUMN {name} SET COMPRESSION lz4")
            except (asyncpg.FeatureNotSupportedError, asyncpg.PostgresSyntaxError, asyncpg.InvalidParameterValueError):
                pass  # older than version 14, or built without lz4

    async def _add_field(self, connection: asyncpg.Connection, table: ServerTable, name: str, kind: ColumnKind) -> None:
        try:
            async with connection.transaction():
                await connection.execute(f'ALTER TABLE {quoted(table.name)} ADD COLUMN "{name}" {FIELD_TYPES[kind]}')
        except asyncpg.SyntaxOrAccessError:
            pass  # a reserved name, or a missing permission: the values go to `extra`

    def _transaction(self, connection: asyncpg.Connection) -> AbstractAsyncContextManager[Any]:
        transaction: AbstractAsyncContextManager[Any] = connection.transaction()
        return transaction

    async def _upsert_pages(self, connection: asyncpg.Connection, pages: Sequence[Record]) -> None:
        rows = _ordered(map(_row, pages))
        if len(rows) >= COPIED_ROWS and await self._copied(connection, rows):
            return
        insert = _insert(self.address.table, DEFINITIONS)
        await connection.execute(f"{insert} ON CONFLICT (id) DO UPDATE SET {_CHANGES}", *_arrays(rows))

    async def _copied(self, connection: asyncpg.Connection, rows: Sequence[list[Any]]) -> bool:
        """Store rows with COPY if all are new. False, with nothing stored, if one is known or COPY fails."""
        quoted_name = quoted(self.address.table)
        # This form uses the index for each id, whatever size the planner assumes for the table.
        known = f"SELECT true FROM {quoted_name} AS stored WHERE stored.id = given.id"  # noqa: S608 - a checked table
        find = f"SELECT EXISTS (SELECT FROM unnest($1::bytea[]) AS given (id) WHERE ({known}))"  # noqa: S608 - as above
        if await connection.fetchval(find, [row[0] for row in rows]):
            return False
        schema, _, table = self.address.table.rpartition(".")
        savepoint = connection.transaction() if connection.is_in_transaction() else contextlib.nullcontext()
        try:
            async with savepoint:
                await connection.copy_records_to_table(
                    table, schema_name=schema or None, columns=list(DEFINITIONS), records=rows
                )
        except _copy_errors():
            return False
        return True

    async def _delete_items(
        self, connection: asyncpg.Connection, table: str, ids: Sequence[bytes], items: Sequence[Item]
    ) -> None:
        await connection.execute(f"DELETE FROM {quoted(table)} WHERE id = ANY ($1::bytea[])", ids)  # noqa: S608 - a checked table

    async def _upsert_items(self, connection: asyncpg.Connection, table: str, items: Sequence[Item]) -> None:
        fields = {name: kind for name, kind in self._seen[table].items() if kind is not None}
        if self.address.per_spider:
            columns = SPIDER_DEFINITIONS | {f'"{name}"': FIELD_TYPES[kind] for name, kind in fields.items()}
        else:
            columns = ITEM_DEFINITIONS
        changes = ", ".join(f"{name} = excluded.{name}" for name in columns)
        rows = (_item_row(item, fields, per_spider=self.address.per_spider) for item in items)
        insert = _insert(table, columns)
        await connection.execute(f"{insert} ON CONFLICT (id, number) DO UPDATE SET {changes}", *_arrays(_ordered(rows)))

    async def _disconnect(self, connection: asyncpg.Connection) -> None:
        await connection.close()

    def abandon(self, connection: asyncpg.Connection) -> None:
        connection.terminate()

    def _explained(self, error: Exception, *, connected: bool) -> Exception:
        if isinstance(error, asyncpg.PostgresError):
            state, message = error.sqlstate or "", (error.args[0] if error.args else "no reason").rstrip(".")
            for start, phrase in _TRANSIENT.items():
                if state.startswith(start):
                    quiet_seconds = QUIET_SECONDS * state.startswith(_QUIET)
                    return TransientError(f"{phrase} ({message})", quiet_seconds=quiet_seconds)
            advice = next((text for start, text in _ADVICE.items() if state.startswith(start)), "")
            return self.refused(f"refused: {message}" + (f"; {advice}" if advice else ""))
        if isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError):
            # asyncpg's errors for a server that was killed between a request and its reply.
            return TransientError("lost the connection", quiet_seconds=QUIET_SECONDS)
        return super()._explained(error, connected=connected)


def _ignore_lost_connections(loop: asyncio.AbstractEventLoop) -> None:
    """Let the loop not report a connection that was lost in the middle of an operation.

    asyncpg raises that error to its caller, which retries. It also leaves a future with the same error behind, which
    asyncio would report as "never retrieved", with a traceback.
    """
    handler = loop.get_exception_handler()
    if isinstance(handler, _LostConnectionFilter):
        return
    loop.set_exception_handler(_LostConnectionFilter(handler))


class _LostConnectionFilter:
    def __init__(self, handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None) -> None:
        self._handler = handler

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), asyncpg.ConnectionDoesNotExistError) and "future" in context:
            return
        if self._handler is None:
            loop.default_exception_handler(context)
        else:
            self._handler(loop, context)


def quoted(table: str) -> str:
    return ".".join(f'"{name}"' for name in table.split("."))


def _insert(table: str, columns: Mapping[str, str]) -> str:
    arrays = (f"${number}::{type_.partition(' NOT')[0]}[]" for number, type_ in enumerate(columns.values(), 1))
    return f"INSERT INTO {quoted(table)} AS stored ({', '.join(columns)}) SELECT * FROM unnest({', '.join(arrays)})"  # noqa: S608 - names of columns and a checked table


def _ordered(rows: Iterable[list[Any]]) -> list[list[Any]]:
    """In the order of their ids, so that workers with the same rows cannot deadlock."""
    return sorted(rows, key=lambda row: row[0])


def _arrays(rows: Iterable[list[Any]]) -> list[list[Any]]:
    """One array per column."""
    return [list(column) for column in zip(*rows, strict=True)]


def _row(record: Record) -> list[Any]:
    values: list[Any] = list(msgspec.structs.astuple(record))
    values[_ERROR] = record.error or None
    values[_REDIRECTS] = msgspec.json.encode(record.redirects).decode() if record.redirects else "[]"
    values[_FETCHED_AT] = _moment(record.fetched_at)
    return [digest(record.crawl, record.url), *values]


def _item_row(item: Item, fields: Mapping[str, ColumnKind], *, per_spider: bool) -> list[Any]:
    row: dict[str, Any] = {}
    data = item.data
    if per_spider:
        row, data = spread(data, fields)
    fixed = [item_id(item), item.crawl, item.url, item.spider, item.number, _moment(item.fetched_at), data_text(data)]
    return fixed + [row.get(name) for name in fields]


def _moment(at: float) -> datetime.datetime | None:
    return datetime.datetime.fromtimestamp(at, datetime.UTC) if at else None


def _copy_errors() -> tuple[type[Exception], ...]:
    """The errors after which the upsert is tried: it succeeds, or its error explains the problem.

    Another worker stored a page meanwhile; the table takes no COPY, e.g. with row-level security; a column has another
    type; a text cannot be stored as it is.
    """
    return (
        asyncpg.IntegrityConstraintViolationError,
        asyncpg.FeatureNotSupportedError,
        asyncpg.DataError,
        TypeError,
        ValueError,
        OverflowError,
    )


class PostgresqlTechnology(ServerTechnology):
    schemes = ("postgresql", "postgres")
    driver = "asyncpg"
    extra = "postgresql"
    # A schema may precede the table.
    table_pattern = rf"({TABLE_NAME}\.)?{TABLE_NAME}"

    def sink(self, address: ServerAddress, *, on_trouble: OnTrouble, spider: bool) -> PostgresqlSink:
        return PostgresqlSink(address, on_trouble=on_trouble, spider=spider)

    def read(self, address: str, request: ReadRequest) -> AsyncGenerator[list[tuple[Cursor, Row]], None]:
        from shoal.sinks.sql.postgresql_reader import batches
        from shoal.sinks.sql.server_reader import read

        sink = self.sink(self.parsed(address), on_trouble=lambda sentence: None, spider=False)
        return read(sink, batches(sink, request), request)


TECHNOLOGY = PostgresqlTechnology()
