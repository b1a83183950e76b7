"""`shoal dump`: all crawls of a store as JSON lines, for a backup or a move."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncGenerator
from typing import Any, cast

import click

from shoal.cli.options import existing, on_store
from shoal.settings import Settings


@click.command("dump", short_help="Write all crawls of a store to a file.")
@click.argument("file", metavar="[FILE|-]", default="-")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@on_store
def command(file: str, force: bool, store: str | None, folder: str | None) -> None:
    """Write all crawls of a store, with all of their URLs, to FILE or to standard output.

    Workers wait until it is done. The file contains the cookies and passwords of the crawls: only you can read it.
    """
    settings = existing(store, folder)
    try:
        asyncio.run(_dump(settings, file, force))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _dump(settings: Settings, name: str, force: bool) -> None:
    from shoal.cli.ui.console import report, warn
    from shoal.frontier import Frontier, dump
    from shoal.operations.atomic_file import whole_file

    # SIGTERM cancels the dump as Ctrl-C does, so that workers do not wait until the hold of a dead dump expires.
    dumping = cast("asyncio.Task[None]", asyncio.current_task())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, dumping.cancel)
    crawls = lines = 0
    stdout = contextlib.nullcontext(sys.stdout.buffer)
    output: Any = stdout if name == "-" else whole_file(name, force=force, private=True)
    with output as file:
        async with (
            await Frontier.from_settings(settings, on_warning=warn) as frontier,
            # Closed here in any case: until then the store accepts no writes.
            contextlib.aclosing(cast("AsyncGenerator[str, None]", dump(frontier.shards))) as dumped,
        ):
            async for line in dumped:
                file.write(line.encode() + b"\n")
                lines += 1
                crawls += line.startswith('{"crawl":')
        file.flush()
    report(f"Dumped {crawls:,} crawl{'' if crawls == 1 else 's'} in {lines:,} lines.")
