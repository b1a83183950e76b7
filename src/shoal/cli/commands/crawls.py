"""`shoal crawls`: every crawl of a store, one a line."""

from __future__ import annotations

import asyncio
import time

import click

from shoal.cli.options import existing, on_store
from shoal.model.crawl import CrawlKind
from shoal.settings import Settings


@click.command("crawls", short_help="List the crawls of a store.")
@on_store
def command(store: str | None, folder: str | None) -> None:
    """List the crawls of a store: state, pages stored, URLs to go, when it began, name."""
    from shoal.cli import remote

    if client := remote.client_of(store):
        remote.crawls(client)
        return
    asyncio.run(_list(existing(store, folder)))


async def _list(settings: Settings) -> None:
    from shoal.cli.ui.console import warn
    from shoal.frontier import Frontier

    async with await Frontier.from_settings(settings, on_warning=warn) as frontier:
        # A branch is counted with its crawl.
        crawls = [crawl async for crawl in frontier.crawls.all() if crawl.kind is not CrawlKind.BRANCH]
        found = [(crawl, await frontier.crawls.count(crawl.id)) for crawl in crawls]
    for crawl, counts in sorted(found, key=lambda one: one[0].created_at):
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(crawl.created_at))
        click.echo(f"{crawl.state.value:<9} {counts.stored:>9,} stored {counts.open:>9,} to go  {began}  {crawl.id}")
