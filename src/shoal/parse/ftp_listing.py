"""Listings of FTP directories as links: the facts of MLSD (RFC 3659 7), the output of `ls -l`, and the format of DOS.

Owns the parsing of lines, each separately and in time linear in its length. The encoding of a name is unknown, so the
link carries its octets. Lines in no known format, such as `total 12`, are skipped.
"""

from __future__ import annotations

import re
from urllib.parse import quote_from_bytes

from shoal.urls.canonical import MAX_URL_BYTES

MAX_NAMES = 100_000
_MAX_LINE = 4096

_CONTROL = re.compile(rb"[\x00-\x1f\x7f/]")
_FACTS = re.compile(rb"(?:[A-Za-z][A-Za-z0-9._-]*=[^;]*;)+ ")
_TYPE = re.compile(rb"(?:^|;)type=([^;]*)", re.IGNORECASE)
_MODE = re.compile(rb"[dl-][A-Za-z-]{9}[+.@]?")
_CLOCK = re.compile(rb"\d{1,2}:\d{2}|\d{4}")
_DAY = re.compile(rb"\d{1,2}\.?")
_ISO = re.compile(rb"\d{4}-\d{2}-\d{2}")
_DOS = re.compile(rb"\d{2}-\d{2}-(?:\d{2}|\d{4})")


def links(body: bytes, *, url: str) -> tuple[str, ...]:
    """The URLs of what a directory holds, those of directories with a slash at the end; each once, in their order."""
    folder = url.partition("?")[0]
    found: dict[str, None] = {}
    for line in body.splitlines():
        if len(found) >= MAX_NAMES:
            break
        if len(line) > _MAX_LINE or (entry := _entry(line)) is None:
            continue
        name, slash = entry
        if name in (b"", b".", b"..") or _CONTROL.search(name):
            continue
        link = folder + quote_from_bytes(name, safe="") + slash
        if len(link) <= MAX_URL_BYTES:
            found[link] = None
    return tuple(found)


def _entry(line: bytes) -> tuple[bytes, str] | None:
    """A name, and a slash if it is of a directory."""
    facts = _FACTS.match(line)
    if facts:
        kind = _TYPE.search(facts[0])
        what = kind[1].lower() if kind else b"file"
        # The directory itself and the one above are listed, too.
        return None if what in (b"cdir", b"pdir") else (line[facts.end() :], "/" if what == b"dir" else "")
    if _MODE.match(line):
        return _unix(line)
    if _DOS.match(line):
        words = line.split(None, 3)
        return (words[3].rstrip(), "/" if words[2].upper() == b"<DIR>" else "") if len(words) == 4 else None
    return None


def _unix(line: bytes) -> tuple[bytes, str] | None:
    words = line.split(None, 9)
    # Mode, count, owner, group, size; some servers leave out one, or write one more for devices.
    for at in (5, 4, 6, 3):
        date = words[at : at + 3]
        if len(date) == 3 and _ISO.fullmatch(date[0]) and _CLOCK.match(date[1]):
            size = 2
        elif len(date) == 3 and _CLOCK.fullmatch(date[2]) and (_DAY.fullmatch(date[1]) or _DAY.fullmatch(date[0])):
            size = 3
        else:
            continue
        rest = line.split(None, at + size)
        if len(rest) <= at + size:
            return None
        # An owner may have spaces in the name; one may not in front of a file's. The target of a link is removed.
        name = rest[-1].partition(b" -> ")[0] if line[:1] == b"l" else rest[-1]
        return name, "/" if line[:1] == b"d" else ""
    return None
