"""`shoal delete`."""

from __future__ import annotations

import click

from shoal.cli.options import existing, on_store


@click.command("delete", short_help="Free what an ended crawl holds in the store.")
@click.argument("crawl", metavar="ID")
@on_store
def command(crawl: str, store: str | None, folder: str | None) -> None:
    """Free all that an ended crawl holds in the store. Its id stays taken, and its pages stay in their outputs."""
    from shoal.cli import remote

    if client := remote.client_of(store):
        remote.steer(client, crawl, "delete")
        return
    from shoal.cli.steering import steer

    steer(existing(store, folder), crawl, "delete")
