"""What people read, on stderr. stdout carries data only.

Everything is said through one voice: plain lines, unless `speak_through` put another in its place (lines above a live
display, JSON). Whatever the voice, no secret is said.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Mapping

# Gets the text, its level (info, warning), the event it belongs to and that event's fields.
Voice = Callable[[str, str, str, Mapping[str, object]], None]
# A password before an @ that ends the user's part of a URL, or one that is called so.
_SECRET = re.compile(r"\S*(?:://[^\s/?#]*@|(?i:password|passwd|secret|token)=)\S*")


def visible(text: str) -> str:
    """`text` with control characters spelled out: what comes from the web or a store must not steer a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def write(text: str) -> None:
    """Write to stderr as it is. A terminal that is gone is no reason to stop."""
    with contextlib.suppress(OSError, ValueError):
        encoding = sys.stderr.encoding or "utf-8"
        sys.stderr.write(text.encode(encoding, "replace").decode(encoding, "replace"))
        sys.stderr.flush()


def lines_of(text: str, level: str) -> str:
    """The lines that a person reads."""
    text = f"shoal: {text}" if level == "warning" else text
    return "".join(f"{visible(line)}\n" for line in text.split("\n"))


def _plain(text: str, level: str, event: str, fields: Mapping[str, object]) -> None:
    write(lines_of(text, level))


_voice: Voice = _plain


def speak_through(voice: Voice | None) -> None:
    """Say everything by `voice` from here on; None: in plain lines again."""
    global _voice
    _voice = voice or _plain


def speaks_plainly() -> bool:
    return _voice is _plain


def say(text: str = "", *, event: str = "note", **fields: object) -> None:
    """One or more lines. `event` names what they are about and `fields` its facts, for whoever reads with a program."""
    _voice(hidden(text), "info", event, fields)


def warn(text: str, *, event: str = "warning", **fields: object) -> None:
    _voice(hidden(text), "warning", event, fields)


def hidden(text: str) -> str:
    """`text` without what may be a password."""
    return _SECRET.sub(_masked, text)


def _masked(found: re.Match[str]) -> str:
    # Rarely needed, and `shoal --help` does without.
    from shoal.settings import masked

    return masked(found[0])


def counted(number: int, word: str) -> str:
    """1 page, 2 pages."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def size(count: float) -> str:
    """Bytes as people say them."""
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
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def moment(seconds: float) -> str:
    """A time since 1970 by the clock of this place; - when there is none."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else "-"


def about(seconds: float) -> str:
    """A time that is only reckoned: no more digits than it deserves."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{max(1, round(seconds))} s"
