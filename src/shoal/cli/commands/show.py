"""`shoal show`: one crawl, for people or as JSON."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from shoal.cli.options import existing, on_store
from shoal.settings import Settings

if TYPE_CHECKING:
    from shoal.operations import Description


@click.command("show", short_help="Say how far a crawl is.")
@click.argument("crawl", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@on_store
def command(crawl: str, as_json: bool, store: str | None, folder: str | None) -> None:
    """Say how far a crawl is, what failed and what was left out, and why."""
    from shoal.cli import remote

    if client := remote.client_of(store):
        remote.show(client, crawl, as_json)
        return
    asyncio.run(_show(existing(store, folder), crawl, as_json))


async def _show(settings: Settings, name: str, as_json: bool) -> None:
    from shoal.cli.ui.console import warn
    from shoal.frontier import Frontier
    from shoal.operations import describe

    async with await Frontier.from_settings(settings, on_warning=warn) as frontier:
        tell(await describe(frontier, await frontier.crawls.get(name)), as_json)


def tell(told: Description, as_json: bool) -> None:
    import msgspec

    from shoal.cli.ui.console import counted, moment, size, visible

    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(told)).decode())
        return
    counts = told.counts
    rows = [
        ("crawl", told.id), ("state", f"{told.state} ({told.why})" if told.why not in ("", told.state) else told.state),
        *(("state", text) for text in told.waiting),
        ("began", moment(told.created_at)), ("ended", moment(told.ended_at)),
        ("stored", counted(counts.stored, "page")), ("received", size(told.bytes)),
        ("to go", f"{counts.waiting:,} waiting, {counts.leased:,} open, {counts.later:,} later"),
        *((f"failed {number:,}", reason) for reason, number in told.failed.items()),
        *((f"excluded {number:,}", reason) for reason, number in told.excluded.items()),
        *(("output", output) for output in told.policy["outputs"]),
    ]  # fmt: skip
    width = max(len(word) for word, _ in rows)
    for word, text in rows:
        click.echo(f"{word:<{width}}  {visible(text)}")
