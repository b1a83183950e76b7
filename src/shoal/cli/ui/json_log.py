"""`--log`: what is said, as one JSON object a line for programs, or as plain lines also on a terminal.

    {"time": "2026-03-01T12:00:00.123Z", "level": "info", "event": "crawl.begin", "crawl": "docs", "message": "..."}

`event` is one of shoal.operations.events.EVENTS. Fields without a value are left out. All characters outside ASCII and
all control characters are escaped. Services write JSON when stderr is not a terminal.
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
_chosen = ""


def tell(text: str, /, *, event: str, **facts: object) -> None:
    """What parts that know no terminal tell (shoal.operations.events)."""
    from shoal.operations.events import WARNINGS

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
