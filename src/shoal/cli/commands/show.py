"""`shoal show`: one crawl, as text or as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shoal.cli.options import on_store

if TYPE_CHECKING:
    from shoal.frontier.inspect import PendingHost
    from shoal.operations import Description


@click.command("show", short_help="Show crawl status.")
@click.argument("crawl", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@on_store
def command(crawl: str, as_json: bool, store: str | None, folder: str | None) -> None:
    """Show a crawl's state and counts, and why URLs failed or were excluded."""
    from shoal.cli.control import open_control

    with open_control(store, folder) as control:
        description = control.describe(crawl)
    render(description, as_json)


def _pending(host: PendingHost) -> str:
    from shoal.cli.ui.console import format_timestamp, pluralize

    retries = f", {pluralize(host.retries, 'URL')} to retry" if host.retries else ""
    reason = f" after {host.reason}" if host.reason else ""
    return f"{host.host} until {format_timestamp(host.until)}{reason}{retries}"


def render(description: Description, as_json: bool) -> None:
    from shoal.cli.ui.console import format_timestamp, pluralize, printable_json, size, visible

    if as_json:
        click.echo(printable_json(description))
        return
    counts, state = description.counts, description.state
    if description.why not in ("", state):
        state = f"{state} ({description.why})"
    rows = [
        ("crawl", description.id), ("state", state),
        *(("state", text) for text in description.waiting),
        ("started", format_timestamp(description.created_at)), ("ended", format_timestamp(description.ended_at)),
        ("stored", pluralize(counts.stored, "page")),
        *([("items", f"{description.items:,}")] if description.items else []), ("received", size(description.bytes)),
        ("remaining", f"{counts.waiting:,} waiting, {counts.leased:,} in progress, {counts.later:,} to retry later"),
        *(("waiting for", _pending(host)) for host in description.pending),
        *((f"failed {number:,}", reason) for reason, number in description.failed.items()),
        *((f"excluded {number:,}", reason) for reason, number in description.excluded.items()),
        *(("output", output) for output in description.policy["outputs"]),
    ]  # fmt: skip
    width = max(len(word) for word, _ in rows)
    for word, text in rows:
        click.echo(f"{word:<{width}}  {visible(text)}")
