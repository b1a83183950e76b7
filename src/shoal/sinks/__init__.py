"""Outputs: what a user types, and the sink that takes it.

This module owns the table of technologies and the spelling of their URIs. It imports a technology's module only when
an output of that kind is opened.
"""

from __future__ import annotations

import enum
import importlib
import importlib.util
import os
import re
import stat
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import NamedTuple, cast

from shoal.brokers.address import parse_broker_uri
from shoal.errors import SinkRefused
from shoal.model.record import Capture, Item, Record
from shoal.settings import masked
from shoal.sinks.contract import Key, Sink
from shoal.sinks.files.compression import ZSTD_MODULE, packed
from shoal.sinks.files.part import folder_of
from shoal.sinks.sql.server import address_of

__all__ = ["Key", "Sink", "check_output", "gather", "has_parts", "is_local", "is_name", "open_sink", "takes"]

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}\Z")


class Location(enum.Enum):
    """What an output is: a file or a folder of this machine, a table or a stream of a server, or a running program."""

    FILE = "file"
    FOLDER = "folder"
    SERVER = "server"
    STREAM = "stream"
    CALLER = "caller"


class Holds(enum.Enum):
    """What a technology keeps of a crawl."""

    TABLES = "pages and items, in tables of their own"
    LINES = "the items of a spider, or the pages where there is none"
    ANSWERS = "captures"


class Technology(NamedTuple):
    """One technology: its scheme, the endings that mean it without one, its module and its class.

    The class takes the path or address, `worker`, `on_trouble` and `spider`, whether the crawl has one. `holds` says
    which records it keeps; it passes over others. `parts` says that workers write parts which somebody has to gather:
    `gather` of the module takes `live`, `replay` and `spider`. `driver` is the package that the module needs beyond
    what Shoal brings, `extra` the extra of Shoal that installs it, `alias` another spelling of the scheme.
    """

    scheme: str
    endings: tuple[str, ...]
    module: str
    sink: str
    parts: bool
    holds: Holds = Holds.LINES
    place: Location = Location.FILE
    driver: str = ""
    extra: str = ""
    alias: str = ""


KINDS = (
    Technology(
        "sqlite", (".db", ".sqlite", ".sqlite3"), "shoal.sinks.sql.sqlite", "SqliteSink",
        parts=False, holds=Holds.TABLES,
    ),
    Technology("jsonl", packed(".jsonl", ".ndjson"), "shoal.sinks.files.jsonl", "JsonLinesSink", parts=True),
    Technology("csv", packed(".csv"), "shoal.sinks.files.csv", "CsvSink", parts=True),
    Technology(
        "parquet", (".parquet",), "shoal.sinks.files.parquet", "ParquetSink", parts=True,
        place=Location.FOLDER, driver="pyarrow", extra="parquet",
    ),
    Technology(
        "warc", (), "shoal.sinks.files.warc", "WarcSink", parts=True, holds=Holds.ANSWERS, place=Location.FOLDER,
    ),
    Technology(
        "postgresql", (), "shoal.sinks.sql.postgresql", "PostgresqlSink", parts=False, holds=Holds.TABLES,
        place=Location.SERVER, driver="asyncpg", extra="postgresql", alias="postgres",
    ),
    Technology(
        "mysql", (), "shoal.sinks.sql.mysql", "MysqlSink", parts=False, holds=Holds.TABLES,
        place=Location.SERVER, driver="asyncmy", extra="mysql", alias="mariadb",
    ),
    Technology("redis", (), "shoal.sinks.streams.redis", "RedisSink", parts=False, place=Location.STREAM),
    Technology("rediss", (), "shoal.sinks.streams.redis", "RedisSink", parts=False, place=Location.STREAM),
    Technology(
        "kafka", (), "shoal.sinks.streams.kafka", "KafkaSink", parts=False,
        place=Location.STREAM, driver="confluent_kafka", extra="kafka",
    ),
    Technology(
        "amqp", (), "shoal.sinks.streams.amqp", "AmqpSink",
        parts=False, place=Location.STREAM, driver="aio_pika", extra="amqp",
    ),
    Technology(
        "amqps", (), "shoal.sinks.streams.amqp", "AmqpSink",
        parts=False, place=Location.STREAM, driver="aio_pika", extra="amqp",
    ),
    Technology("caller", (), "shoal.sinks.iterator", "IteratorSink", parts=False, place=Location.CALLER),
)  # fmt: skip


def check_output(uri: str) -> str:
    """The URI in its full spelling; SinkRefused in one sentence for what no sink takes. It opens and makes nothing."""
    kind, where = _parsed(uri)
    _check_driver(kind, where)
    if isinstance(where, str):
        return where
    _check_path(kind, where)
    return f"{kind.scheme}:{where}"


def _check_driver(kind: Technology, where: Path | str) -> None:
    """Importing is for whoever opens it; this only looks."""
    driver, extra = kind.driver, kind.extra
    if kind.place is Location.FILE and str(where).lower().endswith(".zst"):
        driver, extra = ZSTD_MODULE, "zstd"
    if driver and not _is_there(driver):
        raise SinkRefused(
            f"The output {masked(str(where))} needs the package {driver}, which is not installed; "
            f"run: pip install 'shoal[{extra}]'."
        )


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False  # of a package that is not there


