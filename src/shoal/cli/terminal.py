"""What people read, on stderr. stdout carries data only."""

from __future__ import annotations

import contextlib
import sys


def visible(text: str) -> str:
    """`text` with control characters spelled out: what comes from the web or a store must not steer a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def say(text: str = "") -> None:
    """One or more lines. A terminal that is gone is no reason to stop."""
    with contextlib.suppress(OSError, ValueError):
        for line in text.split("\n"):
            sys.stderr.write(visible(line).encode(sys.stderr.encoding or "utf-8", "replace").decode("utf-8", "replace"))
            sys.stderr.write("\n")
        sys.stderr.flush()


def warn(text: str) -> None:
    say(f"shoal: {text}")


def size(count: float) -> str:
    """Bytes as people say them."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:,.0f} {unit}" if unit == "bytes" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
