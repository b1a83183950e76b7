"""Databases on servers: their address as a user types it, and the order of a batch.

A technology says how to connect, how to store rows, and what its errors mean; connection.py has the patience. A batch
that was stored without the answer coming back is stored again, which changes nothing. Of a batch with items, tables and
columns that are missing are made first, then one transaction writes pages and replaces their items.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, NamedTuple, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from shoal.errors import SinkRefused
from shoal.model.record import Item, Record
from shoal.settings import masked
from shoal.sinks.columns import MOST_COLUMNS, ColumnKind, data_text, digest, encodable, kinds, last_of_each, visited
from shoal.sinks.contract import Key, Stored
from shoal.sinks.retry import Connected

# One statement carries at most this much text, so that a batch of large pages stays below every server's limits.
STATEMENT_CHARACTERS = 8_000_000

# Of tables, in every server.
NAME_LENGTH = 63

Connection = TypeVar("Connection")


class ServerTable(NamedTuple):
    """A table as it has to be: its name, the definitions of its columns, and which of them are its key."""

    name: str
    definitions: Mapping[str, str]
    key: tuple[str, ...]


class ServerAddress(NamedTuple):
    """Where a table is. `uri` is the full spelling, with its secret; `shown` is for people."""

    uri: str
    shown: str
    user: str
    password: str
    host: str
    port: int
    database: str
    table: str
    options: dict[str, str]

    def without(self, *names: str) -> str:
        """The URI without these options, for a driver that reads the others itself."""
        options = {name: value for name, value in self.options.items() if name not in names}
        return self.uri.partition("?")[0] + ("?" + urlencode(options) if options else "")

    @property
    def per_spider(self) -> bool:
        return "table_per_spider" in self.options

    def items(self, spider: str) -> str:
        """The table of a spider's items. Spiders of similar names may share one: their rows differ by `spider`."""
        schema, dot, table = self.table.rpartition(".")
        name = "items" if table == "pages" else f"{table}_items"
        if self.per_spider:
            name += "_" + re.sub(r"[^a-z0-9]+", "_", spider.lower())
        if len(name) > NAME_LENGTH:
            name = f"{name[: NAME_LENGTH - 9]}_{digest(name).hex()[:8]}"
        return schema + dot + name


def address_of(uri: str, scheme: str) -> ServerAddress:
    """SinkRefused in one sentence for what is no address. The message shows no part of a URI that may be a secret."""
    shown = repr(masked(uri))
    advice = (
        f"write {scheme}://USER:PASSWORD@HOST/DATABASE?table=pages, with %40, %2F, %23 and %3F for @, /, # and ? in a "
        "password"
    )
    try:
        parts = urlsplit(f"{scheme}:{uri.partition(':')[2]}")
        port = parts.port or 0
        query = re.sub(r"(?<![^&])table_per_spider(?![^&])", "table_per_spider=yes", parts.query)
        asked = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise SinkRefused(f"The output {shown} is no address of a database; {advice}.") from None
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database or parts.fragment or not uri.partition(":")[2].startswith("//"):
        raise SinkRefused(f"The output {shown} names no database; {advice}.")
    options = {"table": "pages"} | dict(asked)
    table = options["table"]
    if options.get("table_per_spider", "yes") != "yes":
        raise SinkRefused(f"The output {shown} has an option table_per_spider with a value; leave the value out.")
    # PostgreSQL has schemas in a database; what MySQL calls a schema is the database.
    name = r"[A-Za-z_][A-Za-z0-9_]{0,59}"
    if not re.fullmatch(rf"({name}\.)?{name}" if scheme == "postgresql" else name, table):
        raise SinkRefused(f"The output {shown} has a table whose name is not letters, digits and _; choose another.")
    full = f"{scheme}://{parts.netloc}/{quote(database)}?{urlencode(options)}"
    return ServerAddress(
        full, masked(full), unquote(parts.username or ""), unquote(parts.password or ""),
        parts.hostname or "", port, database, table, options,
    )  # fmt: skip


