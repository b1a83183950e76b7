"""`shoal show`: one crawl, as text or as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shoal.cli.options import on_store

if TYPE_CHECKING:
    from shoal.frontier.inspect import PendingHost
    from shoal.operations import Description


@click.command("show", short_help="Show the state and counts of a crawl.")
@click.argument("crawl", metavar="ID")
@click.option("--samples", is_flag=True, help="Also list up to 20 excluded or not followed URLs for each reason.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@on_store
def command(crawl: str, samples: bool, as_json: bool, store: str | None, folder: str | None) -> None:
    """Show a crawl's state and counts, and why URLs failed or were excluded."""
    from shoal.cli.control import open_control

    with open_control(store, folder) as control:
        description = control.describe(crawl)
    render(description, as_json, samples=samples)


def _pending(host: PendingHost) -> str:
    from shoal.cli.ui.console import format_timestamp, pluralize

    retries = f", {pluralize(host.retries, 'URL')} to retry" if host.retries else ""
    reason = f" after {host.reason}" if host.reason else ""
    return f"{host.host} until {format_timestamp(host.until)}{reason}{retries}"


def _schedule(description: Description) -> list[tuple[str, str]]:
    """Return the rows of a perpetual crawl: the time of its next visit, and the age of its copy."""
    from shoal.cli.ui.console import approx_duration, format_timestamp, pluralize

    if not description.limits.every:
        return []
    text = f"every {description.limits.every}, {pluralize(description.scheduled, 'page')}"
    if description.next_visit_at:
        text += f", the next at {format_timestamp(description.next_visit_at)}"
    rows = [("revisits", text)]
    if description.visited_ago_seconds:
        rows.append(("copy", f"pages were visited {approx_duration(description.visited_ago_seconds)} ago on average"))
    return rows


def _example(description: Description, reason: str) -> str:
    """A reason with the first URL that it excluded."""
    urls = description.samples.get(reason, ())
    return f"{reason}, e.g. {urls[0]}" if urls else reason


def render(description: Description, as_json: bool, *, samples: bool = False) -> None:
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
        *_schedule(description),
        *(("waiting for", _pending(host)) for host in description.pending),
        *((f"failed {number:,}", reason) for reason, number in description.failed.items()),
        *((f"excluded {number:,}", _example(description, reason)) for reason, number in description.excluded.items()),
        *(("not followed", _example(description, reason)) for reason in description.samples
          if reason not in description.excluded),
        *((reason, url) for reason, urls in description.samples.items() for url in urls if samples),
        *(("output", output) for output in description.policy["outputs"]),
    ]  # fmt: skip
    width = max(len(word) for word, _ in rows)
    for word, text in rows:
        click.echo(f"{word:<{width}}  {visible(text)}")
