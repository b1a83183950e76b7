"""Lists of pages that a site provides for robots: sitemaps, sitemap indexes, plain text, RSS and Atom.

Owns the parsing of one file, from bytes to URLs. No input from the web raises, nothing is fetched, and the work is
limited: bytes of a gzip, elements and URLs. A DTD is refused: ten entities can expand to a gigabyte, and default
attributes are added to every element. URLs before an error are used. Must not decide which URLs are visited.
"""

from __future__ import annotations

import re
import zlib
from xml.parsers import expat

import ada_url
import msgspec

from shoal.errors import InvalidUrl
from shoal.parse.charset import charset, in_utf8
from shoal.parse.dates import MAX_DATE, timestamp
from shoal.urls.canonical import MAX_URL_BYTES, parts_of

# The protocol allows 50,000 URLs and 52,428,800 uncompressed bytes per file.
MAX_URLS = 100_000
MAX_BYTES = 52_428_800
# An entry of a sitemap has a handful of elements, and thousands if it has a thousand images.
MAX_ELEMENTS = 2_000_000
# Expat keeps every open element in memory, and a file of the size that is allowed here could open millions.
MAX_NESTING = 256
# Some programs write several gzip members. Empty members take time and contain nothing.
MAX_MEMBERS = 1000
# A malformed file up to this size is repaired and read again.
_REPAIRED_BYTES = 10_000_000
_PIECE = 65536
# How many bytes at the start of a file are searched for the root element of a sitemap or feed.
_FRONT = 2048

_GZIP = b"\x1f\x8b"
_LOC = frozenset({"loc"})
_LINK = frozenset({"link", "guid"})
# By root element: the name of an entry, and which of its children contain its URL. RSS 1.0 is RDF.
_ROOTS = {
    "urlset": ("url", _LOC),
    "sitemapindex": ("sitemap", _LOC),
    "rss": ("item", _LINK),
    "rdf": ("item", _LINK),
    "feed": ("entry", frozenset({"link"})),
}
# The children with the date of the last change, by root element, or for all other roots. The latest date counts.
_UPDATED = frozenset({"updated", "published", "pubdate", "date"})
_DATES = {"urlset": frozenset({"lastmod"}), "sitemapindex": frozenset({"lastmod"})}
FEEDS = ("rss", "rdf", "feed")
# Atomic groups: a file that starts with many comments must not cause backtracking over all combinations.
_ROOT = re.compile(rb"(?><\?[^>]*\?>|<!--.*?-->|<!DOCTYPE[^>\[]*>|\s)*+<(?:[\w.-]+:)?(\w+)", re.DOTALL | re.IGNORECASE)
# Unescaped ampersands, which are common in URLs, and control characters, which XML does not allow.
_BARE = re.compile(rb"&(?!(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9a-fA-F]{1,6});)")
_CONTROLS = bytes(set(range(32)) - {9, 10, 13})


