"""robots.txt for one robot: from the bytes of a response to the rules that apply to us (RFC 9309 2.1 and 2.2).

Owns the grammar and the choice of the group. `robots_rules.py` decides what the rules allow, `robots_policy.py` what a
response without a body means. Every line that parses is used, regardless of the lines around it (2.2.4, 2.3.1.5). For
everything that was ignored or changed there is a note, for people who look for the cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from shoal.politeness.robots_rules import (
    FORM_VERSION,
    MAX_BYTES,
    MAX_CRAWL_DELAY_SECONDS,
    MAX_GROUP_CHARACTERS,
    MAX_LINE_BYTES,
    MAX_NOTE_CHARACTERS,
    MAX_NOTES,
    MAX_SITEMAPS,
    Rules,
    StoredRules,
    is_path,
)
from shoal.urls.canonical import MAX_URL_BYTES

# Every repetition is bounded and starts where the one before must end: no backtracking.
_DELAY = re.compile(rb"(?:[0-9]{1,300}(?:\.[0-9]{0,300})?|\.[0-9]{1,300})(?:[eE][+-]?[0-9]{1,3})?\Z")
_UTF8_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")

# Spellings seen in real files, from the lists of Google's parser and crawler-commons. `dissalow` is meant as a rule.
_USER_AGENT, _DISALLOW, _ALLOW, _CRAWL_DELAY, _SITEMAP = range(5)
_FIELDS = {
    spelling: field
    for field, spellings in {
        _USER_AGENT: b"user-agent useragent useg-agent ser-agent users-agent user-agents user-agnet",
        _DISALLOW: b"disallow dissallow dissalow disalow disalllow desallow disallows diasllow disallaw",
        _ALLOW: b"allow",
        _CRAWL_DELAY: b"crawl-delay crawldelay",
        _SITEMAP: b"sitemap site-map sitemaps",
    }.items()
    for spelling in spellings.split()
} | {b"user agent": _USER_AGENT, b"crawl delay": _CRAWL_DELAY}


def parse(body: bytes, token: str) -> Rules:
    """The rules for one product token, or for the result of `whole_agent`. Any bytes give rules; none raise.

    If the body is longer than `MAX_BYTES`, pass more than that, so that a line that is cut there is not taken for a
    complete line.
    """
    parser = _RobotsFileParser(token)
    for number, line in enumerate(_lines(body, parser), 1):
        parser.add_line(line, number)
    return Rules(parser.result())


def _lines(body: bytes, parser: _RobotsFileParser) -> list[bytes]:
    """The complete lines within the limit, for any encoding and line ends."""
    text, whole = body[:MAX_BYTES], len(body) <= MAX_BYTES
    if text.startswith(_UTF16_BOMS):
        text = text.decode("utf-16", "replace").encode()
        parser.note("it is UTF-16, not UTF-8")
    if not whole:
        # The last line may be cut in the middle, and `Disallow: /` differs from `Disallow: /private/` (2.5).
        text = text[: max(text.rfind(b"\n"), text.rfind(b"\r")) + 1]
        parser.note(f"it has more than {MAX_BYTES} bytes; the rest is not read")
    for length in (3, 2, 1):
        if text.startswith(_UTF8_BOM[:length]):
            text = text[length:]
            break
    if b"\0" in text:
        text = text.replace(b"\0", b"")
        parser.note("NUL octets are left out")
    if text.lstrip()[:1] == b"<":
        parser.note("it looks like HTML")
    return text.splitlines()


class _Group:
    """User-agent lines and the rules under them. Of its names, only whether it applies to us, or to `*`, is kept.

    `ours` is the length of the longest of its names that is ours; 0 if none is. `name` is that name in the file.
    """

    def __init__(self) -> None:
        self.ours = 0
        self.name = b""
        self.everybody = self.has_rules = False
        # The path of each rule and its line.
        self.disallow: list[tuple[bytes, int]] = []
        self.allow: list[tuple[bytes, int]] = []
        self.delays: list[float | None] = []


class _RobotsFileParser:
    """Collects the groups, sitemaps and notes of a file, line by line."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._name = token.lower().encode("utf-8", "surrogatepass")
        # No product token has a slash; the result of `whole_agent` always has one.
        self._is_whole = "/" in token
        self._groups: list[_Group] = []
        # Rules before the first User-agent line apply to no robot (2.1).
        self._group = _Group()
        self._sitemaps: dict[str, None] = {}
        self._notes: dict[str, None] = {}

    def note(self, text: str) -> None:
        if len(self._notes) < MAX_NOTES:
            self._notes[text[:MAX_NOTE_CHARACTERS]] = None

    def add_line(self, line: bytes, number: int) -> None:
        line = line.partition(b"#")[0]
        if len(line) > MAX_LINE_BYTES:
            self.note(f"a line has more than {MAX_LINE_BYTES} bytes and is cut there")
            line = line[:MAX_LINE_BYTES]
        name, colon, value = line.partition(b":")
        if not colon:
            # `Disallow /x` is accepted too, as by Google. A line of more words is text.
            words = name.split()
            if len(words) != 2:
                return
            name, value = words
        field = _FIELDS.get(b" ".join(name.lower().split()) if len(name) < 64 else b"")
        value = value.strip()
        if field == _USER_AGENT:
            self._take_agent(value)
        elif field in (_DISALLOW, _ALLOW):
            self._take_rule(value, field == _ALLOW, number)
        elif field == _CRAWL_DELAY:
            self._take_delay(value)
        elif field == _SITEMAP:
            self._take_sitemap(value)
        # All other fields, and the two above, neither end nor split a group (2.2.4).

    def _take_agent(self, value: bytes) -> None:
        if self._group.has_rules or not self._groups:
            self._group = _Group()
            self._groups.append(self._group)
        # The whole token in any case; `Shoal/1.0` and `Shoal Crawler` match, too, but `Shoal-Images` does not.
        first = value.split(maxsplit=1)[:1]
        name = first[0].partition(b"/")[0].lower() if first else b""
        if first == [b"*"]:
            self._group.everybody = True
        else:
            ours = 0
            if self._is_whole:
                names = {value.lower(), value.lower().replace(b"*", b"")}
                ours = max((len(name) for name in names if self._has_word(name)), default=0)
            elif name and name == self._name:
                ours = len(name)
            if ours > self._group.ours:
                self._group.ours, self._group.name = ours, value

    def _has_word(self, name: bytes) -> bool:
        return bool(name) and re.search(rb"(?<![0-9a-z_-])" + re.escape(name), self._name) is not None

    def _take_rule(self, path: bytes, allow: bool, number: int) -> None:
        # An empty path matches nothing, but it is a rule: the next User-agent line starts another group (2.2).
        self._group.has_rules = True
        if not path:
            return
        if not is_path(path):
            self.note(f"a rule for {_shown(path)} is ignored: a path starts with / or *")
            return
        (self._group.allow if allow else self._group.disallow).append((path, number))

    def _take_delay(self, value: bytes) -> None:
        # Only a group that applies to us gets a note, and all groups must be known first: None is an invalid number.
        self._group.delays.append(float(value) if _DELAY.match(value) else None)

    def _take_sitemap(self, value: bytes) -> None:
        url = value.decode("utf-8", "replace")
        if 0 < len(url) <= MAX_URL_BYTES and len(self._sitemaps) < MAX_SITEMAPS:
            self._sitemaps[url] = None
        elif url and url not in self._sitemaps:
            self.note(f"sitemaps after the first {MAX_SITEMAPS}, or longer than {MAX_URL_BYTES}, are ignored")

    def result(self) -> StoredRules:
        """Merge all groups of our token, or those of `*` if there are none (2.2.1)."""
        longest = max((group.ours for group in self._groups), default=0)
        groups = [group for group in self._groups if group.ours == longest] if longest else []
        groups = groups or [group for group in self._groups if group.everybody]
        delay = self._delay([delay for group in groups for delay in group.delays])
        disallow = _first_lines(rule for group in groups for rule in group.disallow)
        allow = _first_lines(rule for group in groups for rule in group.allow)
        names = [group.name if longest else b"*" for group in groups]
        return StoredRules(
            version=FORM_VERSION,
            token=self._token,
            disallow=tuple(disallow),
            allow=tuple(allow),
            lines=(*disallow.values(), *allow.values()),
            group=names[0].decode("utf-8", "replace")[:MAX_GROUP_CHARACTERS] if names else "",
            crawl_delay_seconds=delay,
            sitemaps=tuple(self._sitemaps),
            notes=tuple(self._notes),
        )

    def _delay(self, delays: list[float | None]) -> float:
        """The largest Crawl-delay of the merged group. The RFC does not define it, so the longest delay is used."""
        numbers = [delay for delay in delays if delay is not None]
        if len(numbers) < len(delays):
            self.note("a Crawl-delay is ignored: it is not a number of seconds")
        largest = max(numbers, default=0.0)
        if largest > MAX_CRAWL_DELAY_SECONDS:
            self.note(f"a Crawl-delay of {largest:g} seconds is taken as {MAX_CRAWL_DELAY_SECONDS:g}")
        return min(largest, MAX_CRAWL_DELAY_SECONDS)


def _first_lines(rules: Iterable[tuple[bytes, int]]) -> dict[bytes, int]:
    """Each path once, with the line of its first occurrence."""
    lines: dict[bytes, int] = {}
    for path, line in rules:
        lines.setdefault(path, line)
    return lines


def _shown(value: bytes) -> str:
    return repr(value[:40].decode("utf-8", "replace"))