class ServerSink(Connected[Connection]):
    """One worker's connection to one table."""

    scheme: str
    # What a technology raises for text that it cannot hold, and what it takes in place of a NUL.
    unfit: ClassVar[tuple[type[Exception], ...]] = (UnicodeEncodeError,)
    nul = "\0"

    def __init__(self, uri: str, *, worker: str, on_trouble: Callable[[str], None], spider: bool = False) -> None:
        self._address = address_of(uri, self.scheme)
        super().__init__(self._address.shown, on_trouble)
        self._spider = spider
        # The tables of items that this connection has seen, with the kinds of their fields: None has no column.
        self._seen: dict[str, dict[str, ColumnKind | None]] = {}

    async def write(self, records: Sequence[Stored], receipt: bytes) -> None:
        for some in statements(last_of_each(records)):

            async def store(connection: Connection, some: Sequence[Stored] = some) -> None:
                try:
                    await self._store(connection, some)
                except self.unfit:
                    # Nothing was stored, and the connection is as before.
                    await self._store(connection, [encodable(one, nul=self.nul) for one in some])

            await self._persist(store)

    async def settle(self, refused: Collection[Key]) -> None:
        """Nothing: whoever makes a refused visit again writes the same row."""

    async def _prepare(self, connection: Connection) -> None:
        self._seen.clear()
        if self._spider and not self._address.per_spider:
            # A table that cannot be made is refused before the crawl begins.
            await self._expect(connection, self._address.items(""), {})

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
            tables.setdefault(self._address.items(spider), ([], []))[0].append(digest(crawl, url, spider))
        for item in items:
            tables.setdefault(self._address.items(item.spider), ([], []))[1].append(item)
        for table, (_, some) in tables.items():
            await self._expect(connection, table, kinds(some) if self._address.per_spider else {})
        async with self._transaction(connection):
            # Pages first: whoever writes the items of the same page waits here until these are committed.
            if pages:
                await self._upsert_pages(connection, pages)
            for table, (ids, some) in sorted(tables.items()):
                await self._forget(connection, table, ids, some)
                if some:
                    await self._upsert_items(connection, table, some)

    async def _expect(self, connection: Connection, name: str, wanted: Mapping[str, ColumnKind]) -> None:
        """See to it that a table of items is there, with these columns if it can have them."""
        seen = self._seen.get(name)
        if seen is None or (wanted.keys() - seen and len(seen) < MOST_COLUMNS):
            found = await self._ensure_items(connection, name, wanted)
            self._seen[name] = {**dict.fromkeys(wanted), **(seen or {}), **found}

    @abstractmethod
    def _transaction(self, connection: Connection) -> AbstractAsyncContextManager[Any]:
        """Committed at the end; undone, with a connection that goes on, by an exception of `unfit`."""

    @abstractmethod
    async def _ensure_items(
        self, connection: Connection, name: str, wanted: Mapping[str, ColumnKind]
    ) -> dict[str, ColumnKind]:
        """Make the table or what it lacks, outside of transactions; the kinds of its fields by column."""

    @abstractmethod
    async def _upsert_pages(self, connection: Connection, pages: Sequence[Record]) -> None:
        """Rows of different keys, committed when it returns unless a transaction is open."""

    @abstractmethod
    async def _forget(self, connection: Connection, table: str, ids: Sequence[bytes], items: Sequence[Item]) -> None:
        """Delete the items of these pages, at least those that are not written again at once."""

    @abstractmethod
    async def _upsert_items(self, connection: Connection, table: str, items: Sequence[Item]) -> None: ...


def item_id(item: Item) -> bytes:
    """The items of one page have one id: with `number` it is their key, and alone it finds them all."""
    return digest(item.crawl, item.url, item.spider)


def statements(records: Sequence[Stored], most: int = STATEMENT_CHARACTERS) -> Iterator[Sequence[Stored]]:
    """The records in groups of at most so much text each, at least one a group. A page is with its items."""
    pages: dict[tuple[str, str], list[Stored]] = {}
    for record in records:
        pages.setdefault((record.crawl, record.url), []).append(record)
    group: list[Stored] = []
    characters = 0
    for some in pages.values():
        more = sum(map(_characters, some))
        if group and characters + more > most:
            yield group
            group, characters = [], 0
        group += some
        characters += more
    if group:
        yield group


def _characters(record: Stored) -> int:
    if isinstance(record, Item):
        return len(data_text(record.data)) + 500
    return len(record.text) + 1000 if isinstance(record, Record) else 0
