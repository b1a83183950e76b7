"""robots.txt for one robot: from the bytes a server sent to the rules that hold for us (RFC 9309 2.1 and 2.2).

Owns the grammar, the choice of the group, the precedence of rules and the form the rules are kept in. What an answer
without a body means is `answer.py`, how one rule matches is `pattern.py`. Every line that parses is used, whatever
stands around it (2.2.4, 2.3.1.5); what was ignored or changed is a note, for the person who wonders why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, NamedTuple

import msgspec

from shoal.errors import StoreCorrupt
from shoal.politeness.robots_pattern import Pattern, spell
from shoal.urls.canonical import MAX_URL_BYTES

# 2.5 requires at least this; the rest is not read.
MAX_BYTES = 500 * 1024
# A longer line is cut, as Google's parser does. A URL of Shoal has half of it, so no rule that can match is changed.
MAX_LINE_BYTES = 2083 * 8 - 1
MAX_CRAWL_DELAY_SECONDS = 300.0
MAX_SITEMAPS = 1000
MAX_NOTES = 10
_MAX_NOTE_CHARACTERS = 200
_MAX_GROUP_CHARACTERS = 80
# What a file within MAX_BYTES becomes, with room for octets that UTF-8 spells in three.
MAX_PACKED_BYTES = 4 * MAX_BYTES
_VERSION = 1

# Every repetition is bounded and starts where the one before must end: no backtracking.
_DELAY = re.compile(rb"(?:[0-9]{1,300}(?:\.[0-9]{0,300})?|\.[0-9]{1,300})(?:[eE][+-]?[0-9]{1,3})?\Z")
_UTF8_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")

# Spellings seen in real files, from the lists of Google's parser and crawler-commons. Who writes `dissalow` means it.
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

_Path = Annotated[bytes, msgspec.Meta(min_length=1, max_length=MAX_LINE_BYTES)]
_Sitemap = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_URL_BYTES)]
_Note = Annotated[str, msgspec.Meta(max_length=_MAX_NOTE_CHARACTERS)]


class _Kept(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The rules as the store keeps them: the group that holds for us, not the file."""

    version: int
    token: str
    disallow: tuple[_Path, ...]
    allow: tuple[_Path, ...]
    crawl_delay_seconds: Annotated[float, msgspec.Meta(ge=0, le=MAX_CRAWL_DELAY_SECONDS)]
    sitemaps: Annotated[tuple[_Sitemap, ...], msgspec.Meta(max_length=MAX_SITEMAPS)]
    notes: Annotated[tuple[_Note, ...], msgspec.Meta(max_length=MAX_NOTES)]
    # The line of each rule in the file, first those of `disallow`; and the name of the group as the file writes it.
    # Copies of Shoal 0.2 have neither.
    lines: tuple[int, ...] = ()
    group: Annotated[str, msgspec.Meta(max_length=_MAX_GROUP_CHARACTERS)] = ""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Kept).decode


class RobotsRule(NamedTuple):
    """A line of a robots.txt that allows or disallows a URL.

    allow   whether it allows the URL
    path    the path of the rule, as the file writes it
    line    its line in the file, counted from 1; 0 if unknown
    group   the `User-agent` that it stands under; '' if unknown
    """

    allow: bool
    path: str
    line: int
    group: str

    def __str__(self) -> str:
        return f"{'Allow' if self.allow else 'Disallow'}: {self.path}"


