"""Database servers: their URIs, and how a batch becomes rows.

A technology defines how to connect, how to store rows, and what its errors mean; retry.py retries. A batch that was
stored but whose reply was lost is stored again, which changes nothing. For a batch with items, missing tables and
columns are created first; then one transaction writes the pages and replaces their items.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar
from urllib.parse import quote, unquote, urlencode

from shoal.errors import SinkRefused
from shoal.model.record import Item, Record, RecordKey
from shoal.settings import masked
from shoal.sinks.columns import (
    MOST_COLUMNS,
    ColumnKind,
    Row,
    data_text,
    digest,
    encodable,
    kinds,
    last_of_each,
    visited,
)
from shoal.sinks.contract import Holds, Location, OnTrouble, Stored, Technology
from shoal.sinks.retry import Connected
from shoal.sinks.uri import split_scheme, split_server_uri

if TYPE_CHECKING:
    from shoal.sinks.reader import Cursor, ReadRequest

# The text of one statement, so that a batch of large pages stays below every server's limits.
STATEMENT_CHARACTERS = 8_000_000

# The longest name of a table, in every server.
NAME_LENGTH = 63

TABLE_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,59}"

Connection = TypeVar("Connection")


class ServerTable(NamedTuple):
    """A table that Shoal needs: its name, the definitions of its columns, and its key."""

    name: str
    definitions: Mapping[str, str]
    key: tuple[str, ...]


class ServerAddress(NamedTuple):
    """A table of a database."""

    # The full URI, with its password.
    uri: str
    # The URI for messages, without its password.
    shown: str
    user: str
    password: str
    host: str
    port: int
    database: str
    table: str
    options: dict[str, str]

    def without(self, *names: str) -> str:
        """The URI without these options, for a driver that interprets the others."""
        options = {name: value for name, value in self.options.items() if name not in names}
        return self.uri.partition("?")[0] + ("?" + urlencode(options) if options else "")

    @property
    def per_spider(self) -> bool:
        return "table_per_spider" in self.options

    def items(self, spider: str) -> str:
        """The table of a spider's items. Spiders with similar names may share one: their rows differ in `spider`."""
        schema, dot, table = self.table.rpartition(".")
        name = "items" if table == "pages" else f"{table}_items"
        if self.per_spider:
            name += "_" + re.sub(r"[^a-z0-9]+", "_", spider.lower())
        if len(name) > NAME_LENGTH:
            name = f"{name[: NAME_LENGTH - 9]}_{digest(name).hex()[:8]}"
        return schema + dot + name


def parse_server_uri(uri: str, scheme: str, table_pattern: str) -> ServerAddress:
    """Parse a URI; SinkRefused explains in one sentence what is wrong with it, without its password."""
    shown = repr(masked(uri))
    advice = (
        f"write {scheme}://USER:PASSWORD@HOST/DATABASE?table=pages, with %40, %2F, %23 and %3F for @, /, # and ? in a "
        "password"
    )
    _, rest = split_scheme(uri)
    before, question, query = rest.partition("?")
    query = re.sub(r"(?<![^&])table_per_spider(?![^&])", "table_per_spider=yes", query)
    try:
        parts, given = split_server_uri(f"{scheme}:{before}{question}{query}")
    except ValueError:
        raise SinkRefused(f"The output {shown} is not a valid address of a database; {advice}.") from None
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database or parts.fragment or not rest.startswith("//"):
        raise SinkRefused(f"The output {shown} does not name a database; {advice}.")
    options = {"table": "pages"} | given
    if options.get("table_per_spider", "yes") != "yes":
        raise SinkRefused(f"The output {shown} has a value for the option table_per_spider; omit the value.")
    if not re.fullmatch(table_pattern, options["table"]):
        raise SinkRefused(f"The output {shown} has an invalid table name; use letters, digits and _.")
    full = f"{scheme}://{parts.netloc}/{quote(database)}?{urlencode(options)}"
    return ServerAddress(
        full, masked(full), unquote(parts.username or ""), unquote(parts.password or ""),
        parts.hostname or "", parts.port or 0, database, options["table"], options,
    )  # fmt: skip