class Sitemap(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a sitemap or feed.

    urls        canonical URLs of pages, in order, each once
    sitemaps    canonical URLs of further sitemaps, in order, each once
    dropped     number of entries that are not valid URLs or are beyond the limit
    kind        root element of the XML, "text", or '' if the file is neither
    trouble     why the file was not read completely; '' if it was
    changed_at  dates of entries by URL, in seconds since 1970, if they were requested
    """

    urls: tuple[str, ...] = ()
    sitemaps: tuple[str, ...] = ()
    dropped: int = 0
    kind: str = ""
    trouble: str = ""
    changed_at: dict[str, float] = {}


def read(body: bytes, *, url: str, content_type: str = "", dates: bool = False) -> Sitemap:
    """Read one file that came from `url`; with `dates`, also when its entries were changed."""
    trouble = ""
    if body.startswith(_GZIP):
        body, trouble = _unpacked(body)
        content_type = ""
    text = in_utf8(body, charset(body, content_type)).lstrip()
    reader = _SitemapReader(url, dates)
    if not text.startswith(b"<"):
        reader.lines(text)
        trouble = trouble or ("" if reader.kind else _NONE)
    elif failure := reader.xml(text):
        if failure == _BROKEN and len(text) <= _REPAIRED_BYTES:
            # Most malformed files have unescaped ampersands and no other error.
            second = _SitemapReader(url, dates)
            repaired = _BARE.sub(b"&amp;", text.translate(None, _CONTROLS)).decode("utf-8", "replace").encode()
            failure = second.xml(repaired)
            if len(second.urls) >= len(reader.urls):
                reader = second
        trouble = trouble or failure
    urls, index = tuple(reader.urls), reader.kind == "sitemapindex"
    return Sitemap(
        urls=() if index else urls,
        sitemaps=urls if index else (),
        dropped=reader.dropped,
        kind=reader.kind,
        trouble=trouble,
        changed_at=reader.changed_at,
    )


def is_sitemap(body: bytes) -> bool:
    """Whether an XML file is a sitemap or feed by its root element. Reads only the start of the file."""
    front = body[:_FRONT]
    if front.startswith(_GZIP):
        try:
            front = zlib.decompressobj(wbits=31).decompress(front, _FRONT)
        except zlib.error:
            return False
    if front.startswith((b"\xff\xfe", b"\xfe\xff")):
        front = front.decode("utf-16", "replace").encode()
    root = _ROOT.match(front.removeprefix(b"\xef\xbb\xbf"))
    return root is not None and root[1].decode("latin-1").lower() in _ROOTS


_BROKEN = "not well-formed"
_NONE = "not a sitemap"


class _Enough(Exception):
    """Stops the parser; the message is the reason."""


class _SitemapReader:
    def __init__(self, base: str, dates: bool) -> None:
        self.kind = ""
        self.changed_at: dict[str, float] = {}
        # Used as an ordered set.
        self.urls: dict[str, None] = {}
        self.dropped = 0
        self._base = base
        self._entry_name = ""
        self._fields: frozenset[str] = frozenset()
        self._depth = self._entry = self._elements = self._room = 0
        self._has_url = self._collecting = False
        self._guid = ""
        self._permalink = True
        self._text: list[str] = []
        self._dates = dates
        self._date_fields: frozenset[str] = frozenset()
        # URLs and date of the current entry.
        self._urls: list[str] = []
        self._changed_at = 0.0

    def lines(self, text: bytes) -> None:
        """Read a file with one URL per line. Other lines are dropped: the file may be anything."""
        self.kind = "text"
        for line in text.splitlines():
            # The length is checked before decoding: the file may be one long line.
            if len(line) <= MAX_URL_BYTES and (address := line.decode("utf-8", "replace").strip()):
                self._add(address if _absolute(address) else "")
        if self.dropped and not self.urls:
            self.kind = ""

    def xml(self, text: bytes) -> str:
        """Read an XML file. Returns why it was not read to its end, '' if it was."""
        # The text is UTF-8 by now, whatever encoding it declares.
        parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        # An external DTD, e.g. of RSS 0.91, is only a name and is never opened.
        parser.StartDoctypeDeclHandler = _refuse_declarations
        try:
            parser.Parse(text, True)
        except _Enough as reason:
            return str(reason)
        except (expat.ExpatError, ValueError):
            return _BROKEN if self.kind else _NONE
        return ""

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self._elements += 1
        if self._depth > MAX_NESTING:
            raise _Enough("nested too deep")
        if self._elements > MAX_ELEMENTS:
            raise _Enough("too many elements")
        if self._depth == 1:
            self._begin(_local(name), attributes)
            return
        if not self._entry:
            if name == self._entry_name or _local(name) == self._entry_name:
                self._entry, self._has_url, self._guid = self._depth, False, ""
                self._urls, self._changed_at = [], 0.0
                self._collect_text()
            return
        self._collecting = False
        if self._depth == self._entry + 1 and _local(name) in self._fields:
            self._collect_text()
            if href := attributes.get("href"):
                self._collecting = False
                if attributes.get("rel", "alternate") == "alternate":
                    self._has_url = True
                    self._add(href)
            self._permalink = attributes.get("isPermaLink", "true") != "false"
        elif self._date_fields and self._depth == self._entry + 1 and _local(name) in self._date_fields:
            self._collect_text()
            self._room = 4 * MAX_DATE

    def _end(self, name: str) -> None:
        depth, self._depth = self._depth, self._depth - 1
        if not self._entry:
            return
        if depth == self._entry:
            # Some sites write the URL into the entry itself; some feeds have it only as the entry's id.
            if not self._has_url and _absolute(address := self._guid or self._address()):
                self._add(address)
            self._entry = 0
            if self._changed_at:
                self.changed_at.update(dict.fromkeys(self._urls, self._changed_at))
        elif self._collecting and depth == self._entry + 1:
            address = self._address()
            if self._date_fields and _local(name) in self._date_fields:
                self._changed_at = max(self._changed_at, timestamp(address))
            elif _local(name) == "guid":
                self._guid = address if self._permalink else ""
            elif address:
                self._has_url = True
                self._add(address)
        self._collecting = False

    def _collect_text(self) -> None:
        # Twice the length of a URL: files that are indented for readers have many spaces around it.
        self._collecting, self._text, self._room = True, [], 2 * MAX_URL_BYTES

    def _characters(self, data: str) -> None:
        if self._collecting:
            self._text.append(data)
            self._room -= len(data)
            if self._room < 0:
                self._collecting, self._text = False, []

    def _begin(self, root: str, attributes: dict[str, str]) -> None:
        if root not in _ROOTS:
            raise _Enough(_NONE)
        self.kind = root
        self._entry_name, self._fields = _ROOTS[root]
        if self._dates:
            self._date_fields = _DATES.get(root, _UPDATED)
        if base := attributes.get("xml:base"):
            self._base = _resolved(self._base, base) or self._base

    def _address(self) -> str:
        address = "".join(self._text).strip()
        self._text = []
        return address

    def _add(self, address: str) -> None:
        if len(self.urls) >= MAX_URLS:
            self.dropped += 1
        elif url := _resolved(self._base, address):
            self.urls[url] = None
            if self._date_fields:
                self._urls.append(url)
        else:
            self.dropped += 1


def _local(name: str) -> str:
    # Namespaces are wrong more often than names: only the name after the prefix counts.
    return name.rpartition(":")[2].lower()


def _absolute(text: str) -> bool:
    return text[:8].lower().startswith(("http://", "https://", "ftp://"))


def _resolved(base: str, address: str) -> str:
    """The canonical URL of an address, '' if it cannot be visited."""
    if not address or len(address) > MAX_URL_BYTES:
        return ""
    try:
        return parts_of(ada_url.join_url(base, address).partition("#")[0]).url
    except (InvalidUrl, ValueError, UnicodeError):
        return ""


def _refuse_declarations(_name: str, _system: str | None, _public: str | None, declares: bool) -> None:
    if declares:
        raise _Enough("a DTD")


def _unpacked(body: bytes) -> tuple[bytes, str]:
    """The content of a gzip with one or more members, up to the limit; and why it is incomplete, '' if it is not."""
    out, members = bytearray(), 1
    member = zlib.decompressobj(wbits=31)
    try:
        # In pieces, so that the data before an error is kept.
        for start in range(0, len(body), _PIECE):
            piece = body[start : start + _PIECE]
            while piece:
                if member.eof:
                    members += 1
                    if members > MAX_MEMBERS:
                        return bytes(out), "too many members"
                    member = zlib.decompressobj(wbits=31)
                out += member.decompress(piece, MAX_BYTES + 1 - len(out))
                if len(out) > MAX_BYTES:
                    return bytes(out[:MAX_BYTES]), "too large"
                piece = member.unconsumed_tail or member.unused_data
    except zlib.error:
        return bytes(out), "broken gzip"
    return bytes(out), "" if member.eof else "broken gzip"
