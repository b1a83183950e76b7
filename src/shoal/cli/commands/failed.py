"""`shoal failed`: which URLs failed and why, and another try for them."""

from __future__ import annotations

import asyncio

import click

from shoal.cli.options import WholeNumber, existing, on_store
from shoal.settings import Settings, masked

_A_PAGE = 1000


@click.command("failed", short_help="List the URLs that failed, or try them again.")
@click.argument("crawl", metavar="ID")
@click.option("--retry", is_flag=True, help="Let them be tried again.")
@click.option("--most", metavar="N", type=WholeNumber(1), help="List at most N.  [default: all]")
@on_store
def command(crawl: str, retry: bool, most: int | None, store: str | None, folder: str | None) -> None:
    """List the URLs of a crawl that failed: reason and URL with a tab between them."""
    from shoal.cli import remote

    if client := remote.client_of(store):
        remote.failed(client, crawl, retry, most)
        return
    given = {"store.url": masked(store or ""), "store.folder": folder or ""}
    flags = {key: value for key, value in given.items() if value}
    asyncio.run(_failed(existing(store, folder), crawl, retry, most, flags))


async def _failed(settings: Settings, name: str, retry: bool, most: int | None, flags: dict[str, str]) -> None:
    from shoal.cli.spider_choice import spider_flag
    from shoal.cli.ui.console import counted, say, visible, warn
    from shoal.cli.ui.summary import command as again
    from shoal.frontier import Frontier

    async with await Frontier.from_settings(settings, on_warning=warn) as frontier:
        if retry:
            count = await frontier.crawls.retry(name)
            spider = spider_flag((await frontier.crawls.get(name)).limits.spider, settings)
            waits = f"{counted(count, 'URL')} {'waits' if count == 1 else 'wait'} again"
            say(f"{waits}; go on with: {again(name, 'crawl', flags, spider)}")
            return
        place = None
        while most is None or most > 0:
            found, place = await frontier.crawls.failed_page(name, min(most or _A_PAGE, _A_PAGE), place)
            for visit, reason in found:
                click.echo(f"{visible(reason)}\t{visible(visit.url)}")
            most = None if most is None else most - len(found)
            if place is None:
                break
