"""`--log`: what is said, as one JSON object a line for programs, or as plain lines also on a terminal.

    {"time": "2026-03-01T12:00:00.123Z", "level": "info", "event": "crawl.begin", "crawl": "docs", "message": "..."}

`event` is one fixed name per operation (docs/reference/commands.md lists the flags; the names are in EVENTS). Fields
that are not known are absent. Everything outside of ASCII and every control character is escaped.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from shoal.cli.terminal import hidden, speak_through, speaks_plainly, write

Command = TypeVar("Command", bound=Callable[..., Any])
EVENTS = {
    "crawl.begin": "a crawl begins or goes on",
    "crawl.progress": "how far it is, every 5 s",
    "crawl.paused": "somebody paused it, or it is about to be",
    "crawl.waiting": "it cannot go on yet, and why",
    "crawl.end": "it ended or was paused, with its counts",
    "workers.begin": "`shoal worker` has joined a store",
    "workers.progress": "what its workers did, every 5 s",
    "workers.end": "they have ended",
    "worker.died": "a process has ended and another one starts",
    "worker.gone": "a process has ended for good",
    "worker.said": "a line that a process wrote",
    "worker.trouble": "a worker waits for its store or its output",
    "store.trouble": "what is wrong with the store",
    "output.trouble": "what is wrong with an output",
    "listen.begin": "`shoal listen` has joined its source",
    "listen.crawl": "a request has become a crawl",
    "listen.dead": "a request was refused, and why",
    "listen.trouble": "its source or the store is away, and is waited for",
    "listen.well": "the source is heard again",
    "listen.end": "it has ended",
    "note": "anything else",
    "warning": "anything else that somebody should look at; also why a command failed",
}
_chosen = ""


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
    return click.option(
        "--log", type=click.Choice(["text", "json"]), envvar="SHOAL_LOG", is_eager=True, expose_value=False,
        callback=_choose, help="Plain lines, or JSON lines, on stderr.  [default: a live display on a terminal]",
    )(command)  # fmt: skip


def _choose(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    global _chosen
    _chosen = value or ""
    speak_through(speak_json if value == "json" else None)


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
