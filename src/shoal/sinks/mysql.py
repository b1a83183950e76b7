"""MySQL and MariaDB: a table with one row of a key, written by any number of workers at once.

One statement stores a batch: `INSERT ... VALUES ... ON DUPLICATE KEY UPDATE`. The key is `id`, a hash of crawl and URL:
an index of InnoDB cannot hold a long URL. Everything is utf8mb4 with a binary collation, so that URLs are compared
letter by letter.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Sequence
from typing import Any, get_type_hints

import asyncmy
import msgspec
from asyncmy import errors

from shoal.model.record import Record
from shoal.sinks.patience import Hindrance
from shoal.sinks.row import COLUMNS, digest, encodable, moment
from shoal.sinks.server import CONNECT_SECONDS, QUIET_SECONDS, ServerSink, reason

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
DEFINITIONS = {"id": "BINARY(16) PRIMARY KEY"} | {name: _SPECIAL.get(name) or _TYPES[_HINTS[name]] for name in COLUMNS}

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
_NAMES = ", ".join(f"`{name}`" for name in DEFINITIONS)

_FIND_COLUMNS = """
    SELECT column_name, column_type, column_key FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = '{}'"""
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
    1146: "lost its table",
    1205: "is in use by others",
    1213: "is in use by others",
    1317: "is not ready",
    1927: "lost the connection",
    4031: "lost the connection",
}
_QUIET = (1146, 1205, 1213, 1927, 4031)
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
        if unknown := address.options.keys() - {"table", "socket", "ssl_ca"}:
            raise self._refused(f"has an option {min(unknown)!r}; those of MySQL are table, socket and ssl_ca")
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
            await self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _prepare(self, connection: Connection) -> None:
        ((longest,),) = await _ask(connection, "SELECT @@max_allowed_packet")
        self._longest = int(longest)
        if DEFINITIONS.keys() - await self._columns(connection):
            lock = f"'shoal {self._address.table}'"
            ((got,),) = await _ask(connection, f"SELECT GET_LOCK({lock}, {_LOCK_SECONDS})")
            if not got:
                raise Hindrance("is in use by others", quiet_seconds=QUIET_SECONDS)
            await self._make(connection, await self._columns(connection))
            await _ask(connection, f"SELECT RELEASE_LOCK({lock})")

    async def _columns(self, connection: Connection) -> set[str]:
        """The columns of the table, none when it is not there; SinkRefused when it is somebody else's."""
        table = self._address.table
        found = {name: (kind, key) for name, kind, key in await _ask(connection, _FIND_COLUMNS.format(table))}
        if found:
            keys = [name for name, (_, key) in found.items() if key == "PRI"]
            if keys != ["id"] or found["id"][0].lower() != "binary(16)" or not found.keys() >= {"crawl", "url"}:
                raise self._refused("has a table of this name that is not Shoal's; choose another by ?table=NAME")
            for (index,) in await _ask(connection, _FIND_UNIQUE.format(table)):
                # ON DUPLICATE KEY UPDATE would take two pages that share its value for one.
                raise self._refused(
                    f"has a unique index {index} beside its key, so that pages overwrite others; drop it"
                )
        return set(found)

    async def _make(self, connection: Connection, found: set[str]) -> None:
        if found:
            for name in DEFINITIONS.keys() - found:
                await _ask(connection, f"ALTER TABLE {self._table} ADD COLUMN `{name}` {DEFINITIONS[name]}")
            return
        columns = ", ".join(f"`{name}` {definition}" for name, definition in DEFINITIONS.items())
        shape = "ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin"
        await _ask(connection, f"CREATE TABLE {self._table} ({columns}) {shape}")

    async def _store(self, connection: Connection, records: Sequence[Record]) -> None:
        head = f"INSERT INTO {self._table} ({_NAMES}) VALUES ".encode()  # noqa: S608 - names of fields and a checked table
        tail = f" ON DUPLICATE KEY UPDATE {_CHANGES}".encode()
        room = self._longest - len(head) - len(tail) - 64
        try:
            rows = _rows(records, room)
        except UnicodeEncodeError:
            rows = _rows([encodable(record) for record in records], room)
        for some in _packets(rows, room):
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
                    return Hindrance("lost the connection", quiet_seconds=QUIET_SECONDS)
                return Hindrance(f"cannot be reached ({_why(error)})")
            if code in _HEALS:
                return Hindrance(f"{_HEALS[code]} ({said})", quiet_seconds=QUIET_SECONDS * (code in _QUIET))
            advice = _LOGIN.get(code)
            return self._refused(f"refuses: {said}" + (f"; {advice}" if advice else ""))
        if isinstance(error, RuntimeError):
            # How the account logs in needs a package that is not there; the message says which.
            return self._refused(f"cannot log in: {str(error).rstrip('.')}")
        return super()._meaning(error, connected=connected)

    @property
    def _table(self) -> str:
        return f"`{self._address.table}`"


async def _ask(connection: Connection, statement: str) -> Sequence[Sequence[Any]]:
    async with connection.cursor() as cursor:
        await cursor.execute(statement)
        rows: Sequence[Sequence[Any]] = await cursor.fetchall()
        return rows


def _why(error: errors.MySQLError) -> str:
    cause = error.__cause__
    return reason(cause) if isinstance(cause, OSError) else str(error.args[-1])


def _rows(records: Sequence[Record], room: int) -> list[bytes]:
    """In the order of ids: workers that meet wait for each other, and never in a circle."""
    ordered = sorted((digest(record), number) for number, record in enumerate(records))
    return [_row(id_, records[number], room) for id_, number in ordered]


def _row(id_: bytes, record: Record, room: int) -> bytes:
    values: list[object] = list(msgspec.structs.astuple(record))
    at = moment(record)
    values[_ERROR] = record.error or None
    values[_REDIRECTS] = msgspec.json.encode(record.redirects).decode() if record.redirects else "[]"
    values[_FETCHED_AT] = at and at.replace("T", " ").removesuffix("Z")
    row = f"(X'{id_.hex()}',{','.join(map(_literal, values))})".encode()
    if len(row) <= room:
        return row
    # The server takes no larger packet, in any way. A page with less of its text is better than a crawl that stops.
    longest = max(_CUTTABLE, key=lambda name: len(getattr(record, name)))
    text: str = getattr(record, longest)
    return _row(id_, msgspec.structs.replace(record, **{longest: text[: len(text) * room // len(row) * 9 // 10]}), room)


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
