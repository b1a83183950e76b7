"""MySQL and MariaDB: tables with one row per key, written by any number of workers at the same time.

One statement stores a batch: `INSERT ... VALUES ... ON DUPLICATE KEY UPDATE`. The key of a page is `id`, a hash of
crawl and URL: an index of InnoDB cannot hold a long URL. The key of an item is `id`, a hash of crawl, URL and spider,
and `number`. Everything is utf8mb4 with a binary collation, so that URLs are compared byte by byte. The JSON of items
is LONGTEXT: the type JSON rejects values nested deeper than 32 levels in MariaDB and 100 in MySQL.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shoal.brokers.connection import CONNECT_SECONDS, describe_os_error
from shoal.model.record import Item, Record
from shoal.sinks.columns import (
    COLUMNS,
    MOST_COLUMNS,
    ColumnKind,
    Row,
    confirmed_sql,
    digest,
)
from shoal.sinks.contract import OnTrouble
from shoal.sinks.driver import lazy_import
from shoal.sinks.retry import QUIET_SECONDS, TransientError
from shoal.sinks.sql.column_types import ColumnTypes, item_columns, page_columns, spider_columns
from shoal.sinks.sql.mysql_rows import insert_around, item_key, item_row, packets, page_row
from shoal.sinks.sql.server import ServerAddress, ServerSink, ServerTable, ServerTechnology, item_id

if TYPE_CHECKING:
    import asyncmy
    from asyncmy import errors

    from shoal.sinks.reader import Cursor, ReadRequest
else:
    asyncmy, errors = lazy_import("asyncmy"), lazy_import("asyncmy.errors")

_TYPES = ColumnTypes(
    key="LONGTEXT NOT NULL",
    text="LONGTEXT NOT NULL DEFAULT ('')",
    whole="BIGINT NOT NULL DEFAULT 0",
    real="DOUBLE NOT NULL DEFAULT 0",
    flag="BOOLEAN NOT NULL DEFAULT 0",
    error="LONGTEXT",
    list="JSON NOT NULL DEFAULT ('[]')",
    fetched_at="DATETIME(3)",
    number="BIGINT",
    data="LONGTEXT NOT NULL DEFAULT ('{}')",
)
_ID = {"id": "BINARY(16)"}
DEFINITIONS = _ID | page_columns(_TYPES)
ITEM_DEFINITIONS = _ID | item_columns(_TYPES)
SPIDER_DEFINITIONS = spider_columns(ITEM_DEFINITIONS)
# A text column with this comment holds JSON.
FIELD_TYPES = {
    ColumnKind.TEXT: "LONGTEXT",
    ColumnKind.NUMBER: "DOUBLE",
    ColumnKind.BOOLEAN: "BOOLEAN",
    ColumnKind.JSON: "LONGTEXT COMMENT 'json'",
}
KINDS = {
    ("longtext", ""): ColumnKind.TEXT,
    ("double", ""): ColumnKind.NUMBER,
    ("tinyint(1)", ""): ColumnKind.BOOLEAN,
    ("longtext", "json"): ColumnKind.JSON,
}
# A column cannot be added: its name equals another, the row has no room, or a permission is missing.
_NO_COLUMN = (1059, 1060, 1117, 1118, 1142, 1143, 1166)

# A 304 response updates the row of its page; any other response replaces it.
_CONFIRMED = confirmed_sql(lambda name: f"`{name}`", lambda name: f"VALUES(`{name}`)")
_CHANGES = ", ".join(
    f"`{name}` = IF(VALUES(status) = 304, {_CONFIRMED.get(name, f'`{name}`')}, VALUES(`{name}`))" for name in COLUMNS
)

_FIND_COLUMNS = """
    SELECT column_name, column_type, column_comment, column_key FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = '{}' ORDER BY ordinal_position"""
_FIND_UNIQUE = """
    SELECT DISTINCT index_name FROM information_schema.statistics
    WHERE table_schema = DATABASE() AND table_name = '{}' AND NOT non_unique AND index_name != 'PRIMARY'"""

# Errors that pass or that an administrator repairs.
_TRANSIENT = {
    1021: "has no space left on its disk",
    1114: "has no space left on its disk",
    1030: "has a disk I/O error",
    1026: "has a disk I/O error",
    1037: "is out of memory",
    1041: "is out of memory",
    1040: "has too many connections",
    1203: "has too many connections",
    1226: "has too many connections",
    1053: "is not ready",
    1077: "is not ready",
    1290: "is read-only",
    1792: "is read-only",
    1836: "is read-only",
    1129: "has blocked this machine",
    1054: "lacks a column",
    1146: "no longer has its table",
    1205: "is locked by another session",
    1213: "is locked by another session",
    1317: "is not ready",
    1927: "lost the connection",
    4031: "lost the connection",
}
_QUIET = (1054, 1146, 1205, 1213, 1927, 4031)
_ADVICE = {
    1045: "check user and password",
    1698: "check user and password",
    1044: "ask an administrator to grant it",
    1142: "ask an administrator to grant it",
    1143: "ask an administrator to grant it",
    1049: "create it first",
}
# The driver's type hints are incomplete.
Connection = Any

# Workers that start together check the table one after the other, under a lock.
_LOCK_SECONDS = 30


class MysqlSink(ServerSink[Connection]):
    _max_packet_bytes = 16 << 20

    async def connect(self) -> Connection:
        address = self.address
        if unknown := address.options.keys() - {"table", "table_per_spider", "socket", "ssl_ca"}:
            raise self.refused(
                f"has the unknown option {min(unknown)!r}; valid options are table, table_per_spider, socket and ssl_ca"
            )
        server: dict[str, Any] = {"host": address.host or "127.0.0.1", "port": address.port or 3306}
        if "socket" in address.options:
            server = {"unix_socket": address.options["socket"]}
        elif "ssl_ca" in address.options:
            try:
                server["ssl"] = ssl.create_default_context(cafile=address.options["ssl_ca"])
            except OSError as error:
                raise self.refused(f"has an ssl_ca that cannot be read: {error.strerror}") from error
        driver: Any = asyncmy.Connection
        connection: Connection = driver(
            **server,
            user=address.user,
            password=address.password or os.environ.get("MYSQL_PWD", ""),
            database=address.database,
            charset="utf8mb4",
            sql_mode="STRICT_ALL_TABLES",
            autocommit=True,
            connect_timeout=int(CONNECT_SECONDS),
        )
        try:
            await connection.connect()
        except BaseException:
            connection.close()
            raise
        return connection

    async def _prepare(self, connection: Connection) -> None:
        ((max_packet_bytes,),) = await query(connection, "SELECT @@max_allowed_packet")
        self._max_packet_bytes = int(max_packet_bytes)
        await self._ensure(connection, ServerTable(self.address.table, DEFINITIONS, ("id",)))
        await super()._prepare(connection)

    async def _ensure_items(
        self, connection: Connection, name: str, fields: Mapping[str, ColumnKind]
    ) -> dict[str, ColumnKind]:
        definitions = SPIDER_DEFINITIONS if self.address.per_spider else ITEM_DEFINITIONS
        columns = await self._ensure(connection, ServerTable(name, definitions, ("id", "number")), fields)
        return {name: KINDS[type_] for name, type_ in columns.items() if name not in definitions and type_ in KINDS}

    async def _ensure(
        self, connection: Connection, table: ServerTable, fields: Mapping[str, ColumnKind] | None = None
    ) -> dict[str, tuple[str, str]]:
        """Create the table or its missing columns, `fields` as far as possible; returns their types and comments."""
        needed = table.definitions.keys() | (fields or {}).keys()
        columns = await self.columns(connection, table)
        if needed - columns.keys():
            # A name of at most 64 characters.
            lock = f"'shoal {digest(table.name).hex()}'"
            ((got,),) = await query(connection, f"SELECT GET_LOCK({lock}, {_LOCK_SECONDS})")
            if not got:
                raise TransientError("is locked by another session", quiet_seconds=QUIET_SECONDS)
            await self._make(connection, table, await self.columns(connection, table))
            columns = await self.columns(connection, table)
            room = MOST_COLUMNS + len(table.definitions) - len(columns)
            missing = [(name, kind) for name, kind in (fields or {}).items() if name not in columns]
            for name, kind in missing[: max(room, 0)]:
                await self._add_field(connection, table, name, kind)
            columns = await self.columns(connection, table)
            await query(connection, f"SELECT RELEASE_LOCK({lock})")
        return columns

    async def columns(self, connection: Connection, table: ServerTable) -> dict[str, tuple[str, str]]:
        """Types and comments of the columns, {} if there is no table; SinkRefused if it is not a table of Shoal."""
        rows = await query(connection, _FIND_COLUMNS.format(table.name))
        columns = {name: (type_.lower(), comment) for name, type_, comment, _ in rows}
        if columns:
            key = {name for name, _, _, key in rows if key == "PRI"}
            if key != set(table.key) or columns["id"][0] != "binary(16)" or not columns.keys() >= {"crawl", "url"}:
                raise self.refused(f"has a table {table.name} that is not from Shoal; choose another with ?table=NAME")
            for (index,) in await query(connection, _FIND_UNIQUE.format(table.name)):
                # ON DUPLICATE KEY UPDATE would overwrite a row that has the same value in this index.
                raise self.refused(
                    f"has a unique index {index} beside its key, so that pages would overwrite each other; drop it"
                )
        return columns

    async def _make(self, connection: Connection, table: ServerTable, existing: Collection[str]) -> None:
        if existing:
            for name in table.definitions.keys() - existing:
                await query(connection, f"ALTER TABLE `{table.name}` ADD COLUMN `{name}` {table.definitions[name]}")
            return
        columns = ", ".join(f"`{name}` {definition}" for name, definition in table.definitions.items())
        shape = "ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin"
        await query(
            connection, f"CREATE TABLE `{table.name}` ({columns}, PRIMARY KEY ({', '.join(table.key)})) {shape}"
        )

    async def _add_field(self, connection: Connection, table: ServerTable, name: str, kind: ColumnKind) -> None:
        try:
            await query(connection, f"ALTER TABLE `{table.name}` ADD COLUMN `{name}` {FIELD_TYPES[kind]}")
        except errors.MySQLError as error:
            if not error.args or error.args[0] not in _NO_COLUMN:
                raise

    @contextlib.asynccontextmanager
    async def _transaction(self, connection: Connection) -> AsyncIterator[None]:
        await connection.query("BEGIN")
        try:
            yield
        except UnicodeEncodeError:
            await connection.query("ROLLBACK")
            raise
        await connection.query("COMMIT")

    async def _upsert_pages(self, connection: Connection, pages: Sequence[Record]) -> None:
        head, tail = insert_around(self.address.table, DEFINITIONS, _CHANGES)
        room = self._max_packet_bytes - len(head) - len(tail) - 64
        # In the order of their ids, so that workers with the same rows cannot deadlock.
        ordered = sorted((digest(page.crawl, page.url), at) for at, page in enumerate(pages))
        for rows in packets([page_row(id_, pages[at], room) for id_, at in ordered], room):
            await connection.query(b"".join((head, b",".join(rows), tail)))

    async def _delete_items(
        self, connection: Connection, table: str, ids: Sequence[bytes], items: Sequence[Item]
    ) -> None:
        if not ids:
            return
        # Deleting by a part of the key would lock the gaps where other workers insert; reading locks nothing.
        chosen = ",".join(f"X'{id_.hex()}'" for id_ in ids)
        stored = await query(connection, f"SELECT HEX(id), number FROM `{table}` WHERE id IN ({chosen})")  # noqa: S608
        for id_, number in sorted({(id_, number) for id_, number in stored} - {item_key(item) for item in items}):
            await connection.query(f"DELETE FROM `{table}` WHERE id = X'{id_}' AND number = {number}")  # noqa: S608

    async def _upsert_items(self, connection: Connection, table: str, items: Sequence[Item]) -> None:
        fields = [name for name, kind in self._seen[table].items() if kind is not None]
        names = [*(SPIDER_DEFINITIONS if self.address.per_spider else ITEM_DEFINITIONS), *fields]
        head, tail = insert_around(table, names, ", ".join(f"`{name}` = VALUES(`{name}`)" for name in names))
        room = self._max_packet_bytes - len(head) - len(tail) - 64
        columns = self._seen[table] if self.address.per_spider else None
        ordered = sorted(items, key=lambda item: (item_id(item), item.number))
        for rows in packets([item_row(item, columns, room) for item in ordered], room):
            await connection.query(b"".join((head, b",".join(rows), tail)))

    async def _disconnect(self, connection: Connection) -> None:
        await connection.ensure_closed()

    def abandon(self, connection: Connection) -> None:
        connection.close()

    def _explained(self, error: Exception, *, connected: bool) -> Exception:
        if isinstance(error, errors.MySQLError) and not isinstance(error.__cause__, ssl.SSLCertVerificationError):
            code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
            message = str(error.args[-1]).rstrip(".") if error.args else "no reason"
            # The driver's own errors have numbers from 2000, and none if it cannot parse the server's bytes.
            if code == 0 or 2000 <= code < 2100:
                if connected:
                    return TransientError("lost the connection", quiet_seconds=QUIET_SECONDS)
                return TransientError(f"cannot be reached ({_reason(error)})")
            if code in _TRANSIENT:
                return TransientError(f"{_TRANSIENT[code]} ({message})", quiet_seconds=QUIET_SECONDS * (code in _QUIET))
            advice = _ADVICE.get(code)
            return self.refused(f"refused: {message}" + (f"; {advice}" if advice else ""))
        if isinstance(error, RuntimeError):
            # The login method of this account needs a package that is not installed; the message names it.
            return self.refused(f"cannot log in: {str(error).rstrip('.')}")
        return super()._explained(error, connected=connected)


async def query(connection: Connection, statement: str) -> Sequence[Sequence[Any]]:
    async with connection.cursor() as cursor:
        await cursor.execute(statement)
        rows: Sequence[Sequence[Any]] = await cursor.fetchall()
        return rows


def _reason(error: errors.MySQLError) -> str:
    cause = error.__cause__
    return describe_os_error(cause) if isinstance(cause, OSError) else str(error.args[-1])


class MysqlTechnology(ServerTechnology):
    schemes = ("mysql", "mariadb")
    driver = "asyncmy"
    extra = "mysql"

    def sink(self, address: ServerAddress, *, on_trouble: OnTrouble, spider: bool) -> MysqlSink:
        return MysqlSink(address, on_trouble=on_trouble, spider=spider)

    def read(self, address: str, request: ReadRequest) -> AsyncGenerator[list[tuple[Cursor, Row]], None]:
        from shoal.sinks.sql.mysql_reader import batches
        from shoal.sinks.sql.server_reader import read

        sink = self.sink(self.parsed(address), on_trouble=lambda sentence: None, spider=False)
        return read(sink, batches(sink, request), request)


TECHNOLOGY = MysqlTechnology()
