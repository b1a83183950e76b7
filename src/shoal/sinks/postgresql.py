"""PostgreSQL: a table with one row of a key, written by any number of workers at once.

One statement stores a batch: `INSERT ... SELECT FROM unnest(arrays) ON CONFLICT`, which measures faster than COPY into
a temporary table. (asyncpg's `executemany` costs this process less, but hangs when it is cancelled.) The key is `id`, a
hash of crawl and URL: an index of PostgreSQL cannot hold a long URL.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, get_type_hints

import asyncpg
import msgspec

from shoal.model.record import Record
from shoal.sinks.patience import Hindrance
from shoal.sinks.row import COLUMNS, REPLACEMENT, digest, encodable
from shoal.sinks.server import CONNECT_SECONDS, QUIET_SECONDS, ServerSink

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
DEFINITIONS = {"id": "BYTEA PRIMARY KEY"} | {name: _SPECIAL.get(name) or _TYPES[_HINTS[name]] for name in COLUMNS}

# Of 304 rows: what the row says of the page still holds; only when it was asked, and the newer validators, change.
_CONFIRMED = {
    "fetched_at": "excluded.fetched_at",
    "etag": "coalesce(nullif(excluded.etag, ''), stored.etag)",
    "last_modified": "coalesce(nullif(excluded.last_modified, ''), stored.last_modified)",
}
_ARRAYS = ", ".join(
    f"${place}::{definition.partition(' NOT')[0].removesuffix(' PRIMARY KEY')}[]"
    for place, definition in enumerate(DEFINITIONS.values(), 1)
)
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
    "53100": "has no space left on its disk",
    "53": "has no room",
    "57": "is not ready",
    "58": "has an error of its disk",
}
_QUIET = ("08", "40", "55", "42P01")
_LOGIN = {"28": "check user and password", "3D000": "make it first", "42501": "let an administrator grant it"}


class PostgresqlSink(ServerSink["asyncpg.Connection"]):
    scheme = "postgresql"

    async def _connect(self) -> asyncpg.Connection:
        try:
            connection = await asyncpg.connect(
                self._address.without("table"), timeout=CONNECT_SECONDS, server_settings={"application_name": "shoal"}
            )
        except asyncpg.InterfaceError as error:
            # Its text may quote the URI.
            raise self._refused(
                "cannot be connected to as it is written; check its options and how it asks to log in"
            ) from error
        try:
            await self._prepare(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _prepare(self, connection: asyncpg.Connection) -> None:
        encoding = await connection.fetchval("SHOW server_encoding")
        if encoding != "UTF8":
            raise self._refused(f"keeps text in {encoding}, which not every page fits; name a database with UTF8")
        # What is acknowledged is never fetched again. A stronger setting than `on` is the administrator's to make.
        if await connection.fetchval("SHOW synchronous_commit") == "off":
            await connection.execute("SET synchronous_commit = on")
        if DEFINITIONS.keys() - await self._columns(connection):
            async with connection.transaction():
                # Workers start together: only one of them at a time looks and changes.
                await connection.execute("SELECT pg_advisory_xact_lock(hashtext('shoal ' || $1))", self._address.table)
                await self._make(connection, await self._columns(connection))

    async def _columns(self, connection: asyncpg.Connection) -> set[str]:
        """The columns of the table, none when it is not there; SinkRefused when it is somebody else's."""
        columns = dict(await connection.fetch(_FIND_COLUMNS, self._table))
        if columns:
            key = [name for (name,) in await connection.fetch(_FIND_KEY, self._table)]
            if key != ["id"] or columns["id"] != "bytea" or not columns.keys() >= {"crawl", "url"}:
                raise self._refused("has a table of this name that is not Shoal's; choose another by ?table=NAME")
        return set(columns)

    async def _make(self, connection: asyncpg.Connection, found: set[str]) -> None:
        if found:
            for name in DEFINITIONS.keys() - found:
                await connection.execute(f"ALTER TABLE {self._table} ADD COLUMN {name} {DEFINITIONS[name]}")
            return
        columns = ", ".join(f"{name} {definition}" for name, definition in DEFINITIONS.items())
        await connection.execute(f"CREATE TABLE {self._table} ({columns})")
        try:
            async with connection.transaction():
                # Texts compressed with lz4 are stored twice as fast as with the default.
                await connection.execute(f"ALTER TABLE {self._table} ALTER COLUMN text SET COMPRESSION lz4")
        except (asyncpg.FeatureNotSupportedError, asyncpg.PostgresSyntaxError, asyncpg.InvalidParameterValueError):
            pass  # before version 14, or built without lz4

    async def _store(self, connection: asyncpg.Connection, records: Sequence[Record]) -> None:
        statement = (
            f"INSERT INTO {self._table} AS stored ({', '.join(DEFINITIONS)}) SELECT * FROM unnest({_ARRAYS}) "  # noqa: S608 - names of fields and a checked table
            f"ON CONFLICT (id) DO UPDATE SET {_CHANGES}"
        )
        try:
            await connection.execute(statement, *_arrays(records))
        except (UnicodeEncodeError, asyncpg.DataError):
            # Text that PostgreSQL cannot hold. Nothing was stored, and the connection is as before.
            await connection.execute(statement, *_arrays([encodable(one, nul=REPLACEMENT) for one in records]))

    async def _disconnect(self, connection: asyncpg.Connection) -> None:
        await connection.close()

    def _abandon(self, connection: asyncpg.Connection) -> None:
        connection.terminate()

    def _meaning(self, error: Exception, *, connected: bool) -> Exception:
        if isinstance(error, asyncpg.PostgresError):
            state, said = error.sqlstate or "", (error.args[0] if error.args else "no reason").rstrip(".")
            for beginning, phrase in _HEALS.items():
                if state.startswith(beginning):
                    return Hindrance(f"{phrase} ({said})", quiet_seconds=QUIET_SECONDS * state.startswith(_QUIET))
            advice = next((text for beginning, text in _LOGIN.items() if state.startswith(beginning)), "")
            return self._refused(f"refuses: {said}" + (f"; {advice}" if advice else ""))
        if isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError):
            # What asyncpg says of a server that was killed between a question and its answer.
            return Hindrance("lost the connection", quiet_seconds=QUIET_SECONDS)
        return super()._meaning(error, connected=connected)

    @property
    def _table(self) -> str:
        return ".".join(f'"{name}"' for name in self._address.table.split("."))


def _arrays(records: Sequence[Record]) -> list[list[Any]]:
    """One array per column, in the order of ids: workers that meet wait for each other, and never in a circle."""
    rows = sorted(map(_row, records), key=lambda row: row[0])
    return [list(column) for column in zip(*rows, strict=True)]


def _row(record: Record) -> list[Any]:
    values: list[Any] = list(msgspec.structs.astuple(record))
    values[_ERROR] = record.error or None
    values[_REDIRECTS] = msgspec.json.encode(record.redirects).decode() if record.redirects else "[]"
    at = record.fetched_at
    values[_FETCHED_AT] = datetime.datetime.fromtimestamp(at, datetime.UTC) if at else None
    return [digest(record), *values]
