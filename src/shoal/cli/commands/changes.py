"""`shoal changes`: the changes that a perpetual crawl has written to its output of changes."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import click

from shoal.cli.options import on_store, parse_duration

if TYPE_CHECKING:
    from shoal.model.record import Item


@click.command("changes", short_help="List the changes that a crawl has found.")
@click.argument("crawl", metavar="ID")
@click.option("--since", metavar="TIME", type=parse_duration, help="Only changes within this time, e.g. 2d or 12h.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@on_store
def command(crawl: str, since: float | None, as_json: bool, store: str | None, folder: str | None) -> None:
    """List pages that are new, changed, gone or back, oldest first: time, change and URL.

    The changes are read from the output that --changes named when the crawl was started.
    """
    from shoal.cli.ui.console import printable_json, visible
    from shoal.sinks.columns import moment

    for change in asyncio.run(_changes(crawl, time.time() - since if since else 0.0, store, folder)):
        if as_json:
            row = {"url": change.url, "at": moment(change), "visit": change.number, **change.data}
            click.echo(printable_json(row, one_line=True))
        else:
            click.echo(f"{moment(change)}\t{visible(str(change.data.get('change', '')))}\t{visible(change.url)}")


async def _changes(crawl_id: str, since: float, store: str | None, folder: str | None) -> list[Item]:
    from shoal.cli.options import existing
    from shoal.frontier import Frontier
    from shoal.operations.changes import read_changes

    settings = existing(store, folder)
    async with await Frontier.from_settings(settings) as frontier:
        return await read_changes(frontier, crawl_id, since=since, named=settings.outputs)
