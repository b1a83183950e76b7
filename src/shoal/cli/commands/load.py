"""`shoal load`: load a dump into a store that has no crawls."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import click

from shoal.cli.options import WholeNumber, on_store, settings_of, store_flags
from shoal.errors import InvalidInput, StoreRefused
from shoal.settings import Settings

# The last line of a dump, {"end": lines}, is shorter.
_TAIL_BYTES = 64


@click.command("load", short_help="Load a dump into an empty store.")
@click.argument("file", metavar="[FILE|-]", default="-")
@click.option("--shards", metavar="N", type=WholeNumber(1, 1024), help="Shards of the new store.  [default: 16]")
@on_store
def command(file: str, shards: int | None, store: str | None, folder: str | None) -> None:
    """Load a dump from FILE or standard input into a store that has no crawls.

    Start workers only after it is done.
    """
    settings = settings_of(store_flags(store, folder) | {"store.shards": shards})
    if file == "-":
        _load(settings, sys.stdin.buffer, shards)
        return
    try:
        raw = Path(file).open("rb")  # noqa: SIM115 - closed below, where an OSError may have another cause
    except OSError as error:
        raise InvalidInput(f"Cannot read the dump {file}: {error.strerror}.") from error
    with raw:
        _check_end(raw, file)
        _load(settings, raw, shards)


def _check_end(raw: IO[bytes], name: str) -> None:
    """Refuse a truncated dump before anything is loaded. The end of a pipe is not known yet."""
    if not raw.seekable():
        return
    raw.seek(max(0, raw.seek(0, os.SEEK_END) - _TAIL_BYTES))
    last = raw.read().rstrip(b"\n").rpartition(b"\n")[2]
    raw.seek(0)
    if not last.startswith(b'{"end":'):
        raise InvalidInput(f"The dump {name} is truncated; nothing was loaded.")


def _load(settings: Settings, raw: IO[bytes], shards: int | None) -> None:
    # A line that is not UTF-8 is then reported as invalid.
    asyncio.run(_load_lines(settings, _checked(io.TextIOWrapper(raw, "utf-8", "replace")), shards))


def _checked(lines: IO[str]) -> Iterator[str]:
    """Return the lines. If the first line is not that of a dump, raise InvalidInput before a store is created."""
    first = lines.readline()
    try:
        is_dump = "frontier" in json.loads(first)
    except (ValueError, TypeError):
        is_dump = False
    if not is_dump:
        raise InvalidInput("The first line is not the first line of a dump; pass a file that `shoal dump` wrote.")

    def chained() -> Iterator[str]:
        yield first
        yield from lines

    return chained()


async def _load_lines(settings: Settings, lines: Iterator[str], shards: int | None) -> None:
    from shoal.cli.ui.console import report, warn
    from shoal.frontier import Frontier, load

    async with await Frontier.from_settings(settings, on_warning=warn) as frontier:
        if shards is not None and frontier.shards.count != shards:
            raise StoreRefused(
                f"Namespace {settings.store.namespace!r} has {frontier.shards.count} shards already, not {shards}: "
                "load into another store or namespace, or leave --shards out."
            )
        waiting = await load(frontier.shards, lines)
    report(f"Loaded; {waiting:,} URL{' is' if waiting == 1 else 's are'} waiting.")