def _check_path(kind: Technology, path: Path) -> None:
    folder = path.parent
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = 0
    except OSError as error:
        raise SinkRefused(f"The output {path} cannot be reached: {error.strerror}.") from None
    if kind.place is Location.FOLDER:
        if mode and not stat.S_ISDIR(mode):
            raise SinkRefused(f"The output {path} is a file; a folder of this name is needed, name another.")
    elif stat.S_ISDIR(mode):
        raise SinkRefused(f"The output {path} is a folder; name a file in it.")
    elif mode and not stat.S_ISREG(mode):
        raise SinkRefused(f"The output {path} is a device, pipe or socket; name a file.")
    if not folder.is_dir():
        raise SinkRefused(f"The folder {folder} of the output {path.name} does not exist; make it first.")
    # Files are made beside the output: the log of SQLite, the parts of JSON lines.
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SinkRefused(f"The folder {folder} of the output {path.name} cannot be written by this user.")
    if mode and not os.access(path, os.R_OK | os.W_OK):
        raise SinkRefused(f"The output {path} cannot be read and written by this user.")


def is_name(output: str) -> bool:
    """Whether an output is written as its name in the workers' settings."""
    return _NAME.match(output) is not None


def is_local(uri: str) -> bool:
    """Whether this output is a file of this machine, so that workers of other machines cannot write it."""
    return _parsed(uri)[0].place in (Location.FILE, Location.FOLDER)


def has_parts(uri: str) -> bool:
    """Whether something of this output waits to be gathered, as after a crawl that was killed."""
    kind, where = _parsed(uri)
    return kind.parts and folder_of(Path(where)).exists()


def takes(uri: str, *, spider: bool) -> tuple[type, ...]:
    """The types of records that this output keeps of a crawl with or without a spider; it passes over others."""
    holds = _parsed(uri)[0].holds
    if holds is Holds.TABLES:
        return (Record, Item)
    if holds is Holds.ANSWERS:
        return (Capture,)
    return (Item,) if spider else (Record,)


def open_sink(uri: str, *, worker: str, on_trouble: Callable[[str], None] | None = None, spider: bool = False) -> Sink:
    """One worker's sink for this output of a crawl with or without a spider, to be opened by its `open`.

    `on_trouble` is told in one sentence what the output waits for, about once a minute, and '' when it works again.
    """
    kind, where = _parsed(uri)
    _check_driver(kind, where)
    make = getattr(importlib.import_module(kind.module), kind.sink)
    return cast(Sink, make(where, worker=worker, on_trouble=on_trouble or (lambda sentence: None), spider=spider))


async def gather(
    uri: str, *, live: Collection[str], replay: Callable[[bytes], Awaitable[Collection[Key]]], spider: bool = False
) -> None:
    """Make visible what is finished. `live` are the workers that still write; nothing is to be done for databases.

    `replay` shows the receipt of a batch whose worker died to the store, and returns the keys that were refused.
    """
    kind, path = _parsed(uri)
    if kind.parts:
        _check_driver(kind, path)
        await importlib.import_module(kind.module).gather(path, live=live, replay=replay, spider=spider)


def _parsed(uri: str) -> tuple[Technology, Path | str]:
    """The technology, and the absolute path or the address of a server that a URI means."""
    shown = masked(uri)
    shown = repr(shown if len(shown) <= 200 else shown[:200] + "...")
    if not uri.isprintable():
        raise SinkRefused(f"The output {shown} has control characters in its name; choose another name.")
    named = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", uri)
    if named is None:
        scheme, path = "", uri
        kind = next((kind for kind in KINDS if uri.lower().rstrip("/").endswith(kind.endings)), None)
    else:
        scheme, path = named[1].lower(), named[2]
        kind = next((kind for kind in KINDS if scheme in (kind.scheme, kind.alias)), None)
    if kind is None or not path:
        endings = ", ".join(ending for kind in KINDS for ending in kind.endings)
        local = (Location.FILE, Location.FOLDER)
        schemes = " or ".join(f"{kind.scheme}:" for kind in KINDS if kind.place in local)
        servers = " or ".join(f"{kind.scheme}://" for kind in KINDS if kind.place in (Location.SERVER, Location.STREAM))
        raise SinkRefused(
            f"No output takes {shown}; name a file that ends in {endings}, put {schemes} before it, or give an address "
            f"that begins with {servers}."
        )
    if kind.place is Location.CALLER:
        return kind, uri
    if kind.place is Location.SERVER:
        return kind, address_of(uri, kind.scheme).uri
    if kind.place is Location.STREAM:
        return kind, parse_broker_uri(uri).uri
    if re.match(r"//[^/]", path):
        raise SinkRefused(f"The output {shown} names a server where a file is meant; write {kind.scheme}:PATH.")
    try:
        # Links are followed, so that one file has one spelling.
        return kind, Path(re.sub(r"\A/+", "/", path)).resolve()
    except (OSError, RuntimeError):
        raise SinkRefused(f"The output {shown} cannot be reached: its path is a loop of links.") from None
