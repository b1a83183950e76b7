"""SQLite: tables `pages` and `items` with one row per key, written by all workers of this machine at the same time.

The items of a page are replaced together with its row, in one transaction. The table `items` is created when a spider
needs it.

Each sink has one connection in its own thread, and writes one transaction per batch. The file is in WAL mode, so any
SQLite program can read it while a crawl runs; `synchronous=FULL` makes a batch survive a power cut. A lock, a full disk
and an I/O error are retried. A file that is not a database, or has other tables, is SinkRefused.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import shlex
import shutil
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import msgspec

from shoal.errors import SinkRefused
from shoal.model.record import Item, Record, RecordKey
from shoal.sinks.columns import COLUMNS, ITEM_COLUMNS, Row, confirmed_sql, data_text, encodable, moment, visited
from shoal.sinks.contract import Holds, OnTrouble, Stored
from shoal.sinks.executor import SinkThread
from shoal.sinks.files.technology import LocalTechnology
from shoal.sinks.reader import Cursor, ReadRequest
from shoal.sinks.retry import TransientError, retry
from shoal.sinks.sql.column_types import ColumnTypes, item_columns, page_columns

_log = logging.getLogger(__name__)
SCHEMA_VERSION = 1
# How long one attempt waits for the transactions of other workers. A cancelled write waits at most this long, too.
BUSY_MS = 1000
# Workers often wait for each other: a shorter lock is not reported.
LOCK_QUIET_SECONDS = 5.0

_TYPES = ColumnTypes(
    key="TEXT NOT NULL",
    text="TEXT NOT NULL DEFAULT ''",
    whole="INTEGER NOT NULL DEFAULT 0",
    real="REAL NOT NULL DEFAULT 0",
    flag="INTEGER NOT NULL DEFAULT 0",
    error="TEXT",
    list="TEXT NOT NULL DEFAULT '[]'",
    fetched_at="TEXT",
    number="INTEGER NOT NULL",
    data="TEXT NOT NULL DEFAULT '{}'",
)
DEFINITIONS = page_columns(_TYPES)
ITEM_DEFINITIONS = item_columns(_TYPES)


class SqliteTable(NamedTuple):
    name: str
    definitions: dict[str, str]
    key: tuple[str, ...]

    @property
    def insert(self) -> str:
        names, values = ", ".join(self.definitions), ", ".join("?" * len(self.definitions))
        return f"INSERT INTO {self.name} ({names}) VALUES ({values}) ON CONFLICT ({', '.join(self.key)}) DO UPDATE SET "  # noqa: S608 - names of fields

    @property
    def replace(self) -> str:
        return self.insert + ", ".join(f"{name} = excluded.{name}" for name in self.definitions if name not in self.key)


PAGES = SqliteTable("pages", DEFINITIONS, ("crawl", "url"))
ITEMS = SqliteTable("items", ITEM_DEFINITIONS, ("crawl", "url", "spider", "number"))

_REPLACE, _REPLACE_ITEM = PAGES.replace, ITEMS.replace
_DELETE_ITEMS = "DELETE FROM items WHERE crawl = ? AND url = ? AND spider = ?"
# A 304 response updates the row of its page; any other response replaces it.
_CONFIRM = PAGES.insert + ", ".join(
    f"{name} = {value}" for name, value in confirmed_sql(str, lambda name: f"excluded.{name}").items()
)
_ERROR, _REDIRECTS, _FETCHED_AT = (COLUMNS.index(name) for name in ("error", "redirects", "fetched_at"))
_ITEM_FETCHED_AT, _DATA = ITEM_COLUMNS.index("fetched_at"), ITEM_COLUMNS.index("data")

_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
_TRANSIENT = {
    sqlite3.SQLITE_FULL: "has no space left on its disk",
    sqlite3.SQLITE_IOERR: "has a disk I/O error",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_READONLY: "cannot be written",
    sqlite3.SQLITE_PERM: "cannot be written",
    sqlite3.SQLITE_NOMEM: "is out of memory",
}


class SqliteSink:
    """One worker's connection to one file."""

    def __init__(self, path: Path, *, worker: str, on_trouble: Callable[[str], None], spider: bool = False) -> None:
        self._path = path
        self._spider = spider
        self._on_trouble = on_trouble
        self._thread = SinkThread("sqlite")
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] = (0, 0)
        self._has_items = False

    async def open(self) -> None:
        await retry(self._path, lambda: self._thread.run(self._first_connect), self._on_trouble)

    async def write(self, records: Sequence[Stored], receipt: bytes) -> None:
        await retry(self._path, lambda: self._thread.run(lambda: self._store(records)), self._on_trouble)

    async def commit(self, rejected: Collection[RecordKey]) -> None:
        """Do nothing: the worker that repeats a rejected visit writes the same row."""

    async def hand_over(self) -> None:
        """Do nothing, as `commit`."""

    async def close(self) -> None:
        await self._thread.end(self._end)

    # The methods below run in the thread.

    def _first_connect(self) -> None:
        try:
            self._connect()
        except sqlite3.Error as error:
            # A lock or a full disk may pass. A file that cannot be opened at the start will not open later.
            self._translate(error, never=(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM))

    def _store(self, records: Sequence[Stored]) -> None:
        try:
            connection = self._connection
            # If the file was moved away, records must go to a new file under the output's name.
            if connection is None or self._identity() != self._file:
                self._warn_if_replaced()
                connection = self._connect()
            try:
                self._upsert(connection, records)
            except UnicodeEncodeError:
                self._upsert(connection, [encodable(record) for record in records])
        except sqlite3.Error as error:
            self._translate(error)

    def _upsert(self, connection: sqlite3.Connection, records: Sequence[Stored]) -> None:
        pages = [record for record in records if isinstance(record, Record)]
        items = [record for record in records if isinstance(record, Item)]
        replaced = visited(pages)
        with _transaction(connection):
            for not_modified, run in itertools.groupby(pages, lambda record: record.status == 304):
                connection.executemany(_CONFIRM if not_modified else _REPLACE, _rows(run))
            if items or replaced:
                if not self._has_items:
                    _prepare(connection, self._path, ITEMS)
                connection.executemany(_DELETE_ITEMS, replaced)
                connection.executemany(_REPLACE_ITEM, _item_rows(items))
        self._has_items = self._has_items or bool(items or replaced)

    def _connect(self) -> sqlite3.Connection:
        self._disconnect()
        connection = sqlite3.connect(self._path, isolation_level=None)
        try:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
            # For a new file: long texts take a third less time than with pages of 4 KB.
            connection.execute("PRAGMA page_size = 16384")
            # Without shared memory, a file system keeps its mode, in which readers and writers exclude each other.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            with _transaction(connection):
                _check_version(connection, self._path)
                _prepare(connection, self._path, PAGES)
                if self._spider:
                    _prepare(connection, self._path, ITEMS)
        except BaseException:
            connection.close()
            raise
        self._connection, self._file, self._has_items = connection, self._identity(), self._spider
        return connection

    def _end(self) -> None:
        self._warn_if_replaced()
        self._disconnect()

    def _warn_if_replaced(self) -> None:
        if self._connection is not None and self._identity() != self._file:
            _log.warning(
                "The output %s was deleted, moved or replaced while the crawl ran. Pages that were stored before are "
                "not in the file that has its name now.",
                self._path,
            )

    def _disconnect(self) -> None:
        if self._connection is not None:
            # An error does no harm here: everything that was acknowledged is in the file and its log.
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _identity(self) -> tuple[int, int]:
        try:
            status = self._path.stat()
        except OSError:
            return (0, 0)
        return (status.st_dev, status.st_ino)

    def _translate(self, error: sqlite3.Error, never: Collection[int] = ()) -> NoReturn:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _LOCKED:
            raise TransientError("is locked by another program", quiet_seconds=LOCK_QUIET_SECONDS) from error
        if code in _TRANSIENT and code not in never:
            raise TransientError(_TRANSIENT[code]) from error
        if code == sqlite3.SQLITE_NOTADB:
            raise SinkRefused(f"The output {self._path} is not an SQLite database; name another file.") from error
        if code == sqlite3.SQLITE_CORRUPT:
            raise SinkRefused(
                f"The output {self._path} is a damaged SQLite database; repair it with `.recover` of the sqlite3 "
                "program or name another file."
            ) from error
        raise SinkRefused(f"The output {self._path} cannot be used: {error}.") from error


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version not in (0, SCHEMA_VERSION):
        raise SinkRefused(
            f"The output {path} has schema version {version}, but {SCHEMA_VERSION} is supported: another program or a "
            "newer Shoal created it; name another file."
        )
    if version != SCHEMA_VERSION:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _prepare(connection: sqlite3.Connection, path: Path, table: SqliteTable) -> None:
    """Create the table, or add the columns that an older one lacks."""
    columns = connection.execute("SELECT name, pk FROM pragma_table_info(?)", (table.name,)).fetchall()
    if not columns:
        defined = ", ".join(f"{name} {definition}" for name, definition in table.definitions.items())
        connection.execute(f"CREATE TABLE {table.name} ({defined}, PRIMARY KEY ({', '.join(table.key)}))")
    else:
        key = tuple(name for name, position in sorted(columns, key=lambda column: column[1]) if position)
        if key != table.key:
            raise SinkRefused(
                f"The output {path} has a table `{table.name}` that is not from Shoal; name another file."
            )
        for name in table.definitions.keys() - {name for name, _ in columns}:
            connection.execute(f"ALTER TABLE {table.name} ADD COLUMN {name} {table.definitions[name]}")


