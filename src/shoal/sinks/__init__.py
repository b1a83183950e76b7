"""Outputs: what a user types, and the sink that takes it.

This module owns the table of technologies and the spelling of their URIs. It imports a technology's module only when
an output of that kind is opened.
"""

from __future__ import annotations

import importlib
import os
import re
import stat
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import NamedTuple, cast

from shoal.errors import SinkRefused
from shoal.settings import masked
from shoal.sinks.contract import Key, Sink

__all__ = ["Key", "Sink", "check_output", "gather", "is_local", "open_sink"]


class Kind(NamedTuple):
    """One technology: its scheme, the endings that mean it without one, its module and its class.

    `parts` says that workers write parts which somebody has to gather.
    """

    scheme: str
    endings: tuple[str, ...]
    module: str
    sink: str
    parts: bool


KINDS = (
    Kind("sqlite", (".db", ".sqlite", ".sqlite3"), "shoal.sinks.sqlite", "SqliteSink", parts=False),
    Kind("jsonl", (".jsonl", ".ndjson"), "shoal.sinks.jsonl", "JsonLinesSink", parts=True),
)


def check_output(uri: str) -> str:
    """The URI in its full spelling; SinkRefused in one sentence for what no sink takes. It opens and makes nothing."""
    kind, path = _parsed(uri)
    folder = path.parent
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = 0
    except OSError as error:
        raise SinkRefused(f"The output {path} cannot be reached: {error.strerror}.") from None
    if stat.S_ISDIR(mode):
        raise SinkRefused(f"The output {path} is a folder; name a file in it.")
    if mode and not stat.S_ISREG(mode):
        raise SinkRefused(f"The output {path} is a device, pipe or socket; name a file.")
    if not folder.is_dir():
        raise SinkRefused(f"The folder {folder} of the output {path.name} does not exist; make it first.")
    # Files are made beside the output: the log of SQLite, the parts of JSON lines.
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SinkRefused(f"The folder {folder} of the output {path.name} cannot be written by this user.")
    if mode and not os.access(path, os.R_OK | os.W_OK):
        raise SinkRefused(f"The output {path} cannot be read and written by this user.")
    return f"{kind.scheme}:{path}"


def is_local(uri: str) -> bool:
    """Whether this output is a file of this machine, so that workers of other machines cannot write it."""
    _parsed(uri)
    return True  # every technology of the table so far


def open_sink(uri: str, *, worker: str, on_trouble: Callable[[str], None] | None = None) -> Sink:
    """One worker's sink for this output, to be opened by its `open`.

    `on_trouble` is told in one sentence what the output waits for, about once a minute, and '' when it works again.
    """
    kind, path = _parsed(uri)
    make = getattr(importlib.import_module(kind.module), kind.sink)
    return cast(Sink, make(path, worker=worker, on_trouble=on_trouble or (lambda sentence: None)))


async def gather(uri: str, *, live: Collection[str], replay: Callable[[bytes], Awaitable[Collection[Key]]]) -> None:
    """Make visible what is finished. `live` are the workers that still write; nothing is to be done for databases.

    `replay` shows the receipt of a batch whose worker died to the store, and returns the keys that were refused.
    """
    kind, path = _parsed(uri)
    if kind.parts:
        await importlib.import_module(kind.module).gather(path, live=live, replay=replay)


def _parsed(uri: str) -> tuple[Kind, Path]:
    """The technology and the absolute path that a URI means."""
    shown = repr(masked(uri if len(uri) <= 200 else uri[:200] + "..."))
    if not uri.isprintable():
        raise SinkRefused(f"The output {shown} has control characters in its name; choose another name.")
    named = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", uri)
    if named is None:
        scheme, path = "", uri
        kind = next((kind for kind in KINDS if uri.lower().endswith(kind.endings)), None)
    else:
        scheme, path = named[1].lower(), named[2]
        kind = next((kind for kind in KINDS if kind.scheme == scheme), None)
    if kind is None or not path:
        endings = ", ".join(ending for kind in KINDS for ending in kind.endings)
        schemes = " or ".join(f"{kind.scheme}:" for kind in KINDS)
        raise SinkRefused(f"No output takes {shown}; name a file that ends in {endings}, or put {schemes} before it.")
    if re.match(r"//[^/]", path):
        raise SinkRefused(f"The output {shown} names a server where a file is meant; write {kind.scheme}:PATH.")
    try:
        # Links are followed, so that one file has one spelling.
        return kind, Path(re.sub(r"\A/+", "/", path)).resolve()
    except (OSError, RuntimeError):
        raise SinkRefused(f"The output {shown} cannot be reached: its path is a loop of links.") from None
