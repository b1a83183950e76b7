"""`<meta http-equiv=refresh>`: the seconds and the unresolved target, by the rules of the HTML standard (4.2.5.3)."""

from __future__ import annotations

import re

_SPACE = "\t\n\f\r "
_START = re.compile(r"[\t\n\f\r ]*([0-9]*)([0-9.]*)")
_URL = re.compile(r"[Uu][Rr][Ll][\t\n\f\r ]*=[\t\n\f\r ]*")
# More digits than any intended delay has, and few enough for int().
_MOST_DIGITS = 9


def refresh_of(content: str) -> tuple[int, str] | None:
    """The content of a refresh: (seconds, target), '' for the page itself; None if it is invalid.

    >>> refresh_of("1; url='a' b")
    (1, 'a')
    """
    start = _START.match(content)
    if not start or not (start[1] or start[2].startswith(".")):
        return None
    digits = start[1].lstrip("0") or "0"
    seconds = int(digits) if len(digits) <= _MOST_DIGITS else 10**_MOST_DIGITS - 1
    rest = content[start.end() :]
    if not rest:
        return seconds, ""
    if rest[0] not in ";," and rest[0] not in _SPACE:
        return None
    rest = rest.lstrip(_SPACE)
    if rest[:1] in (";", ","):
        rest = rest[1:].lstrip(_SPACE)
    named = _URL.match(rest)
    if named:
        rest = rest[named.end() :]
    if rest[:1] in ("'", '"'):
        rest = rest[1:].partition(rest[0])[0]
    return seconds, rest
