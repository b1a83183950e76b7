"""Matches the path of a rule against the path of a URL: one spelling for both, then a match without backtracking.

Owns the comparison of RFC 9309 2.2.2 and 2.2.3. Knows no groups and no robots.txt.

Both sides become text with one symbol for each octet, so that `%7E` and `~`, `%C3%A9` and `é`, `%3A` and `:` are the
same symbol. Some octets have a different meaning raw and encoded, depending on their position:

              raw in the path     encoded in the path    raw in the query    encoded in the query
    /         separator           data                   data                data
    ?         start of the query  data                   data                data
    = &       data                data                   separator           data

Separators and data have different symbols (2.2.2, figure 4: `https://` in a query equals `https%3A%2F%2F`, while `=`
and the separators of the path stay unchanged). After a `*`, the position of a rule's text is unknown, so each piece
between stars has two spellings, of the same length.
"""

from __future__ import annotations

_QUERY = 0x200  # data in the query that would be a separator in the path
_DATA = 0x100  # encoded where the raw octet is a separator

_RAW_IN_QUERY = {ord("/"): chr(_QUERY | ord("/")), ord("?"): chr(_QUERY | ord("?"))}
_DIGITS = "0123456789abcdefABCDEF"
_ENCODED = {high + low: chr(int(high + low, 16)) for high in _DIGITS for low in _DIGITS}
_ENCODED_IN_PATH = _ENCODED | {
    code: chr(_DATA | ord(octet)) for code, octet in _ENCODED.items() if octet in ("/", "?")
}  # fmt: skip
_ENCODED_IN_QUERY = (
    _ENCODED
    | {code: chr(_QUERY | ord(octet)) for code, octet in _ENCODED.items() if octet in ("/", "?")}
    | {code: chr(_DATA | ord(octet)) for code, octet in _ENCODED.items() if octet in ("=", "&")}
)

# These count one octet once both sides are encoded, all others count three (`%3A`).
_SINGLE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/?=&")


def spell(text: str, *, in_query: bool = False) -> str:
    """The symbols of a path and query, or of a piece of one that starts in the query.

    >>> spell("/%7Ea:b") == spell("/~a%3ab")
    True
    >>> spell("/a/b") == spell("/a%2Fb")
    False
    """
    if not text.isascii():
        # Links may contain half of a surrogate pair, which is encoded like any other character.
        text = text.encode("utf-8", "surrogatepass").decode("latin-1")
    return _spell_octets(text, in_query)


def _spell_octets(text: str, in_query: bool) -> str:
    if in_query:
        return _decode(text.translate(_RAW_IN_QUERY), _ENCODED_IN_QUERY)
    path, mark, query = text.partition("?")
    path = _decode(path, _ENCODED_IN_PATH)
    return path + mark + _decode(query.translate(_RAW_IN_QUERY), _ENCODED_IN_QUERY) if mark else path


def _decode(text: str, encoded: dict[str, str]) -> str:
    """Remove one level of percent-encoding. A `%` without two digits stays, and equals `%25`."""
    if "%" not in text:
        return text
    first, *parts = text.split("%")
    return first + "".join(
        symbol + part[2:] if (symbol := encoded.get(part[:2])) is not None else "%" + part for part in parts
    )


def octets(symbols: str) -> int:
    """The number of octets when every symbol that can be encoded is encoded: the measure of 2.2.2."""
    return sum(1 if symbol in _SINGLE else 3 for symbol in symbols)


class Pattern:
    """The path of one rule, ready to match. `specificity` decides which of several matching rules applies."""

    __slots__ = ("_last", "_pieces", "anchored", "head", "specificity", "stars")

    def __init__(self, rule: bytes) -> None:
        text = rule.decode("latin-1")
        # Only a final `$` is special (2.2.3); `%24` and `%2A` are decoded after this, and so stay literal.
        self.anchored = text.endswith("$")
        head, *tail = (text[:-1] if self.anchored else text).split("*")
        self.head = _spell_octets(head, False)
        self.stars = len(tail)
        self.specificity = octets(self.head) + self.stars + self.anchored
        pieces: list[tuple[str, str]] = []
        in_query = "?" in head
        for piece in tail:
            as_query = _spell_octets(piece, True)
            as_path = as_query if in_query else _spell_octets(piece, False)
            in_query = in_query or "?" in piece
            self.specificity += octets(as_path)
            pieces.append((as_path, as_query))
        # An anchored rule's last piece is compared with the end, not searched.
        self._last = pieces.pop() if pieces and self.anchored else ("", "")
        self._pieces = [(path, query) for path, query in pieces if path]

    @property
    def plain(self) -> bool:
        """A rule without special characters: a prefix, and nothing else."""
        return not self.stars and not self.anchored

    def matches(self, text: str, query_at: int) -> bool:
        """Whether the rule matches these symbols, whose query starts at `query_at` (their length if there is none).

        Taking the first occurrence of each piece is enough: if any choice of occurrences matches, this one does. So the
        position only moves forward, and the cost is the length of the rule plus that of the text, regardless of `*`.
        """
        if not text.startswith(self.head):
            return False
        at = len(self.head)
        if not self.stars:
            return not self.anchored or at == len(text)
        for as_path, as_query in self._pieces:
            at = _after(text, as_path, as_query, at, query_at)
            if at < 0:
                return False
        if not self.anchored:
            return True
        as_path, as_query = self._last
        start = len(text) - len(as_path)
        return start >= at and (text.startswith(as_query, start) or (start <= query_at and text.endswith(as_path)))


def _after(text: str, as_path: str, as_query: str, at: int, query_at: int) -> int:
    """Where the first match of a piece ends, or -1.

    If a piece has two spellings, the path's spelling is searched for only where the piece starts in the path: `%3D` is
    spelled there as `=` is in the query. The query's spelling occurs in the query alone. So a failed search of the path
    either ends the match or continues in the query, and the path is not searched again.
    """
    length = len(as_path)
    if as_path != as_query:
        start = text.find(as_path, at, query_at + length)
        if start >= 0:
            return start + length
    start = text.find(as_query, at)
    return start + length if start >= 0 else -1
