"""`shoal pause`."""

from __future__ import annotations

import click

from shoal.cli.options import existing, on_store


@click.command("pause", short_help="Pause a crawl; nothing of it is lost.")
@click.argument("crawl", metavar="ID")
@on_store
def command(crawl: str, store: str | None, folder: str | None) -> None:
    """Pause a crawl; nothing of it is lost."""
    from shoal.cli import remote

    if client := remote.client_of(store):
        remote.steer(client, crawl, "pause")
        return
    from shoal.cli.steering import steer

    steer(existing(store, folder), crawl, "pause")
