"""`shoal stop`."""

from __future__ import annotations

import click

from shoal.cli.options import existing, on_store


@click.command("stop", short_help="Stop a crawl for good.")
@click.argument("crawl", metavar="ID")
@on_store
def command(crawl: str, store: str | None, folder: str | None) -> None:
    """Stop a crawl for good."""
    from shoal.cli import remote

    if client := remote.client_of(store):
        remote.steer(client, crawl, "stop")
        return
    from shoal.cli.steering import steer

    steer(existing(store, folder), crawl, "stop")