def _rows(records: Iterable[Record]) -> Iterator[list[object]]:
    for record in records:
        values: list[object] = list(msgspec.structs.astuple(record))
        values[_ERROR] = record.error or None
        values[_REDIRECTS] = msgspec.json.encode(record.redirects).decode() if record.redirects else "[]"
        values[_FETCHED_AT] = moment(record)
        yield values


def _item_rows(items: Iterable[Item]) -> Iterator[list[object]]:
    for item in items:
        values: list[object] = list(msgspec.structs.astuple(item))
        values[_ITEM_FETCHED_AT] = moment(item)
        values[_DATA] = data_text(item.data)
        yield values


class SqliteTechnology(LocalTechnology):
    schemes = ("sqlite",)
    endings = (".db", ".sqlite", ".sqlite3")
    holds = Holds.TABLES

    def open(self, address: Path, *, worker: str, on_trouble: OnTrouble, spider: bool) -> SqliteSink:
        return SqliteSink(address, worker=worker, on_trouble=on_trouble, spider=spider)

    def rows(self, path: Path, request: ReadRequest) -> Iterator[tuple[Cursor, Row]]:
        from shoal.sinks.sql.sqlite_reader import rows

        return rows(path, request)

    def example_query(self, address: Path, crawl: str, *, items: bool) -> str:
        selected = "data from items" if items else "status, url, title from pages"
        query = f"select {selected} where crawl = '{crawl}' limit 10"
        if shutil.which("sqlite3"):
            return f'sqlite3 {shlex.quote(str(address))} "{query}"'
        program = f"import sqlite3; print(*sqlite3.connect({str(address)!r}).execute({query!r}), sep='\\n')"
        return f"python3 -c {shlex.quote(program)}"


TECHNOLOGY = SqliteTechnology()
