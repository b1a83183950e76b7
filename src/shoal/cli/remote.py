"""Commands on an API in place of a store: `--store http://...`, with the token of SHOAL_TOKEN."""

from __future__ import annotations

import os
import time
from typing import Any

import click

from shoal.cli.terminal import counted, say, visible
from shoal.client import Client, is_api


def client_of(store: str | None) -> Client | None:
    """A client, when the URL that was given, by flag or variable, is that of an API."""
    url = store or os.environ.get("SHOAL_STORE_URL", "").strip() or os.environ.get("SHOAL_STORE", "").strip()
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

    from shoal.cli.show import tell
    from shoal.control import Description

    tell(msgspec.convert(client.crawl(name), Description), as_json)


def steer(client: Client, name: str, verb: str) -> None:
    say(f"Crawl {name} is {getattr(client, verb)(name)['state']}.")


def failed(client: Client, name: str, retry: bool, most: int) -> None:
    if retry:
        count = client.retry(name)
        say(f"{counted(count, 'URL')} {'waits' if count == 1 else 'wait'} again.")
        return
    for one in client.failed(name, min(most, 10_000)):
        click.echo(f"{visible(one['reason'])}\t{visible(one['url'])}")


def host(client: Client, name: str, delay: float | None, block: bool, unblock: bool) -> None:
    from shoal.cli.hosts import tell

    changes: dict[str, Any] = {} if delay is None else {"delay_seconds": delay}
    if block or unblock:
        changes["blocked"] = "blocked" if block else ""
    told = client.change_host(name, **changes) if changes else client.host(name)
    tell(told)
