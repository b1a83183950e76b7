"""The rules of one robots.txt for one robot: which URLs they allow, and the form they are stored in (RFC 9309 2.2.2).

Owns the precedence of rules and what may be stored of a file. How a file becomes rules is `robots_parser.py`, how one
rule matches is `robots_pattern.py`.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

from shoal.errors import StoreCorrupt
from shoal.politeness.robots_pattern import Pattern, spell
from shoal.urls.canonical import MAX_URL_BYTES

# 2.5 requires at least this limit; the rest of a longer file is not read.
MAX_BYTES = 500 * 1024
# A longer line is cut, as in Google's parser. A URL in Shoal has at most half of it: no rule that can match is changed.
MAX_LINE_BYTES = 2083 * 8 - 1
MAX_CRAWL_DELAY_SECONDS = 300.0
MAX_SITEMAPS = 1000
MAX_NOTES = 10
MAX_NOTE_CHARACTERS = 200
MAX_GROUP_CHARACTERS = 80
# The rules of a file within MAX_BYTES, with room for octets that take three bytes in UTF-8.
MAX_PACKED_BYTES = 4 * MAX_BYTES
FORM_VERSION = 1

_Path = Annotated[bytes, msgspec.Meta(min_length=1, max_length=MAX_LINE_BYTES)]
_Sitemap = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_URL_BYTES)]
_Note = Annotated[str, msgspec.Meta(max_length=MAX_NOTE_CHARACTERS)]


class StoredRules(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The rules as the store keeps them: the group that applies to us, not the file."""

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
    group: Annotated[str, msgspec.Meta(max_length=MAX_GROUP_CHARACTERS)] = ""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(StoredRules).decode


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
    """The rules of one robots.txt for the robot `token`. `crawl_delay_seconds` is 0 if it has no Crawl-delay."""

    __slots__ = ("_kept", "_lengths", "_prefixes", "_wild")

    def __init__(self, kept: StoredRules) -> None:
        self._kept = kept
        rules = [(Pattern(path), False) for path in kept.disallow]
        rules += [(pattern, True) for path in kept.allow for pattern in _patterns(path, allow=True)]
        # Prefixes, nearly all rules of nearly all files, are looked up; other rules are tried, the most specific first.
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
        """The robot that the rules were parsed for; empty if they apply to any robot."""
        return self._kept.token

    @property
    def crawl_delay_seconds(self) -> float:
        return self._kept.crawl_delay_seconds

    @property
    def sitemaps(self) -> tuple[str, ...]:
        """Sitemaps as written, also relative URLs. Untrusted: resolve, then check scope and address as for any link."""
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
        # The longest prefix has the most octets. The other rules are sorted by octets, so their first match decides.
        best, allowed = -1, True
        size = len(text)
        for length in self._lengths:
            if length <= size and (rule := self._prefixes.get(text[:length])) is not None:
                best, allowed = rule
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

        Used for explanations: unlike `allows`, it tries every rule.
        """
        text = spell(path_and_query.partition("#")[0])
        text = text if text.startswith("/") else "/" + text
        if text == "/robots.txt":
            return None
        query_at = text.find("?") if "?" in text else len(text)
        best: tuple[int, bool] | None = None
        deciding: RobotsRule | None = None
        for path, rule in zip(self._kept.disallow + self._kept.allow, self.rules(), strict=True):
            for pattern in _patterns(path, rule.allow):
                rank = (pattern.specificity, rule.allow)
                if pattern.matches(text, query_at) and (best is None or rank > best):
                    best, deciding = rank, rule
        return deciding

    def rules(self) -> list[RobotsRule]:
        """All rules, first those that disallow, in the order of the file."""
        kept = self._kept
        return [
            RobotsRule(
                index >= len(kept.disallow), path.decode("utf-8", "replace"),
                kept.lines[index] if index < len(kept.lines) else 0, kept.group,
            )
            for index, path in enumerate(kept.disallow + kept.allow)
        ]  # fmt: skip

    def pack(self) -> bytes:
        return _encode(self._kept)

    @classmethod
    def unpack(cls, data: bytes) -> Rules:
        """The rules that `pack` made. The data is not trusted: any other form raises StoreCorrupt."""
        try:
            if len(data) > MAX_PACKED_BYTES:
                raise ValueError(f"{len(data)} bytes")
            kept = _decode(data)
            if kept.version != FORM_VERSION:
                raise ValueError(f"form {kept.version} instead of {FORM_VERSION}")
            if not all(is_path(path) for path in kept.disallow + kept.allow):
                raise ValueError("a rule that starts neither with / nor with *")
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            raise StoreCorrupt(
                f"robots.txt rules in the store are not this version's: {error}. Fetch robots.txt again."
            ) from None
        return cls(kept)


def _patterns(path: bytes, allow: bool) -> list[Pattern]:
    """The patterns of one rule."""
    patterns = [Pattern(path)]
    folder, slash, name = path.rpartition(b"/")
    if allow and slash and name in (b"index.html", b"index.htm"):
        # As in Google's parser and one of the public test vectors, a rule that allows /a/index.html also allows /a/.
        patterns.append(Pattern(folder + b"/$"))
    return patterns


def of_paths(token: str = "", *, disallow: tuple[bytes, ...] = ()) -> Rules:
    """Rules that do not come from a file."""
    return Rules(StoredRules(FORM_VERSION, token, disallow, (), 0.0, (), ()))


ALLOW_ALL = of_paths()
DISALLOW_ALL = of_paths(disallow=(b"/",))


def is_path(path: bytes) -> bool:
    return path.startswith((b"/", b"*"))
