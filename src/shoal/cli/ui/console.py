"""Messages on stderr; stdout carries data only.

One renderer writes every message: plain lines, unless `set_renderer` replaced it (lines above a live display, JSON).
Secrets are masked before a renderer gets the text.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import time
from collections.abc import Callable, Mapping

from shoal.stdio import DroppingWriter

# Gets the text, its level (info, warning, error), the event's name and the event's fields.
Renderer = Callable[[str, str, str, Mapping[str, object]], None]
# The user part of a URL before its @, or a parameter whose name says that it is secret.
_SECRET = re.compile(r"\S*(?:://[^\s/?#]*@|(?i:password|passwd|secret|token)=)\S*")


def visible(text: str) -> str:
    """Return `text` with control characters escaped: text from the web or a store must not control a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def printable_json(value: object, *, one_line: bool = False) -> str:
    """Return a value as JSON. Characters that could control a terminal are escaped, which keeps the value the same."""
    # Most commands print no JSON.
    import msgspec

    encoded = msgspec.json.encode(value)
    text = (encoded if one_line else msgspec.json.format(encoded)).decode()
    return "".join(c if c.isprintable() or c == "\n" else _json_escape(c) for c in text)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[index : index + 4]}" for index in range(0, len(units), 4))


def write(text: str) -> None:
    """Write to stderr unchanged. A closed terminal is ignored, and a terminal that accepts no output does not block."""
    with contextlib.suppress(OSError, ValueError):
        data = text.encode(sys.stderr.encoding or "utf-8", "replace")
        sys.stderr.flush()
        if (writer := _stderr_writer()) is not None:
            writer.write(data)
        else:
            sys.stderr.write(data.decode(sys.stderr.encoding or "utf-8"))


def takes_output() -> bool:
    """Whether stderr can be written to without waiting: not after Ctrl-S on its terminal."""
    writer = _stderr_writer()
    return writer is None or writer.takes_output()


@functools.cache
def _writer_of(fd: int) -> DroppingWriter:
    return DroppingWriter(fd)


def _stderr_writer() -> DroppingWriter | None:
    """None if a program has replaced stderr by something that is not a file."""
    try:
        return _writer_of(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        return None


def format_lines(text: str, level: str) -> str:
    """Return the message as plain lines."""
    text = f"shoal: {text}" if level in ("warning", "error") else text
    return "".join(f"{visible(line)}\n" for line in text.split("\n"))


def _render_plain(text: str, level: str, event: str, fields: Mapping[str, object]) -> None:
    write(format_lines(text, level))


_renderer: Renderer = _render_plain
_quiet = False


def set_renderer(renderer: Renderer | None) -> None:
    """Write all further messages with `renderer`; None restores plain lines."""
    global _renderer
    _renderer = renderer or _render_plain


def set_quiet(quiet: bool) -> None:
    """Write only errors from now on, or everything again."""
    global _quiet
    _quiet = quiet


def is_default() -> bool:
    return _renderer is _render_plain and not _quiet


def report(text: str = "", *, event: str = "note", **fields: object) -> None:
    """Write one or more lines. `event` and `fields` are the same message for a program (shoal.operations.events)."""
    if not _quiet:
        _renderer(mask_secrets(text), "info", event, fields)


def warn(text: str, *, event: str = "warning", **fields: object) -> None:
    if not _quiet:
        _renderer(mask_secrets(text), "warning", event, fields)


def fail(text: str, *, event: str = "error") -> None:
    """Write why the command failed."""
    _renderer(mask_secrets(text), "error", event, {})


def mask_secrets(text: str) -> str:
    """Return `text` without passwords and tokens."""
    return _SECRET.sub(_masked, text)


def _masked(match: re.Match[str]) -> str:
    # Imported late: it is rarely needed, and never by `shoal --help`.
    from shoal.settings import masked

    return masked(match[0])


def pluralize(number: int, word: str) -> str:
    """1 page, 2 pages."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def size(count: float) -> str:
    """Format a number of bytes, e.g. 1.5 MB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            if unit == "bytes" and round(count) == 1:
                return "1 byte"
            return f"{count:,.0f} {unit}" if unit == "bytes" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, whole_seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {whole_seconds} s"


def format_timestamp(seconds: float) -> str:
    """Format seconds since 1970 as local time; - if 0."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else "-"


def approx_duration(seconds: float) -> str:
    """Format an estimated duration, rounded to its largest unit."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{max(1, round(seconds))} s"
