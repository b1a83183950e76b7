"""`--log`: what is said, as one JSON object a line for programs, or as plain lines also on a terminal.

    {"time": "2026-03-01T12:00:00.123Z", "level": "info", "event": "crawl.begin", "crawl": "docs", "message": "..."}

`event` is one fixed name per operation (docs/reference/commands.md lists the flags; the names are in EVENTS). Fields
that are not known are absent. Everything outside of ASCII and every control character is escaped. Services write JSON
where stderr is no terminal: nobody reads along there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from shoal.cli.ui.console import hidden, say, speak_through, speaks_plainly, warn, write

Command = TypeVar("Command", bound=Callable[..., Any])
EVENTS = {
    "crawl.begin": "a crawl begins or goes on",
    "crawl.progress": "how far it is, every 5 s",
    "crawl.waiting": "it cannot go on yet, and why",
    "crawl.end": "it ended or was paused, with its counts",
    "crawl.submitted": "somebody asked for it; `created` is false where it was there already",
    "crawl.seeded": "URLs were added to it",
    "crawl.paused": "somebody paused it, or it is about to be",
    "crawl.resumed": "somebody let it go on",
    "crawl.stopped": "somebody stopped it for good",
    "crawl.expired": "somebody ended it as if its time had come",
    "crawl.retried": "its failed URLs are tried again",
    "crawl.deleted": "what it held was freed, by somebody or after `frontier.keep_days`",
    "crawl.trouble": "it cannot be tended, and why",
    "host.changed": "somebody set its delay or places, blocked or unblocked it",
    "notify.told": "whom a crawl names was told of its end",
    "notify.failed": "that failed, and is tried again unless it is given up",
    "request.refused": "a request to the API or a bridge was not granted, and why",
    "request.failed": "one to the API failed, by a defect or because the store or an output is away",
    "workers.begin": "`shoal worker` has joined a store",
    "workers.progress": "what its workers did, every 5 s",
    "workers.end": "they have ended",
    "worker.died": "a process has ended and another one starts",
    "worker.gone": "a process has ended for good",
    "worker.said": "a line that a process wrote",
    "worker.trouble": "a worker waits for its store or its output",
    "store.trouble": "what is wrong with the store",
    "output.trouble": "what is wrong with an output",
    "output.away": "a crawl waits for its output",
    "output.back": "its output is there again, and it goes on",
    "output.refused": "it is paused because its output cannot be used",
    "serve.begin": "`shoal serve` answers",
    "serve.open": "it has no tokens: whoever reaches it may do everything",
    "serve.end": "it has ended",
    "listen.begin": "`shoal listen` has joined its source",
    "listen.trouble": "its source or the store is away, and is waited for",
    "listen.recovered": "the source is connected again",
    "listen.end": "it has ended",
    "note": "anything else",
    "warning": "anything else that somebody should look at; also why a command failed",
}
# Those that somebody should look at.
WARNINGS = {
    "crawl.trouble", "listen.trouble", "notify.failed", "output.away", "output.refused", "output.trouble",
    "request.failed", "request.refused", "serve.open", "store.trouble",
}  # fmt: skip
_chosen = ""


def tell(text: str, /, *, event: str, **facts: object) -> None:
    """What parts that know no terminal tell (shoal.operations.events)."""
    if (trace := facts.get("trace")) and not in_json():
        text = f"{text}\n{trace}"
    (warn if event in WARNINGS else say)(text, event=event, **facts)


def speak_json(text: str, level: str, event: str, fields: Mapping[str, object]) -> None:
    """A voice (terminal.py) for programs."""
    message = " ".join(text.split())
    if not message and not fields:
        return
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    known = {
        name: hidden(value) if isinstance(value, str) else value
        for name, value in fields.items()
        if value not in (None, "")
    }
    line = json.dumps({"time": now, "level": level, "event": event, **known, "message": message}, default=str)
    # The one control character that JSON does not have escaped.
    write(line.replace("\x7f", "\\u007f") + "\n")


def on_log(command: Command) -> Command:
    """--log, which holds for all that is said from its reading on."""
    return _option("a live display on a terminal, else text", "")(command)


def on_service_log(command: Command) -> Command:
    """--log of a command that runs for ever: where nobody looks, a program reads."""
    return _option("text on a terminal, else json", "json")(command)


def _option(default: str, unseen: str) -> Callable[[Command], Command]:
    def choose(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        global _chosen
        _chosen = value or ("" if sys.stderr is not None and sys.stderr.isatty() else unseen)
        speak_through(speak_json if in_json() else None)
        if in_json():
            _hear_libraries()

    return click.option(
        "--log", type=click.Choice(["text", "json"]), envvar="SHOAL_LOG", is_eager=True, expose_value=False,
        callback=choose, help=f"Plain lines, or JSON lines, on stderr.  [default: {default}]",
    )  # fmt: skip


def _hear_libraries() -> None:
    """What libraries log would be lines that are no JSON."""
    import logging

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
            warn(record.getMessage(), logger=record.name, trace=trace)

    logging.basicConfig(handlers=[Ear(logging.WARNING)])
    logging.captureWarnings(True)


def may_draw() -> bool:
    """Whether somebody looks at stderr who wants to see it change."""
    return (
        not _chosen
        and speaks_plainly()
        and os.environ.get("CI", "").lower() in ("", "0", "false")
        and os.environ.get("TERM", "") not in ("", "dumb")
        and sys.stderr is not None
        and sys.stderr.isatty()
    )


def in_json() -> bool:
    return _chosen == "json"
