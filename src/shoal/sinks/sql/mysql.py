"""MySQL and MariaDB: tables with one row of a key, written by any number of workers at once.

One statement stores a batch: `INSERT ... VALUES ... ON DUPLICATE KEY UPDATE`. The key is `id`, a hash of crawl and URL:
an index of InnoDB cannot hold a long URL. That of items is `id`, of crawl, URL and spider, and `number`. Everything is
utf8mb4 with a binary collation, so that URLs are compared letter by letter. JSON of items is LONGTEXT: the type JSON
refuses what is nested deeper than 32 levels in MariaDB and 100 in MySQL.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_type_hints

import asyncmy
import msgspec
from asyncmy import errors

from shoal.brokers.connection import CONNECT_SECONDS, describe_os_error
from shoal.model.record import Item, Record
from shoal.sinks.columns import COLUMNS, MOST_COLUMNS, ColumnKind, Row, data_text, digest, moment, plain, spread
from shoal.sinks.retry import QUIET_SECONDS, TransientError
from shoal.sinks.sql.server import ServerSink, ServerTable, item_id

_TYPES = {str: "LONGTEXT NOT NULL DEFAULT ('')", int: "BIGINT NOT NULL DEFAULT 0", float: "DOUBLE NOT NULL DEFAULT 0"}
_SPECIAL = {
    "crawl": "LONGTEXT NOT NULL",
    "url": "LONGTEXT NOT NULL",
    "error": "LONGTEXT",
    "redirects": "JSON NOT NULL DEFAULT ('[]')",
    "fetched_at": "DATETIME(3)",
    "robots_ignored": "BOOLEAN NOT NULL DEFAULT 0",
}
_HINTS = get_type_hints(Record)
DEFINITIONS = {"id": "BINARY(16)"} | {name: _SPECIAL.get(name) or _TYPES[_HINTS[name]] for name in COLUMNS}
ITEM_DEFINITIONS = {
    "id": "BINARY(16)",
    "crawl": "LONGTEXT NOT NULL",
    "url": "LONGTEXT NOT NULL",
    "spider": "LONGTEXT NOT NULL",
    "number": "BIGINT",
    "fetched_at": "DATETIME(3)",
    "data": "LONGTEXT NOT NULL DEFAULT ('{}')",
}
SPIDER_DEFINITIONS = {name if name != "data" else "extra": told for name, told in ITEM_DEFINITIONS.items()}
# By its comment a text is known as JSON.
FIELDS = {
    ColumnKind.TEXT: "LONGTEXT",
    ColumnKind.NUMBER: "DOUBLE",
    ColumnKind.BOOLEAN: "BOOLEAN",
    ColumnKind.JSON: "LONGTEXT COMMENT 'json'",
}
_KINDS = {
    ("longtext", ""): ColumnKind.TEXT,
    ("double", ""): ColumnKind.NUMBER,
    ("tinyint(1)", ""): ColumnKind.BOOLEAN,
    ("longtext", "json"): ColumnKind.JSON,
}
# A column that cannot be added: its name means another's, the row has no room, or a right is missing.
_NO_COLUMN = (1059, 1060, 1117, 1118, 1142, 1143, 1166)

# Of 304 rows: what the row says of the page still holds; only when it was asked, and the newer validators, change.
_CONFIRMED = {
    "fetched_at": "VALUES(fetched_at)",
    "etag": "COALESCE(NULLIF(VALUES(etag), ''), etag)",
    "last_modified": "COALESCE(NULLIF(VALUES(last_modified), ''), last_modified)",
}
_CHANGES = ", ".join(
    f"`{name}` = IF(VALUES(status) = 304, {_CONFIRMED.get(name, f'`{name}`')}, VALUES(`{name}`))" for name in COLUMNS
)
_ERROR, _REDIRECTS, _FETCHED_AT = (COLUMNS.index(name) for name in ("error", "redirects", "fetched_at"))
_CUTTABLE = tuple(name for name in COLUMNS if _HINTS[name] is str and name not in ("crawl", "url"))

_FIND_COLUMNS = """
    SELECT column_name, column_type, column_comment, column_key FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = '{}' ORDER BY ordinal_position"""
_FIND_UNIQUE = """
    SELECT DISTINCT index_name FROM information_schema.statistics
    WHERE table_schema = DATABASE() AND table_name = '{}' AND NOT non_unique AND index_name != 'PRIMARY'"""

# What time or an administrator heals.
_HEALS = {
    1021: "has no space left on its disk",
    1114: "has no space left on its disk",
    1030: "has an error of its disk",
    1026: "has an error of its disk",
    1037: "has no memory",
    1041: "has no memory",
    1040: "has too many connections",
    1203: "has too many connections",
    1226: "has too many connections",
    1053: "is not ready",
    1077: "is not ready",
    1290: "takes no changes now",
    1792: "takes no changes now",
    1836: "takes no changes now",
    1129: "has blocked this machine",
    1054: "lost a column",
    1146: "lost its table",
    1205: "is in use by others",
    1213: "is in use by others",
    1317: "is not ready",
    1927: "lost the connection",
    4031: "lost the connection",
}
_QUIET = (1054, 1146, 1205, 1213, 1927, 4031)
_LOGIN = {
    1045: "check user and password",
    1698: "check user and password",
    1044: "let an administrator grant it",
    1142: "let an administrator grant it",
    1143: "let an administrator grant it",
    1049: "make it first",
}
# What the driver says of its own types is less than what is used of them here.
Driver: Any = asyncmy.Connection
Connection = Any

# The lock under which workers that start together look at the table one after the other.
_LOCK_SECONDS = 30


class MysqlSink(ServerSink[Connection]):
    scheme = "mysql"
    _longest = 16 << 20

    async def _connect(self) -> Connection:
        address = self._address
        if unknown := address.options.keys() - {"table", "table_per_spider", "socket", "ssl_ca"}:
            raise self._refused(
                f"has an option {min(unknown)!r}; those of MySQL are table, table_per_spider, socket and ssl_ca"
            )
        place: dict[str, Any] = {"host": address.host or "127.0.0.1", "port": address.port or 3306}
        if "socket" in address.options:
            place = {"unix_socket": address.options["socket"]}
        elif "ssl_ca" in address.options:
            try:
                place["ssl"] = ssl.create_default_context(cafile=address.options["ssl_ca"])
            except OSError as error:
                raise self._refused(f"has an ssl_ca that cannot be read: {error.strerror}") from error
        connection: Connection = Driver(
            **place,
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
        ((longest,),) = await _ask(connection, "SELECT @@max_allowed_packet")
        self._longest = int(longest)
        await self._ensure(connection, ServerTable(self._address.table, DEFINITIONS, ("id",)))
        await super()._prepare(connection)

    async def _ensure_items(
        self, connection: Connection, name: str, wanted: Mapping[str, ColumnKind]
    ) -> dict[str, ColumnKind]:
        definitions = SPIDER_DEFINITIONS if self._address.per_spider else ITEM_DEFINITIONS
        columns = await self._ensure(connection, ServerTable(name, definitions, ("id", "number")), wanted)
        return {name: _KINDS[told] for name, told in columns.items() if name not in definitions and told in _KINDS}

    async def _ensure(
        self, connection: Connection, table: ServerTable, wanted: Mapping[str, ColumnKind] | None = None
    ) -> dict[str, tuple[str, str]]:
        """Make the table or what it lacks; the types and comments of its columns. What is `wanted` it has if it can."""
        needed = table.definitions.keys() | (wanted or {}).keys()
        columns = await self._columns(connection, table)
        if needed - columns.keys():
            # A name of at most 64 characters.
            lock = f"'shoal {digest(table.name).hex()}'"
            ((got,),) = await _ask(connection, f"SELECT GET_LOCK({lock}, {_LOCK_SECONDS})")
            if not got:
                raise TransientError("is in use by others", quiet_seconds=QUIET_SECONDS)
            await self._make(connection, table, await self._columns(connection, table))
            columns = await self._columns(connection, table)
            room = MOST_COLUMNS + len(table.definitions) - len(columns)
            for name, kind in [one for one in (wanted or {}).items() if one[0] not in columns][: max(room, 0)]:
                await self._add_field(connection, table, name, kind)
            columns = await self._columns(connection, table)
            await _ask(connection, f"SELECT RELEASE_LOCK({lock})")
        return columns

    async def _columns(self, connection: Connection, table: ServerTable) -> dict[str, tuple[str, str]]:
        """Types and comments of the columns, none when there is no table; SinkRefused when it is somebody else's."""
        rows = await _ask(connection, _FIND_COLUMNS.format(table.name))
        found = {name: (kind.lower(), comment) for name, kind, comment, _ in rows}
        if found:
            key = {name for name, _, _, key in rows if key == "PRI"}
            if key != set(table.key) or found["id"][0] != "binary(16)" or not found.keys() >= {"crawl", "url"}:
                raise self._refused(f"has a table {table.name} that is not Shoal's; choose another by ?table=NAME")
            for (index,) in await _ask(connection, _FIND_UNIQUE.format(table.name)):
                # ON DUPLICATE KEY UPDATE would take two rows that share its value for one.
                raise self._refused(
                    f"has a unique index {index} beside its key, so that pages overwrite others; drop it"
                )
        return found

    async def _make(self, connection: Connection, table: ServerTable, found: Collection[str]) -> None:
        if found:
            for name in table.definitions.keys() - found:
                await _ask(connection, f"ALTER TABLE `{table.name}` ADD COLUMN `{name}` {table.definitions[name]}")
            return
        columns = ", ".join(f"`{name}` {definition}" for name, definition in table.definitions.items())
        shape = "ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin"
        await _ask(connection, f"CREATE TABLE `{table.name}` ({columns}, PRIMARY KEY ({', '.join(table.key)})) {shape}")

    async def _add_field(self, connection: Connection, table: ServerTable, name: str, kind: ColumnKind) -> None:
        try:
            await _ask(connection, f"ALTER TABLE `{table.name}` ADD COLUMN `{name}` {FIELDS[kind]}")
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
        head, tail = _insert(self._address.table, DEFINITIONS, _CHANGES)
        room = self._longest - len(head) - len(tail) - 64
        # In the order of ids: workers that meet wait for each other, and never in a circle.
        ordered = sorted((digest(page.crawl, page.url), at) for at, page in enumerate(pages))
        for some in _packets([_row(id_, pages[at], room) for id_, at in ordered], room):
            await connection.query(b"".join((head, b",".join(some), tail)))

    async def _forget(self, connection: Connection, table: str, ids: Sequence[bytes], items: Sequence[Item]) -> None:
        if not ids:
            return
        # Deleting by less than the whole key would lock the gaps where others insert; reading locks nothing.
        chosen = ",".join(f"X'{id_.hex()}'" for id_ in ids)
        found = await _ask(connection, f"SELECT HEX(id), number FROM `{table}` WHERE id IN ({chosen})")  # noqa: S608
        for id_, number in sorted({(id_, number) for id_, number in found} - {_key(item) for item in items}):
            await connection.query(f"DELETE FROM `{table}` WHERE id = X'{id_}' AND number = {number}")  # noqa: S608

    async def _upsert_items(self, connection: Connection, table: str, items: Sequence[Item]) -> None:
        fields = [name for name, kind in self._seen[table].items() if kind is not None]
        names = [*(SPIDER_DEFINITIONS if self._address.per_spider else ITEM_DEFINITIONS), *fields]
        head, tail = _insert(table, names, ", ".join(f"`{name}` = VALUES(`{name}`)" for name in names))
        room = self._longest - len(head) - len(tail) - 64
        columns = self._seen[table] if self._address.per_spider else None
        ordered = sorted(items, key=lambda item: (item_id(item), item.number))
        for some in _packets([_item_row(item, columns, room) for item in ordered], room):
            await connection.query(b"".join((head, b",".join(some), tail)))

    async def _disconnect(self, connection: Connection) -> None:
        await connection.ensure_closed()

    def _abandon(self, connection: Connection) -> None:
        connection.close()

    def _meaning(self, error: Exception, *, connected: bool) -> Exception:
        if isinstance(error, errors.MySQLError) and not isinstance(error.__cause__, ssl.SSLCertVerificationError):
            code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
            said = str(error.args[-1]).rstrip(".") if error.args else "no reason"
            # The driver has numbers from 2000 on, and none where the bytes of the server make no sense to it.
            if code == 0 or 2000 <= code < 2100:
                if connected:
                    return TransientError("lost the connection", quiet_seconds=QUIET_SECONDS)
                return TransientError(f"cannot be reached ({_why(error)})")
            if code in _HEALS:
                return TransientError(f"{_HEALS[code]} ({said})", quiet_seconds=QUIET_SECONDS * (code in _QUIET))
            advice = _LOGIN.get(code)
            return self._refused(f"refuses: {said}" + (f"; {advice}" if advice else ""))
        if isinstance(error, RuntimeError):
            # How the account logs in needs a package that is not there; the message says which.
            return self._refused(f"cannot log in: {str(error).rstrip('.')}")
        return super()._meaning(error, connected=connected)


