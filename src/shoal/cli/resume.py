"""`shoal resume`."""

from __future__ import annotations

import click

from shoal.cli.options import existing, on_store


@click.command("resume", short_help="Let the workers of a store go on with a paused crawl.")
@click.argument("crawl", metavar="ID")
@on_store
def command(crawl: str, store: str | None, folder: str | None) -> None:
    """Let the workers of a store go on with a paused crawl."""
    from shoal.cli import remote

    if client := remote.client_of(store):
        remote.steer(client, crawl, "resume")
        return
    from shoal.cli.steering import steer

    steer(existing(store, folder), crawl, "resume")
