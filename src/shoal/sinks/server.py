"""Databases on servers: their address as a user types it, and one connection that is made again when it is lost.

A technology says how to connect, how to store rows, and what its errors mean. This module owns the patience around it:
a server that is away, restarts, is full or does not answer is tried again, and a batch that was stored without the
answer coming back is stored again, which changes nothing.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from shoal.errors import SinkRefused, SinkUnavailable
from shoal.model.record import Record
from shoal.settings import masked
from shoal.sinks.contract import Key
from shoal.sinks.patience import Hindrance, persist
from shoal.sinks.row import last_of_each

# How long an attempt may take. A server that is frozen, or a network that swallows packets, says nothing at all.
ANSWER_SECONDS = 60.0
CONNECT_SECONDS = 10.0
# What heals by itself within a moment, as between workers, is nothing to tell a person.
QUIET_SECONDS = 5.0
# One statement carries at most this much text, so that a batch of large pages stays below every server's limits.
STATEMENT_CHARACTERS = 8_000_000

Connection = TypeVar("Connection")


class Address(NamedTuple):
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


def address_of(uri: str, scheme: str) -> Address:
    """SinkRefused in one sentence for what is no address. The message shows no part of a URI that may be a secret."""
    shown = repr(masked(uri))
    advice = (
        f"write {scheme}://USER:PASSWORD@HOST/DATABASE?table=pages, with %40, %2F, %23 and %3F for @, /, # and ? in a "
        "password"
    )
    try:
        parts = urlsplit(f"{scheme}:{uri.partition(':')[2]}")
        port = parts.port or 0
        asked = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise SinkRefused(f"The output {shown} is no address of a database; {advice}.") from None
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database or parts.fragment or not uri.partition(":")[2].startswith("//"):
        raise SinkRefused(f"The output {shown} names no database; {advice}.")
    options = {"table": "pages"} | dict(asked)
    table = options["table"]
    # PostgreSQL has schemas in a database; what MySQL calls a schema is the database.
    name = r"[A-Za-z_][A-Za-z0-9_]{0,59}"
    if not re.fullmatch(rf"({name}\.)?{name}" if scheme == "postgresql" else name, table):
        raise SinkRefused(f"The output {shown} has a table whose name is not letters, digits and _; choose another.")
    full = f"{scheme}://{parts.netloc}/{quote(database)}?{urlencode(options)}"
    return Address(
        full, masked(full), unquote(parts.username or ""), unquote(parts.password or ""),
        parts.hostname or "", port, database, table, options,
    )  # fmt: skip


class ServerSink(ABC, Generic[Connection]):
    """One worker's connection to one table."""

    scheme: str

    def __init__(self, uri: str, *, worker: str, on_trouble: Callable[[str], None]) -> None:
        self._address = address_of(uri, self.scheme)
        self._on_trouble = on_trouble
        self._connection: Connection | None = None
        self._closed = False

    async def open(self) -> None:
        async def nothing(connection: Connection) -> None:
            pass

        await self._persist(nothing)

    async def write(self, records: Sequence[Record], receipt: bytes) -> None:
        for some in statements(last_of_each(records)):

            async def store(connection: Connection, some: Sequence[Record] = some) -> None:
                await self._store(connection, some)

            await self._persist(store)

    async def settle(self, refused: Collection[Key]) -> None:
        """Nothing: whoever makes a refused visit again writes the same row."""

    async def close(self) -> None:
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await self._disconnect(connection)
            except Exception:
                # Whatever closing has to say: everything that was acknowledged is stored.
                self._abandon(connection)

    async def _persist(self, work: Callable[[Connection], Awaitable[None]]) -> None:
        if self._closed:
            raise SinkUnavailable("This output was closed.")
        await persist(self._address.shown, lambda: self._attempt(work), self._on_trouble)

    async def _attempt(self, work: Callable[[Connection], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                if self._connection is None:
                    self._connection = await self._connect()
                await work(self._connection)
        except BaseException as error:
            connected = self._connection is not None
            if self._connection is not None:
                # Also when cancelled: an answer may be on its way that nobody waits for.
                self._abandon(self._connection)
                self._connection = None
            if isinstance(error, Exception) and not isinstance(error, SinkRefused | Hindrance):
                raise self._meaning(error, connected=connected) from error
            raise

    def _meaning(self, error: Exception, *, connected: bool) -> Exception:
        for one in (error, error.__cause__):
            if isinstance(one, ssl.SSLCertVerificationError):
                return self._refused(f"has a certificate that is not trusted: {one.verify_message.rstrip('.')}")
        if isinstance(error, TimeoutError):
            return Hindrance("does not answer")
        if isinstance(error, OSError):
            return Hindrance(f"cannot be reached ({reason(error)})")
        return error

    def _refused(self, sentence: str) -> SinkRefused:
        return SinkRefused(f"The output {self._address.shown} {sentence}.")

    @abstractmethod
    async def _connect(self) -> Connection:
        """A connection to a table that is there and Shoal's."""

    @abstractmethod
    async def _store(self, connection: Connection, records: Sequence[Record]) -> None:
        """Upsert rows of different keys, committed when it returns."""

    @abstractmethod
    async def _disconnect(self, connection: Connection) -> None: ...

    @abstractmethod
    def _abandon(self, connection: Connection) -> None:
        """Close it at once, whatever it is doing."""


def statements(records: Sequence[Record], most: int = STATEMENT_CHARACTERS) -> Iterator[Sequence[Record]]:
    """The records in groups of at most so much text each, at least one record a group."""
    start = characters = 0
    for at, record in enumerate(records):
        more = len(record.text) + 1000
        if at > start and characters + more > most:
            yield records[start:at]
            start, characters = at, 0
        characters += more
    if start < len(records):
        yield records[start:]


def reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror | ssl.SSLError) or not error.errno:
        return error.strerror or str(error)
    return os.strerror(error.errno)