async def _ask(connection: Connection, statement: str) -> Sequence[Sequence[Any]]:
    async with connection.cursor() as cursor:
        await cursor.execute(statement)
        rows: Sequence[Sequence[Any]] = await cursor.fetchall()
        return rows


def _why(error: errors.MySQLError) -> str:
    cause = error.__cause__
    return describe_os_error(cause) if isinstance(cause, OSError) else str(error.args[-1])


def _insert(table: str, names: Iterable[str], changes: str) -> tuple[bytes, bytes]:
    """What is before the rows of a statement, and after them."""
    columns = ", ".join(f"`{name}`" for name in names)
    head = f"INSERT INTO `{table}` ({columns}) VALUES "  # noqa: S608 - names of columns and a checked table
    return head.encode(), f" ON DUPLICATE KEY UPDATE {changes}".encode()


def _row(id_: bytes, record: Record, room: int) -> bytes:
    values: list[object] = list(msgspec.structs.astuple(record))
    values[_ERROR] = record.error or None
    values[_REDIRECTS] = msgspec.json.encode(record.redirects).decode() if record.redirects else "[]"
    values[_FETCHED_AT] = _moment(record)
    row = f"(X'{id_.hex()}',{','.join(map(_literal, values))})".encode()
    if len(row) <= room:
        return row
    # The server takes no larger packet, in any way. A page with less of its text is better than a crawl that stops.
    longest = max(_CUTTABLE, key=lambda name: len(getattr(record, name)))
    text: str = getattr(record, longest)
    return _row(id_, msgspec.structs.replace(record, **{longest: text[: len(text) * room // len(row) * 9 // 10]}), room)


def _item_row(item: Item, columns: Mapping[str, ColumnKind | None] | None, room: int) -> bytes:
    row = _item_literal(item, item.data, columns)
    if len(row) > room:
        # As of pages: an item with less of its long texts, at last with none, is better than a crawl that stops.
        for longest in (room // 4, room // 64, 1000):
            row = _item_literal(item, plain(item.data, longest=longest), columns)
            if len(row) <= room:
                return row
        row = _item_literal(item, {}, columns)
    return row


def _item_literal(item: Item, data: dict[str, Any], columns: Mapping[str, ColumnKind | None] | None) -> bytes:
    values, left = ({}, data) if columns is None else spread(data, columns)
    fixed = (item.crawl, item.url, item.spider, item.number, _moment(item), data_text(left))
    fields = (values.get(name) for name, kind in (columns or {}).items() if kind is not None)
    return f"(X'{item_id(item).hex()}',{','.join(map(_literal, (*fixed, *fields)))})".encode()


def _key(item: Item) -> tuple[str, int]:
    return item_id(item).hex().upper(), item.number


def _moment(record: Row) -> str | None:
    at = moment(record)
    return at and at.replace("T", " ").removesuffix("Z")


def _literal(value: object) -> str:
    """As the session reads it: its text is UTF-8, in which no byte of a longer character looks like a quote."""
    if type(value) is str:
        return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
    return "NULL" if value is None else repr(value)


def _packets(rows: Sequence[bytes], most: int) -> Iterator[Sequence[bytes]]:
    """The rows in groups that the server takes as one packet."""
    start = length = 0
    for at, row in enumerate(rows):
        if at > start and length + len(row) > most:
            yield rows[start:at]
            start = at
            length = 0
        length += len(row) + 1
    if start < len(rows):
        yield rows[start:]
