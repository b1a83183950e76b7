"""`shoal crawls`: every crawl of a store, one per line."""

from __future__ import annotations

import click

from shoal.cli.options import on_store


@click.command("crawls", short_help="List the crawls of a store.")
@on_store
def command(store: str | None, folder: str | None) -> None:
    """List the crawls of a store: state, stored pages, remaining URLs, start time, name."""
    from shoal.cli.control import open_control
    from shoal.cli.ui.console import format_timestamp, report, visible

    with open_control(store, folder) as control:
        rows = control.crawls()
    if not rows:
        report("The store has no crawls.")
    for row in rows:
        line = f"{row.state:<9} {row.stored:>9,} stored {row.remaining:>9,} remaining  "
        click.echo(visible(f"{line}{format_timestamp(row.created_at)}  {row.id}"))
