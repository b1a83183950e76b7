"""`shoal explain`: whether a crawl visits a URL, and which rule decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shoal.cli.options import on_store

if TYPE_CHECKING:
    from shoal.operations.explain import Explanation

_MARKS = {True: "yes", False: "NO", None: "?"}


@click.command("explain", short_help="Explain why a crawl visits or skips a URL.")
@click.argument("crawl", metavar="ID")
@click.argument("url", metavar="URL")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@on_store
def command(crawl: str, url: str, as_json: bool, store: str | None, folder: str | None) -> None:
    """Explain whether a crawl visits a URL, and if not, which flag, limit or line of robots.txt excludes it.

    No request is sent. Each rule is listed with yes (it allows the visit), NO (it does not) or ? (undecided).
    """
    from shoal.cli.control import open_control

    with open_control(store, folder) as control:
        explanation = control.explain(crawl, url)
    render(explanation, as_json)


def render(explanation: Explanation, as_json: bool) -> None:
    from shoal.cli.ui.console import format_timestamp, printable_json, visible

    if as_json:
        click.echo(printable_json(explanation.to_dict()))
        return
    rows = [("verdict", f"{explanation.verdict.value}: {explanation.text}")]
    if explanation.canonical:
        rows.append(("url", explanation.canonical))
    rows.append(("state", explanation.state.value + (f" ({explanation.reason})" if explanation.reason else "")))
    if explanation.depth is not None:
        rows.append(("depth", str(explanation.depth)))
    if explanation.worker:
        rows.append(("worker", explanation.worker))
    if explanation.until:
        rows.append(("until", format_timestamp(explanation.until)))
    for check in explanation.checks:
        rule = f" ({check.rule})" if check.rule else ""
        rows.append((check.name, f"{_MARKS[check.passed]:<4} {check.text}{rule}"))
    width = max(len(word) for word, _ in rows)
    for word, text in rows:
        click.echo(f"{word:<{width}}  {visible(text)}")
