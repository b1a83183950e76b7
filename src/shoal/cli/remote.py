"""Commands on an API in place of a store: `--store http://...`, with the token of SHOAL_TOKEN."""

from __future__ import annotations

import itertools
import time

import click

from shoal.cli.ui.console import counted, say, visible
from shoal.client import Client, is_api
from shoal.settings import load


def client_of(store: str | None) -> Client | None:
    """A client, when the URL that was given, by flag or setting, is that of an API."""
    url = store or load().settings.store.url
    return Client(url) if is_api(url) else None


def crawls(client: Client) -> None:
    for crawl in reversed(list(client.crawls())):
        counts = crawl["counts"]
        left = counts["waiting"] + counts["leased"] + counts["later"]
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(crawl["created_at"]))
        line = f"{crawl['state']:<9} {counts['stored']:>9,} stored {left:>9,} to go  {began}  {crawl['id']}"
        click.echo(visible(line))


def show(client: Client, name: str, as_json: bool) -> None:
    import msgspec

    from shoal.cli.commands.show import tell
    from shoal.operations import Description

    tell(msgspec.convert(client.crawl(name), Description), as_json)


def steer(client: Client, name: str, verb: str) -> None:
    # Of one that is deleted nothing is told.
    done = getattr(client, verb)(name) or {"state": "deleted"}
    say(f"Crawl {name} is {done['state']}.")


def failed(client: Client, name: str, retry: bool, most: int | None) -> None:
    if retry:
        count = client.retry(name)
        say(f"{counted(count, 'URL')} {'waits' if count == 1 else 'wait'} again.")
        return
    for one in itertools.islice(client.failed(name), most):
        click.echo(f"{visible(one['reason'])}\t{visible(one['url'])}")
