"""PostgreSQL: tables with one row of a key, written by any number of workers at once.

Pages that are all new, as nearly all are, go into the table by COPY. A few, or some of which one is known, and items,
are one statement: `INSERT ... SELECT FROM unnest(arrays) ON CONFLICT`, which takes three times the CPU of this process
and half as much again of the server's. (COPY into a temporary table and an upsert from there are faster than that only
from some 100 rows on. asyncpg's `executemany` hangs when it is cancelled.) The key is `id`, a hash of crawl and URL: an
index of PostgreSQL cannot hold a long URL. That of items is `id`, of crawl, URL and spider, and `number`.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, get_type_hints

import asyncpg
import msgspec

from shoal.brokers.connection import CONNECT_SECONDS
from shoal.model.record import Item, Record
from shoal.sinks.columns import COLUMNS, MOST_COLUMNS, REPLACEMENT, ColumnKind, data_text, digest, spread
from shoal.sinks.retry import QUIET_SECONDS, TransientError
from shoal.sinks.sql.server import ServerSink, ServerTable, item_id

_TYPES = {
    str: "TEXT NOT NULL DEFAULT ''",
    int: "BIGINT NOT NULL DEFAULT 0",
    float: "DOUBLE PRECISION NOT NULL DEFAULT 0",
}
_SPECIAL = {
    "crawl": "TEXT NOT NULL",
    "url": "TEXT NOT NULL",
    "error": "TEXT",
    "redirects": "JSONB NOT NULL DEFAULT '[]'",
    "fetched_at": "TIMESTAMPTZ",
    "robots_ignored": "BOOLEAN NOT NULL DEFAULT false",
}
_HINTS = get_type_hints(Record)
DEFINITIONS = {"id": "BYTEA"} | {name: _SPECIAL.get(name) or _TYPES[_HINTS[name]] for name in COLUMNS}
ITEM_DEFINITIONS = {
    "id": "BYTEA",
    "crawl": "TEXT NOT NULL",
    "url": "TEXT NOT NULL",
    "spider": "TEXT NOT NULL",
    "number": "BIGINT",
    "fetched_at": "TIMESTAMPTZ",
    "data": "JSONB NOT NULL DEFAULT '{}'",
}
SPIDER_DEFINITIONS = {name if name != "data" else "extra": told for name, told in ITEM_DEFINITIONS.items()}
FIELDS = {
    ColumnKind.TEXT: "text",
    ColumnKind.NUMBER: "double precision",
    ColumnKind.BOOLEAN: "boolean",
    ColumnKind.JSON: "jsonb",
}
_KINDS = {told: kind for kind, told in FIELDS.items()}

# Of 304 rows: what the row says of the page still holds; only when it was asked, and the newer validators, change.
_CONFIRMED = {
    "fetched_at": "excluded.fetched_at",
    "etag": "coalesce(nullif(excluded.etag, ''), stored.etag)",
    "last_modified": "coalesce(nullif(excluded.last_modified, ''), stored.last_modified)",
}
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

# By the beginning of their SQLSTATE: what time or an administrator heals.
_HEALS = {
    "08": "lost the connection",
    "40": "is in use by others",
    "55": "is in use by others",
    "25006": "takes no changes now",
    "42P01": "lost its table",
    "42703": "lost a column",
    "53100": "has no space left on its disk",
    "53": "has no room",
    "57": "is not ready",
    "58": "has an error of its disk",
}
# Of fewer pages, to look for them first costs more time than COPY saves.
COPIED_ROWS = 20
# A page that another worker stored meanwhile; a table that takes no COPY, as with row-level security, or has columns of
# other types; a text that cannot be stored as it is. The statement that upserts does it, or says what is wrong.
_NOT_COPIED = (
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.FeatureNotSupportedError,
    asyncpg.DataError,
    TypeError,
    ValueError,
    OverflowError,
)
_QUIET = ("08", "40", "55", "42P01", "42703")
_LOGIN = {"28": "check user and password", "3D000": "make it first", "42501": "let an administrator grant it"}


class PostgresqlSink(ServerSink["asyncpg.Connection"]):
    scheme = "postgresql"
    unfit = (UnicodeEncodeError, asyncpg.DataError)
    nul = REPLACEMENT

    async def _connect(self) -> asyncpg.Connection:
        try:
            return await asyncpg.connect(
                self._address.without("table", "table_per_spider"),
                timeout=CONNECT_SECONDS,
                server_settings={"application_name": "shoal"},
            )
        except asyncpg.InterfaceError as error:
            # Its text may quote the URI.
            raise self._refused(
                "cannot be connected to as it is written; check its options and how it asks to log in"
            ) from error

    async def _prepare(self, connection: asyncpg.Connection) -> None:
        encoding = await connection.fetchval("SHOW server_encoding")
        if encoding != "UTF8":
            raise self._refused(f"keeps text in {encoding}, which not every page fits; name a database with UTF8")
        # What is acknowledged is never fetched again. A stronger setting than `on` is the administrator's to make.
        if await connection.fetchval("SHOW synchronous_commit") == "off":
            await connection.execute("SET synchronous_commit = on")
        await self._ensure(connection, ServerTable(self._address.table, DEFINITIONS, ("id",)))
        await super()._prepare(connection)

    async def _ensure_items(
        self, connection: asyncpg.Connection, name: str, wanted: Mapping[str, ColumnKind]
    ) -> dict[str, ColumnKind]:
        definitions = SPIDER_DEFINITIONS if self._address.per_spider else ITEM_DEFINITIONS
        columns = await self._ensure(connection, ServerTable(name, definitions, ("id", "number")), wanted)
        return {name: _KINDS[told] for name, told in columns.items() if name not in definitions and told in _KINDS}

    async def _ensure(
        self, connection: asyncpg.Connection, table: ServerTable, wanted: Mapping[str, ColumnKind] | None = None
    ) -> dict[str, str]:
        """Make the table or what it lacks; the types of its columns. What is `wanted` it has if it can."""
        needed = table.definitions.keys() | (wanted or {}).keys()
        columns = await self._columns(connection, table)
        if needed - columns.keys():
            async with connection.transaction():
                # Workers start together: only one of them at a time looks and changes.
                await connection.execute("SELECT pg_advisory_xact_lock(hashtext('shoal ' || $1))", table.name)
                await self._make(connection, table, await self._columns(connection, table))
                columns = await self._columns(connection, table)
                room = MOST_COLUMNS + len(table.definitions) - len(columns)
                for name, kind in [one for one in (wanted or {}).items() if one[0] not in columns][: max(room, 0)]:
                    await self._add_field(connection, table, name, kind)
                columns = await self._columns(connection, table)
        return columns

    async def _columns(self, connection: asyncpg.Connection, table: ServerTable) -> dict[str, str]:
        """The types of the table's columns, none when it is not there; SinkRefused when it is somebody else's."""
        columns = dict(await connection.fetch(_FIND_COLUMNS, _quoted(table.name)))
        if columns:
            key = {name for (name,) in await connection.fetch(_FIND_KEY, _quoted(table.name))}
            if key != set(table.key) or columns["id"] != "bytea" or not columns.keys() >= {"crawl", "url"}:
                raise self._refused(f"has a table {table.name} that is not Shoal's; choose another by ?table=NAME")
        return columns

    async def _make(self, connection: asyncpg.Connection, table: ServerTable, found: Mapping[str, str]) -> None:
        quoted = _quoted(table.name)
        if found:
            for name in table.definitions.keys() - found:
                await connection.execute(f"ALTER TABLE {quoted} ADD COLUMN {name} {table.definitions[name]}")
            return
        columns = ", ".join(f"{name} {definition}" for name, definition in table.definitions.items())
        await connection.execute(f"CREATE TABLE {quoted} ({columns}, PRIMARY KEY ({', '.join(table.key)}))")
        for name in table.definitions.keys() & {"text", "data", "extra"}:
            try:
                async with connection.transaction():
                    # Texts compressed with lz4 are stored twice as fast as with the default.
                    await connection.execute(f"ALTER TABLE {quoted} ALTER COLUMN {name} SET COMPRESSION lz4")
            except (asyncpg.FeatureNotSupportedError, asyncpg.PostgresSyntaxError, asyncpg.InvalidParameterValueError):
                pass  # before version 14, or built without lz4

    async def _add_field(self, connection: asyncpg.Connection, table: ServerTable, name: str, kind: ColumnKind) -> None:
        try:
            async with connection.transaction():
                await connection.execute(f'ALTER TABLE {_quoted(table.name)} ADD COLUMN "{name}" {FIELDS[kind]}')
        except asyncpg.SyntaxOrAccessError:
            pass  # a name that PostgreSQL keeps for itself, or a right that is missing: there is `extra`

    def _transaction(self, connection: asyncpg.Connection) -> AbstractAsyncContextManager[Any]:
        transaction: AbstractAsyncContextManager[Any] = connection.transaction()
        return transaction

    async def _upsert_pages(self, connection: asyncpg.Connection, pages: Sequence[Record]) -> None:
        rows = _ordered(map(_row, pages))
        if len(rows) >= COPIED_ROWS and await self._copied(connection, rows):
            return
        insert = _insert(self._address.table, DEFINITIONS)
        await connection.execute(f"{insert} ON CONFLICT (id) DO UPDATE SET {_CHANGES}", *_arrays(rows))

    async def _copied(self, connection: asyncpg.Connection, rows: Sequence[list[Any]]) -> bool:
        """Store rows that are all new. False, with nothing stored, when one of them is not or COPY cannot do it."""
        quoted = _quoted(self._address.table)
        # A subquery like this one looks into the index for each id, whatever the planner thinks of the table's size.
        known = f"SELECT true FROM {quoted} AS stored WHERE stored.id = asked.id"  # noqa: S608 - a checked table
        find = f"SELECT EXISTS (SELECT FROM unnest($1::bytea[]) AS asked (id) WHERE ({known}))"  # noqa: S608 - as above
        if await connection.fetchval(find, [row[0] for row in rows]):
            return False
        schema, _, table = self._address.table.rpartition(".")
        undone = connection.transaction() if connection.is_in_transaction() else contextlib.nullcontext()
        try:
            async with undone:
                await connection.copy_records_to_table(
                    table, schema_name=schema or None, columns=list(DEFINITIONS), records=rows
                )
        except _NOT_COPIED:
            return False
        return True

    async def _forget(
        self, connection: asyncpg.Connection, table: str, ids: Sequence[bytes], items: Sequence[Item]
    ) -> None:
        await connection.execute(f"DELETE FROM {_quoted(table)} WHERE id = ANY ($1::bytea[])", ids)  # noqa: S608 - a checked table

    async def _upsert_items(self, connection: asyncpg.Connection, table: str, items: Sequence[Item]) -> None:
        fields = {name: kind for name, kind in self._seen[table].items() if kind is not None}
        if self._address.per_spider:
            columns = SPIDER_DEFINITIONS | {f'"{name}"': FIELDS[kind] for name, kind in fields.items()}
        else:
            columns = ITEM_DEFINITIONS
        changes = ", ".join(f"{name} = excluded.{name}" for name in columns)
        rows = (_item_row(item, fields, per_spider=self._address.per_spider) for item in items)
        insert = _insert(table, columns)
        await connection.execute(f"{insert} ON CONFLICT (id, number) DO UPDATE SET {changes}", *_arrays(_ordered(rows)))

    async def _disconnect(self, connection: asyncpg.Connection) -> None:
        await connection.close()

    def _abandon(self, connection: asyncpg.Connection) -> None:
        connection.terminate()

    def _meaning(self, error: Exception, *, connected: bool) -> Exception:
        if isinstance(error, asyncpg.PostgresError):
            state, said = error.sqlstate or "", (error.args[0] if error.args else "no reason").rstrip(".")
            for beginning, phrase in _HEALS.items():
                if state.startswith(beginning):
                    return TransientError(f"{phrase} ({said})", quiet_seconds=QUIET_SECONDS * state.startswith(_QUIET))
            advice = next((text for beginning, text in _LOGIN.items() if state.startswith(beginning)), "")
            return self._refused(f"refuses: {said}" + (f"; {advice}" if advice else ""))
        if isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError):
            # What asyncpg says of a server that was killed between a question and its answer.
            return TransientError("lost the connection", quiet_seconds=QUIET_SECONDS)
        return super()._meaning(error, connected=connected)


def _quoted(table: str) -> str:
    return ".".join(f'"{name}"' for name in table.split("."))


def _insert(table: str, columns: Mapping[str, str]) -> str:
    arrays = (f"${place}::{told.partition(' NOT')[0]}[]" for place, told in enumerate(columns.values(), 1))
    return f"INSERT INTO {_quoted(table)} AS stored ({', '.join(columns)}) SELECT * FROM unnest({', '.join(arrays)})"  # noqa: S608 - names of columns and a checked table


def _ordered(rows: Iterable[list[Any]]) -> list[list[Any]]:
    """In the order of ids: workers that meet wait for each other, and never in a circle."""
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
