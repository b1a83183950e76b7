"""`shoal pause`, `resume`, `stop` and `delete`: change the state of one crawl, on a store or on an API."""

from __future__ import annotations

import click

from shoal.cli.options import on_store


def _command(verb: str, short: str, text: str = "") -> click.Command:
    @click.command(verb, short_help=short, help=text or short)
    @click.argument("crawl", metavar="ID")
    @on_store
    def command(crawl: str, store: str | None, folder: str | None) -> None:
        from shoal.cli.control import open_control
        from shoal.cli.ui.console import report

        with open_control(store, folder) as control:
            state, hint = control.change(crawl, verb)
        report(f"Crawl {crawl} is {state}.")
        if hint:
            report(hint)

    return command


pause = _command("pause", "Pause a crawl.")
resume = _command("resume", "Resume a paused crawl.")
stop = _command("stop", "Stop a crawl permanently.")
delete = _command(
    "delete", "Delete an ended crawl from the store.",
    "Delete an ended crawl from the store. Its pages stay in their outputs. `shoal crawl --name ID` can use its ID "
    "again; for `shoal submit` and the API it stays taken, so that a repeated request does not start the crawl again.",
)  # fmt: skip