class Rules:
    """What one robots.txt allows the robot `token`. `crawl_delay_seconds` is 0 where it names none."""

    __slots__ = ("_kept", "_lengths", "_prefixes", "_wild")

    def __init__(self, kept: _Kept) -> None:
        self._kept = kept
        rules = [(Pattern(path), False) for path in kept.disallow]
        rules += [(pattern, True) for path in kept.allow for pattern in _patterns(path, allow=True)]
        # Prefixes, nearly all rules of nearly all files, are looked up; the rest is tried, the most specific first.
        self._prefixes: dict[str, tuple[int, bool]] = {}
        wild: list[tuple[Pattern, bool]] = []
        for pattern, allow in rules:
            if pattern.plain:
                # Equal rules: allow wins (2.2.2). Here it comes last.
                self._prefixes[pattern.head] = (pattern.specificity, allow)
            else:
                wild.append((pattern, allow))
        self._lengths = tuple(sorted({len(prefix) for prefix in self._prefixes}, reverse=True))
        self._wild = tuple(sorted(wild, key=lambda rule: (-rule[0].specificity, not rule[1])))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rules) and self._kept == other._kept

    def __hash__(self) -> int:
        return hash(self._kept)

    @property
    def token(self) -> str:
        """The robot they were read for; empty where they hold for any."""
        return self._kept.token

    @property
    def crawl_delay_seconds(self) -> float:
        return self._kept.crawl_delay_seconds

    @property
    def sitemaps(self) -> tuple[str, ...]:
        """As written, relative ones too. Foreign text: resolve it, then check scope and address as for any link."""
        return self._kept.sitemaps

    @property
    def notes(self) -> tuple[str, ...]:
        return self._kept.notes

    def allows(self, path_and_query: str) -> bool:
        """Whether the URL with this path and query may be requested, on the scheme, host and port of the rules."""
        if not self._prefixes and not self._wild:
            return True
        text = spell(path_and_query.partition("#")[0])
        if not text.startswith("/"):
            text = "/" + text
        if text == "/robots.txt":
            return True  # always (2.2.2)
        # The longest prefix has the most octets; among others the first match has, since they are in that order.
        best, allowed = -1, True
        size = len(text)
        for length in self._lengths:
            if length <= size and (found := self._prefixes.get(text[:length])) is not None:
                best, allowed = found
                break
        query_at = text.find("?")
        if query_at < 0:
            query_at = size
        for pattern, allow in self._wild:
            if pattern.specificity < best or (pattern.specificity == best and (allowed or not allow)):
                break
            if pattern.matches(text, query_at):
                return allow
        return allowed

    def deciding_rule(self, path_and_query: str) -> RobotsRule | None:
        """The line of robots.txt that decides about a URL; None if no rule matches, which allows it.

        For people who want to know why: it tries every rule, and `allows` does not.
        """
        text = spell(path_and_query.partition("#")[0])
        text = text if text.startswith("/") else "/" + text
        if text == "/robots.txt":
            return None
        query_at = text.find("?") if "?" in text else len(text)
        kept = self._kept
        best: tuple[int, bool] | None = None
        rule: RobotsRule | None = None
        for index, path in enumerate(kept.disallow + kept.allow):
            allow = index >= len(kept.disallow)
            for pattern in _patterns(path, allow):
                rank = (pattern.specificity, allow)
                if pattern.matches(text, query_at) and (best is None or rank > best):
                    best = rank
                    line = kept.lines[index] if index < len(kept.lines) else 0
                    rule = RobotsRule(allow, path.decode("utf-8", "replace"), line, kept.group)
        return rule

    def pack(self) -> bytes:
        return _encode(self._kept)

    @classmethod
    def unpack(cls, data: bytes) -> Rules:
        """The rules that `pack` made. Nothing in them is trusted: what is not in that form is StoreCorrupt."""
        try:
            if len(data) > MAX_PACKED_BYTES:
                raise ValueError(f"{len(data)} bytes")
            kept = _decode(data)
            if kept.version != _VERSION:
                raise ValueError(f"form {kept.version} instead of {_VERSION}")
            if not all(_is_path(path) for path in kept.disallow + kept.allow):
                raise ValueError("a rule that starts neither with / nor with *")
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            raise StoreCorrupt(
                f"robots.txt rules in the store are not this version's: {error}. Fetch robots.txt again."
            ) from None
        return cls(kept)


def _patterns(path: bytes, allow: bool) -> list[Pattern]:
    """What one rule matches."""
    patterns = [Pattern(path)]
    folder, slash, name = path.rpartition(b"/")
    if allow and slash and name in (b"index.html", b"index.htm"):
        # Google's reading, and one of the public vectors: a rule that allows /a/index.html also allows /a/.
        patterns.append(Pattern(folder + b"/$"))
    return patterns


def of_paths(token: str = "", *, disallow: tuple[bytes, ...] = ()) -> Rules:
    """Rules that no file was read for."""
    return Rules(_Kept(_VERSION, token, disallow, (), 0.0, (), ()))


ALLOW_ALL = of_paths()
DISALLOW_ALL = of_paths(disallow=(b"/",))


def parse(body: bytes, token: str) -> Rules:
    """The rules for one product token, or for the result of `whole_agent`. Any bytes give rules; none raise.

    Pass more than `MAX_BYTES` where there is more, so that a line cut there is not taken for a whole one.
    """
    reading = _Reading(token)
    for number, line in enumerate(_lines(body, reading), 1):
        reading.take(line, number)
    return Rules(reading.result())


def _lines(body: bytes, reading: _Reading) -> list[bytes]:
    """The whole lines within the limit, of whatever encoding and line ends."""
    text, whole = body[:MAX_BYTES], len(body) <= MAX_BYTES
    if text.startswith(_UTF16_BOMS):
        text = text.decode("utf-16", "replace").encode()
        reading.note("it is UTF-16, not UTF-8")
    if not whole:
        # The last line may be cut in the middle, and `Disallow: /` is not what `Disallow: /private/` says (2.5).
        text = text[: max(text.rfind(b"\n"), text.rfind(b"\r")) + 1]
        reading.note(f"it has more than {MAX_BYTES} bytes, what follows is not read")
    for length in (3, 2, 1):
        if text.startswith(_UTF8_BOM[:length]):
            text = text[length:]
            break
    if b"\0" in text:
        text = text.replace(b"\0", b"")
        reading.note("NUL octets are left out")
    if text.lstrip()[:1] == b"<":
        reading.note("it looks like HTML")
    return text.splitlines()


