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
    """The URLs of the entries of a directory, each once, in order. Those of directories end in a slash."""
    folder = url.partition("?")[0]
    urls: dict[str, None] = {}
    for line in body.splitlines():
        if len(urls) >= MAX_NAMES:
            break
        if len(line) > _MAX_LINE or (entry := _entry(line)) is None:
            continue
        name, slash = entry
        if name in (b"", b".", b"..") or _CONTROL.search(name):
            continue
        link = folder + quote_from_bytes(name, safe="") + slash
        if len(link) <= MAX_URL_BYTES:
            urls[link] = None
    return tuple(urls)


def _entry(line: bytes) -> tuple[bytes, str] | None:
    """The name of an entry, and a slash if it is a directory."""
    facts = _FACTS.match(line)
    if facts:
        type_fact = _TYPE.search(facts[0])
        kind = type_fact[1].lower() if type_fact else b"file"
        # The directory itself and its parent are listed, too.
        return None if kind in (b"cdir", b"pdir") else (line[facts.end() :], "/" if kind == b"dir" else "")
    if _MODE.match(line):
        return _unix(line)
    if _DOS.match(line):
        words = line.split(None, 3)
        return (words[3].rstrip(), "/" if words[2].upper() == b"<DIR>" else "") if len(words) == 4 else None
    return None


def _unix(line: bytes) -> tuple[bytes, str] | None:
    words = line.split(None, 9)
    # Before the date: mode, count, owner, group, size. Some servers omit one, or add one for devices.
    for at in (5, 4, 6, 3):
        date = words[at : at + 3]
        if len(date) == 3 and _ISO.fullmatch(date[0]) and _CLOCK.match(date[1]):
            size = 2
        elif len(date) == 3 and _CLOCK.fullmatch(date[2]) and (_DAY.fullmatch(date[1]) or _DAY.fullmatch(date[0])):
            size = 3
        else:
            continue
        fields = line.split(None, at + size)
        if len(fields) <= at + size:
            return None
        # An owner's name may contain spaces, a file's name may not start with one. The target of a link is removed.
        name = fields[-1].partition(b" -> ")[0] if line[:1] == b"l" else fields[-1]
        return name, "/" if line[:1] == b"d" else ""
    return None