class ServerSink(Connected[Connection]):
    """One worker's connection to one table. Its reader uses it too, to connect and to explain errors."""

    # What replaces a NUL character, where the database has none.
    nul = "\0"

    def __init__(self, address: ServerAddress, *, on_trouble: Callable[[str], None], spider: bool = False) -> None:
        self.address = address
        super().__init__(address.shown, on_trouble)
        self._spider = spider
        # The item tables that this connection has checked, with the types of their fields: None has no column.
        self._seen: dict[str, dict[str, ColumnKind | None]] = {}

    async def write(self, records: Sequence[Stored], receipt: bytes) -> None:
        for group in statements(last_of_each(records)):

            async def store(connection: Connection, group: Sequence[Stored] = group) -> None:
                try:
                    await self._store(connection, group)
                except self.encoding_errors():
                    # Nothing was stored, and the connection is as before.
                    await self._store(connection, [encodable(record, nul=self.nul) for record in group])

            await self._retry(store)

    async def commit(self, rejected: Collection[RecordKey]) -> None:
        """Do nothing: the worker that repeats a rejected visit writes the same row."""

    async def hand_over(self) -> None:
        """Do nothing, as `commit`."""

    def encoding_errors(self) -> tuple[type[Exception], ...]:
        """The errors of text that the database cannot store."""
        return (UnicodeEncodeError,)

    async def _prepare(self, connection: Connection) -> None:
        self._seen.clear()
        if self._spider and not self.address.per_spider:
            # A table that cannot be created is refused before the crawl starts.
            await self._expect(connection, self.address.items(""), {})

    async def _store(self, connection: Connection, records: Sequence[Stored]) -> None:
        pages = [record for record in records if isinstance(record, Record)]
        items = [record for record in records if isinstance(record, Item)]
        replaced = visited(pages)
        if not items and not replaced:
            if pages:
                await self._upsert_pages(connection, pages)
            return
        tables: dict[str, tuple[list[bytes], list[Item]]] = {}
        for crawl, url, spider in replaced:
            tables.setdefault(self.address.items(spider), ([], []))[0].append(digest(crawl, url, spider))
        for item in items:
            tables.setdefault(self.address.items(item.spider), ([], []))[1].append(item)
        for table, (_, its_items) in tables.items():
            await self._expect(connection, table, kinds(its_items) if self.address.per_spider else {})
        async with self._transaction(connection):
            # Pages first: another worker with items of the same page waits here until these are committed.
            if pages:
                await self._upsert_pages(connection, pages)
            for table, (ids, its_items) in sorted(tables.items()):
                await self._delete_items(connection, table, ids, its_items)
                if its_items:
                    await self._upsert_items(connection, table, its_items)

    async def _expect(self, connection: Connection, name: str, fields: Mapping[str, ColumnKind]) -> None:
        """Ensure that a table of items exists, with these columns if it can have them."""
        seen = self._seen.get(name)
        if seen is None or (fields.keys() - seen and len(seen) < MOST_COLUMNS):
            columns = await self._ensure_items(connection, name, fields)
            self._seen[name] = {**dict.fromkeys(fields), **(seen or {}), **columns}

    @abstractmethod
    async def columns(self, connection: Connection, table: ServerTable) -> Mapping[str, Any]:
        """The types of the table's columns, {} if there is no table; SinkRefused if it is not a table of Shoal."""

    @abstractmethod
    def _transaction(self, connection: Connection) -> AbstractAsyncContextManager[Any]:
        """A transaction, committed at the end. One of `encoding_errors` rolls it back; the connection stays usable."""

    @abstractmethod
    async def _ensure_items(
        self, connection: Connection, name: str, fields: Mapping[str, ColumnKind]
    ) -> dict[str, ColumnKind]:
        """Create the table or its missing columns, outside of a transaction; returns the types of its fields."""

    @abstractmethod
    async def _upsert_pages(self, connection: Connection, pages: Sequence[Record]) -> None:
        """Store rows with different keys; committed when it returns, unless a transaction is open."""

    @abstractmethod
    async def _delete_items(
        self, connection: Connection, table: str, ids: Sequence[bytes], items: Sequence[Item]
    ) -> None:
        """Delete the items of these pages, except those that `items` replaces."""

    @abstractmethod
    async def _upsert_items(self, connection: Connection, table: str, items: Sequence[Item]) -> None: ...


def item_id(item: Item) -> bytes:
    """The id of a page's items. With `number` it is their key; alone it finds all of them."""
    return digest(item.crawl, item.url, item.spider)


def statements(records: Sequence[Stored], most: int = STATEMENT_CHARACTERS) -> Iterator[Sequence[Stored]]:
    """The records in groups with at most this much text, at least one each. A page is in one group with its items."""
    pages: dict[tuple[str, str], list[Stored]] = {}
    for record in records:
        pages.setdefault((record.crawl, record.url), []).append(record)
    group: list[Stored] = []
    characters = 0
    for same_page in pages.values():
        more = sum(map(_characters, same_page))
        if group and characters + more > most:
            yield group
            group, characters = [], 0
        group += same_page
        characters += more
    if group:
        yield group


def _characters(record: Stored) -> int:
    if isinstance(record, Item):
        return len(data_text(record.data)) + 500
    return len(record.text) + 1000 if isinstance(record, Record) else 0


class ServerTechnology(Technology[str]):
    """A database server. A technology adds `sink`, and `read`."""

    location: ClassVar[Location] = Location.SERVER
    holds: ClassVar[Holds] = Holds.TABLES
    # A regular expression for the name of a table.
    table_pattern: ClassVar[str] = TABLE_NAME

    def parse(self, uri: str) -> str:
        return self.parsed(uri).uri

    @abstractmethod
    def sink(self, address: ServerAddress, *, on_trouble: OnTrouble, spider: bool) -> ServerSink[Any]: ...

    def open(self, address: str, *, worker: str, on_trouble: OnTrouble, spider: bool) -> ServerSink[Any]:
        return self.sink(self.parsed(address), on_trouble=on_trouble, spider=spider)

    def parsed(self, address: str) -> ServerAddress:
        return parse_server_uri(address, self.name, self.table_pattern)

    @abstractmethod
    def read(self, address: str, request: ReadRequest) -> AsyncGenerator[list[tuple[Cursor, Row]], None]: ...