class _Group:
    """User-agent lines and the rules under them. Only whether it holds for us, or for `*`, is kept of its names.

    `ours` is the length of the longest of its names that is ours; 0 where none is. `name` is that name in the file.
    """

    def __init__(self) -> None:
        self.ours = 0
        self.name = b""
        self.everybody = self.has_rules = False
        # The path of each rule and its line.
        self.disallow: list[tuple[bytes, int]] = []
        self.allow: list[tuple[bytes, int]] = []
        self.delays: list[float | None] = []


class _Reading:
    """A file on its way to rules, line by line."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._name = token.lower().encode("utf-8", "surrogatepass")
        # No product token has a slash; the result of `whole_agent` always has one.
        self._is_whole = "/" in token
        self._groups: list[_Group] = []
        # Rules before the first User-agent line belong to nobody (2.1).
        self._group = _Group()
        self._sitemaps: dict[str, None] = {}
        self._notes: dict[str, None] = {}

    def note(self, text: str) -> None:
        if len(self._notes) < MAX_NOTES:
            self._notes[text[:_MAX_NOTE_CHARACTERS]] = None

    def take(self, line: bytes, number: int) -> None:
        line = line.partition(b"#")[0]
        if len(line) > MAX_LINE_BYTES:
            self.note(f"a line has more than {MAX_LINE_BYTES} bytes and is cut there")
            line = line[:MAX_LINE_BYTES]
        name, colon, value = line.partition(b":")
        if not colon:
            # `Disallow /x` is read too, as Google does, but a sentence of more words is a sentence.
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
        # All others, and the two above, neither end nor split a group (2.2.4).

    def _take_agent(self, value: bytes) -> None:
        if self._group.has_rules or not self._groups:
            self._group = _Group()
            self._groups.append(self._group)
        # The whole token, whatever its case; `Shoal/1.0` and `Shoal Crawler` name it too, `Shoal-Images` does not.
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
        if not _is_path(path):
            self.note(f"a rule for {_shown(path)} is ignored: a path starts with / or *")
            return
        (self._group.allow if allow else self._group.disallow).append((path, number))

    def _take_delay(self, value: bytes) -> None:
        # Only what holds for us is worth a note, and that is known when all groups are: None stands for "no number".
        self._group.delays.append(float(value) if _DELAY.match(value) else None)

    def _take_sitemap(self, value: bytes) -> None:
        url = value.decode("utf-8", "replace")
        if 0 < len(url) <= MAX_URL_BYTES and len(self._sitemaps) < MAX_SITEMAPS:
            self._sitemaps[url] = None
        elif url and url not in self._sitemaps:
            self.note(f"sitemaps after the first {MAX_SITEMAPS}, or longer than {MAX_URL_BYTES}, are ignored")

    def result(self) -> _Kept:
        """All groups of our token as one; without any, those of `*` (2.2.1)."""
        longest = max((group.ours for group in self._groups), default=0)
        groups = [group for group in self._groups if group.ours == longest] if longest else []
        groups = groups or [group for group in self._groups if group.everybody]
        delay = self._delay([delay for group in groups for delay in group.delays])
        disallow = _first_lines(rule for group in groups for rule in group.disallow)
        allow = _first_lines(rule for group in groups for rule in group.allow)
        names = [group.name if longest else b"*" for group in groups]
        return _Kept(
            version=_VERSION,
            token=self._token,
            disallow=tuple(disallow),
            allow=tuple(allow),
            lines=(*disallow.values(), *allow.values()),
            group=names[0].decode("utf-8", "replace")[:_MAX_GROUP_CHARACTERS] if names else "",
            crawl_delay_seconds=delay,
            sitemaps=tuple(self._sitemaps),
            notes=tuple(self._notes),
        )

    def _delay(self, delays: list[float | None]) -> float:
        """The largest of the merged group; Crawl-delay is not in the RFC, so the longest one is used."""
        numbers = [delay for delay in delays if delay is not None]
        if len(numbers) < len(delays):
            self.note("a Crawl-delay is ignored: it is not a number of seconds")
        largest = max(numbers, default=0.0)
        if largest > MAX_CRAWL_DELAY_SECONDS:
            self.note(f"a Crawl-delay of {largest:g} seconds is taken as {MAX_CRAWL_DELAY_SECONDS:g}")
        return min(largest, MAX_CRAWL_DELAY_SECONDS)


def _first_lines(rules: Iterable[tuple[bytes, int]]) -> dict[bytes, int]:
    """Each path once, with the line where it stands first."""
    lines: dict[bytes, int] = {}
    for path, line in rules:
        lines.setdefault(path, line)
    return lines


def _is_path(path: bytes) -> bool:
    return path.startswith((b"/", b"*"))


def _shown(value: bytes) -> str:
    return repr(value[:40].decode("utf-8", "replace"))
