"""The interfaces of output technologies and sinks.

A technology (`Technology`) describes one kind of output: its URIs, how to check, open, read and merge it. There is one
object per technology, listed in registry.py. A sink (`Sink`) is one worker's connection to one output of one crawl.

The order of these steps guarantees "stored once" for any technology:

    await sink.write(records, receipt)     the batch is durable when this returns
    the worker acknowledges the visits     the store may reject some: their lease expired, another worker has them
    await sink.commit(rejected)            the keys that were rejected; these records must not become visible

A database keeps one row per key, so a rejected record does no harm: the database ignores `receipt`, and `commit` does
nothing. A file cannot take a line back: it keeps `receipt` beside the lines until `commit`. If a worker dies before
that, or hands the batch over because the store does not respond, the merge asks the store whether the batch was
acknowledged. If it was not, it never will be. The store remembers only the last receipt of a name, so it must be read
before the name is used again.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from shoal.errors import SinkRefused
from shoal.model.record import Capture, Item, Record, RecordKey
from shoal.settings import masked

if TYPE_CHECKING:
    from shoal.sinks.columns import Row
    from shoal.sinks.reader import Cursor, ReadRequest

Stored = Record | Item | Capture
OnTrouble = Callable[[str], None]
# Shows the receipt of a batch whose worker died to the store; returns the keys that the store rejected.
Replay = Callable[[bytes], Awaitable[Collection[RecordKey]]]


class Sink(Protocol):
    """One worker's connection to one output. A write waits while the output is unavailable, and reports that."""

    async def open(self) -> None:
        """Connect, and create what is missing. SinkRefused in one sentence if this output can never work as it is."""

    async def write(self, records: Sequence[Stored], receipt: bytes) -> None:
        """Store a batch durably; of several records with one key, the last one. May be cancelled and called again.

        Raises SinkUnavailable if the output cannot store it now, SinkRefused if it never can.
        """

    async def commit(self, rejected: Collection[RecordKey]) -> None:
        """The last batch that was written is acknowledged, except for these keys."""

    async def hand_over(self) -> None:
        """Leave the last batch without a commit: the merge asks the store later whether it was acknowledged."""

    async def close(self) -> None:
        """Finish open work. A second call does nothing."""


class Location(enum.Enum):
    """Where an output is."""

    FILE = "a file on this machine"
    FOLDER = "a folder on this machine"
    SERVER = "a database server"
    STREAM = "a message broker"
    CALLER = "the Python program that runs the crawl"


class Holds(enum.Enum):
    """Which records an output stores. It ignores the others."""

    TABLES = "pages and items, in separate tables"
    LINES = "the items of a crawl with a spider, the pages of one without"
    CAPTURES = "requests and responses"


class LineFormat(NamedTuple):
    """A file format with one line per record: the bytes before the first line, and the line of a record.

    `between` is written between two records, `tail` after the last.
    `encode` raises UnicodeEncodeError for text that needs `columns.encodable` first.
    """

    head: bytes
    encode: Callable[[Row], bytes]
    between: bytes = b""
    tail: bytes = b""


Address = TypeVar("Address", Path, str)


class Technology(ABC, Generic[Address]):
    """One output technology. Its module exports one instance as TECHNOLOGY; registry.py lists the modules.

    The module must not import the driver when it is imported itself (driver.py): URIs are parsed in processes that
    never open the output. An address is what `parse` returns: the path of a file, or the full URI of a server.
    """

    # The schemes of its URIs. The first one is the technology's name.
    schemes: ClassVar[tuple[str, ...]]
    # The endings of file names that stand for it without a scheme.
    endings: ClassVar[tuple[str, ...]] = ()
    location: ClassVar[Location]
    holds: ClassVar[Holds] = Holds.LINES
    # The package it needs beyond a plain installation, and the extra of Shoal that installs the package.
    driver: ClassVar[str] = ""
    extra: ClassVar[str] = ""
    # Whether it may hold a record twice, and cannot be read by page: a stream.
    repeats: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return self.schemes[0]

    @abstractmethod
    def parse(self, uri: str) -> Address:
        """The address that a URI names; SinkRefused in one sentence if the URI is invalid. Opens nothing."""

    def uri(self, address: Address) -> str:
        """The full URI of an address."""
        return str(address)

    def requirement(self, address: Address) -> tuple[str, str]:
        """The package that this address needs, and the extra that installs it; '' if there is none."""
        return self.driver, self.extra

    def check(self, address: Address) -> None:
        """SinkRefused in one sentence if the output cannot be written. Creates nothing, and contacts no server."""

    def remove(self, address: Address) -> None:
        """Delete the content of the output, so that a crawl starts with an empty one."""
        raise SinkRefused(
            f"The output {masked(self.uri(address))} is not a file: -O overwrites only files and folders."
        )

    @abstractmethod
    def open(self, address: Address, *, worker: str, on_trouble: OnTrouble, spider: bool) -> Sink:
        """One worker's sink. Call its `open` before the first write."""

    def read(self, address: Address, request: ReadRequest) -> AsyncGenerator[list[tuple[Cursor, Row]], None]:
        """The requested rows in batches, each row with its cursor. The output is not changed."""
        raise SinkRefused(
            f"The output {masked(self.uri(address))} cannot be read back; name a database, JSON lines, CSV or Parquet."
        )

    def has_parts(self, address: Address) -> bool:
        """Whether workers left part files that `merge` has to add to the output."""
        return False

    def part_names(self, address: Address) -> set[str]:
        """The names of the parts that are not in the output yet."""
        return set()

    def unmerged(self, address: Address, names: Collection[str]) -> set[str]:
        """Which of these parts are still not in the output. Requests that live workers close theirs."""
        return set()

    async def merge(self, address: Address, *, live: Collection[str], replay: Replay, spider: bool) -> None:
        """Add finished part files to the output. `live` are workers of other machines that may still write."""

    def line_format(self, *, items: bool) -> LineFormat | None:
        """The format of a line of pages or items; None if the output is not a file of lines."""
        return None

    def example_query(self, address: Address, crawl: str, *, items: bool) -> str:
        """A shell command that shows the first rows of a crawl; '' if there is no short one."""
        return ""

    def takes(self, *, spider: bool) -> tuple[type[Stored], ...]:
        """The types of records that it stores for a crawl with or without a spider."""
        if self.holds is Holds.TABLES:
            return (Record, Item)
        if self.holds is Holds.CAPTURES:
            return (Capture,)
        return (Item,) if spider else (Record,)
