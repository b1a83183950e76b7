"""Robots directives of a page: X-Robots-Tag headers and meta robots elements, for our product token.

Owns the directives and their combination. Directives add up, and the most restrictive one wins: one `nofollow`, for all
robots or for us, in a header or in the page, is enough. The worker decides what follows from a directive.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

# A page has a few dozen characters of directives; more is an attack.
MAX_CHARACTERS = 4096
_AGENT = re.compile(r"\s*([A-Za-z_*-]+)\s*:(.*)", re.DOTALL)
_BREAK = re.compile(r"[,;\s]+")
_VALUED = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})
_EVERYBODY = frozenset({"", "*", "robots"})
_KNOWN = frozenset(
    {"all", "index", "follow", "noindex", "nofollow", "none", "noarchive", "nocache", "nosnippet", "noimageindex"}
    | {"notranslate", "nositelinkssearchbox", "indexifembedded", *_VALUED}
)


class Directives(msgspec.Struct, frozen=True):
    """`nofollow` is for all links, `noindex` a flag of the record, `unavailable_after` in seconds since 1970, or 0."""

    nofollow: bool = False
    noindex: bool = False
    noarchive: bool = False
    unavailable_after: float = 0.0

    def __or__(self, other: Directives) -> Directives:
        """Both apply: the more restrictive of each, and the earlier of two dates."""
        dates = [date for date in (self.unavailable_after, other.unavailable_after) if date]
        return Directives(
            self.nofollow or other.nofollow,
            self.noindex or other.noindex,
            self.noarchive or other.noarchive,
            min(dates, default=0.0),
        )

    def noindex_at(self, now: float) -> bool:
        """A page past its date counts as noindex."""
        return self.noindex or bool(self.unavailable_after and now > self.unavailable_after)


NONE = Directives()


def from_headers(values: Iterable[str], token: str) -> Directives:
    """All X-Robots-Tag headers of a response. `token: nofollow` applies to one robot, until the next name or the end.

    >>> from_headers(["otherbot: noindex, nofollow", "shoal: noindex"], "shoal")
    Directives(nofollow=False, noindex=True, noarchive=False, unavailable_after=0.0)
    """
    result, ours = NONE, _EVERYBODY | {token.lower()}
    for value in values:
        agent, mine = "", []
        for piece in value[:MAX_CHARACTERS].split(","):
            named = _AGENT.match(piece)
            # A directive with a value looks like the name of a robot; it is recognized by its own name.
            if named and named[1].lower() not in _VALUED:
                agent, piece = named[1].lower(), named[2]
            if agent in ours:
                mine.append(piece)
        result |= _read(mine)
    return result


def from_meta(name: str, content: str, token: str) -> Directives:
    """One meta element: its name is `robots` or our token."""
    if name.strip().lower() not in ("robots", token.lower()):
        return NONE
    return _read(content[:MAX_CHARACTERS].split(","))


def _read(pieces: list[str]) -> Directives:
    """The directives of a list split at commas. Spaces and semicolons also separate; unknown words are ignored."""
    words: set[str] = set()
    date: list[str] | None = None
    dates: list[float] = []
    for piece in pieces:
        piece_words = [word for word in _BREAK.split(piece.lower()) if word]
        known = _KNOWN.intersection(word.partition(":")[0] for word in piece_words)
        if date is not None and known:
            dates.append(_date(date))
            date = None
        start = piece.lower().find("unavailable_after")
        if start >= 0:
            date = [piece[start + len("unavailable_after") :].strip(" \t:=")]
        elif date is not None:
            date.append(piece)
        words.update(piece_words)
    if date is not None:
        dates.append(_date(date))
    none = "none" in words
    return Directives(
        none or "nofollow" in words,
        none or "noindex" in words,
        bool(words & {"noarchive", "nocache"}),
        min((seconds for seconds in dates if seconds), default=0.0),
    )


def _date(pieces: list[str]) -> float:
    """A date by RFC 822, RFC 850 or ISO 8601, as seconds since 1970; 0 if it is none of these."""
    # Imported here: it is slow to load, and few pages have a date.
    from email.utils import parsedate_to_datetime

    text = ",".join(pieces).strip()
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            date = parse(text)
            return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, OverflowError, IndexError, AttributeError):
            continue
    return 0.0
