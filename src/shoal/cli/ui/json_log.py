"""`--log`: messages as one JSON object per line, or as plain lines even on a terminal.

    {"time": "2026-03-01T12:00:00.123Z", "level": "info", "event": "crawl.started", "crawl": "docs", "message": "..."}

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

from shoal.cli.ui.console import is_default, mask_secrets, report, set_renderer, warn, write

Command = TypeVar("Command", bound=Callable[..., Any])
_chosen = ""


def emit(text: str, /, *, event: str, **facts: object) -> None:
    """Write an event of shoal.operations.events; its name decides whether it is a warning."""
    from shoal.operations.events import WARNINGS

    if (trace := facts.get("trace")) and not is_json():
        text = f"{text}\n{trace}"
    (warn if event in WARNINGS else report)(text, event=event, **facts)


def render_json(text: str, level: str, event: str, fields: Mapping[str, object]) -> None:
    """A renderer (console.py) that writes JSON lines."""
    message = " ".join(text.split())
    if not message and not fields:
        return
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    known = {
        name: mask_secrets(value) if isinstance(value, str) else value
        for name, value in fields.items()
        if value not in (None, "")
    }
    line = json.dumps({"time": now, "level": level, "event": event, **known, "message": message}, default=str)
    # The only control character that JSON leaves unescaped.
    write(line.replace("\x7f", "\\u007f") + "\n")


def on_log(command: Command) -> Command:
    """Add --log. It applies to every message after the flag was parsed."""
    return _option("a live display on a terminal, else text", "")(command)


def on_service_log(command: Command) -> Command:
    """Add --log to a service, which writes JSON when stderr is not a terminal."""
    return _option("text on a terminal, else json", "json")(command)


def _option(default: str, without_terminal: str) -> Callable[[Command], Command]:
    def choose(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        global _chosen
        _chosen = value or ("" if sys.stderr is not None and sys.stderr.isatty() else without_terminal)
        set_renderer(render_json if is_json() else None)
        if is_json():
            _capture_library_logs()

    return click.option(
        "--log", type=click.Choice(["text", "json"]), envvar="SHOAL_LOG", is_eager=True, expose_value=False,
        callback=choose, help=f"Format of messages on stderr.  [default: {default}]",
    )  # fmt: skip


def _capture_library_logs() -> None:
    """Write log records of libraries as JSON lines, too."""
    import logging

    class JsonHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
            warn(record.getMessage(), logger=record.name, trace=trace)

    logging.basicConfig(handlers=[JsonHandler(logging.WARNING)])
    logging.captureWarnings(True)


def is_interactive() -> bool:
    """Whether stderr is a terminal on which a live display may be drawn."""
    return (
        not _chosen
        and is_default()
        and os.environ.get("CI", "").lower() in ("", "0", "false")
        and os.environ.get("TERM", "") not in ("", "dumb")
        and sys.stderr is not None
        and sys.stderr.isatty()
    )


def is_json() -> bool:
    return _chosen == "json"
