"""An HTML page as Shoal sees it: title, description, text, links and what it asks of robots.

Owns the one walk over the tree that lexbor builds, and the resolving of links. Links are told apart by their text before
they are resolved, since three in four are repeats. Nothing here raises on what the web sends, and the work is bounded:
`hostile.py` makes costly markup flat, and a page gives at most MAX_LINKS links; what is left out is counted.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote_from_bytes

import ada_url
import msgspec
from selectolax.lexbor import LexborHTMLParser, LexborNode

from shoal.parse.charset import charset, in_utf8
from shoal.parse.encodings import CODECS
from shoal.parse.hostile import tame
from shoal.parse.page_robots import NONE, Directives, from_meta
from shoal.parse.refresh import refresh_of
from shoal.urls.canonical import MAX_URL_BYTES

# What is followed unless a crawl says otherwise. `canonical` and `alternate` are names of pages, found by other links too.
FOLLOW = frozenset({"a", "area", "iframe", "frame", "next"})
LINK_RELATIONS = ("next", "canonical", "alternate")
MAX_LINKS = 100_000
# Titles and descriptions beyond this are no longer that.
MAX_LINE = 2_000

_NO_EVENTS = 1  # Nobody listens to changes of the tree; not telling anybody saves 3 % of the parsing.
_SCHEMES = ("http://", "https://", "ftp://")
# Told without asking the URL parser: most links that are not visited begin with one of these.
_NOT_VISITED = ("javascript:", "mailto:", "tel:", "data:")
# A joint is looked at no further up than this; inline elements are not nested deeper by people.
_CLIMB = 16

_BLOCKS = (
    "address article aside blockquote body br button caption center dd details dialog dir div dl dt fieldset figcaption "
    "figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html iframe img input legend li main menu "
    "nav ol optgroup option p pre search section select summary table tbody td textarea tfoot th thead title tr ul video"
).split()
_SILENT = ("script", "style", "noscript", "template", "iframe", "noembed", "noframes", "title")
_READ = ("a", "area", "iframe", "frame", "link", "base", "meta", "title", "html", "svg")


def _tag_id(tag: str) -> int:
    # Asked of lexbor rather than written down: the numbers are its own and change with its version.
    tree = LexborHTMLParser("<!DOCTYPE html><p>")
    return int(tree.create_node(tag).tag_id)


_ID = {tag: _tag_id(tag) for tag in {*_BLOCKS, *_SILENT, *_READ}}
_TEXT = 2
_BLOCK_IDS = frozenset(_ID[tag] for tag in _BLOCKS)
_SILENT_IDS = frozenset(_ID[tag] for tag in _SILENT)
_HREFS = {_ID["a"]: "a", _ID["area"]: "area"}
_SOURCES = {_ID["iframe"]: "iframe", _ID["frame"]: "frame"}
_READ_IDS = frozenset(_ID[tag] for tag in _READ if tag != "svg")
_A, _BASE, _LINK, _META, _TITLE, _HTML, _SVG = (_ID[tag] for tag in "a base link meta title html svg".split())
_NOSCRIPT = _ID["noscript"]
# What the walk stops at: everything else is inline and only its text counts.
_STOPS = _BLOCK_IDS | _SILENT_IDS | _READ_IDS


class Link(NamedTuple):
    """A link of a page: its canonical URL, the element or relation it came from, its rel tokens in lower case."""

    url: str
    kind: str
    rel: tuple[str, ...] = ()

    @property
    def nofollow(self) -> bool:
        return "nofollow" in self.rel


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """What one page says. `links` are in their order, each URL once; `links_dropped` counts those beyond the limit.

    `refresh` is the URL the page sends its reader to after `refresh_seconds`, '' when it sends nobody anywhere.
    `reduced` says that the markup was too costly to build a tree of, and was flattened or cut.
    """

    title: str = ""
    description: str = ""
    text: str = ""
    canonical: str = ""
    language: str = ""
    charset: str = ""
    links: tuple[Link, ...] = ()
    links_dropped: int = 0
    refresh: str = ""
    refresh_seconds: int = 0
    robots: Directives = NONE
    reduced: bool = False


def parse(
    body: bytes, *, url: str, content_type: str = "", follow: frozenset[str] = FOLLOW, token: str = "shoal"
) -> Parsed:
    """Read one page. `url` is where it came from, `follow` which kinds of links are wanted, `token` our name to robots."""
    encoding = charset(body, content_type)
    markup, reduced = tame(in_utf8(body, encoding))
    walk = _Walk(token)
    walk.over(tree_of(markup))
    base = _join(url, walk.base) or url if walk.base else url
    links, dropped = _links(walk, url, base, encoding, follow)
    refresh = _join(base, walk.refresh) if walk.refresh else ""
    return Parsed(
        title=_line(walk.title),
        description=_line(walk.description),
        text=" ".join("".join(walk.text).split()),
        canonical=_join(base, walk.canonical) if walk.canonical else "",
        language=_line(walk.language)[:64],
        charset=encoding,
        links=links,
        links_dropped=dropped,
        refresh="" if refresh == _without_fragment(url) else refresh,
        refresh_seconds=walk.refresh_seconds,
        robots=walk.robots,
        reduced=reduced,
    )


def tree_of(markup: bytes) -> LexborHTMLParser:
    """The tree of UTF-8 markup; what is not UTF-8 in it reads as U+FFFD. Scripts do not run, so noscript is markup."""
    return LexborHTMLParser(markup, options=_NO_EVENTS)


class _Walk:
    """One pass over all nodes in document order, which gathers everything at once.

    Asking the tree with a selector for each thing costs as much again, and joins words of neighbouring blocks or
    splits those of inline elements.
    """

    def __init__(self, token: str) -> None:
        self.token = token
        self.title = self.description = self.canonical = self.language = self.refresh = ""
        self.base: str = ""
        self.refresh_seconds = 0
        self.robots = NONE
        self.text: list[str] = []
        # href -> rel of the element; kind and href of links in their order
        self.hrefs: dict[tuple[str, str], str] = {}
        self.dropped = 0
        self._titled = self._refreshed = False

    def over(self, tree: LexborHTMLParser) -> None:
        root = tree.root
        if root is None:
            return
        text, stops = self.text, _STOPS
        silent_until = 0  # Inside an element whose text nobody reads: the node that comes after it.
        silent = quiet_in_noscript = False
        joint = False  # A block began since the last text.
        for node in root.traverse(include_text=True, skip_empty=False):
            kind = node.tag_id
            if silent and node.mem_id == silent_until:
                silent = quiet_in_noscript = False
            if kind == _TEXT:
                if silent:
                    continue
                piece = node.text_content
                if not piece:
                    continue
                if not joint and text and not text[-1][-1].isspace() and not piece[0].isspace() and _parted(node):
                    text.append(" ")
                text.append(piece)
                joint = False
            elif kind in stops:
                if kind in _BLOCK_IDS and not joint:
                    text.append(" ")
                    joint = True
                if kind in _READ_IDS:
                    self._read(node, kind, quiet_in_noscript)
                if kind in _SILENT_IDS and not silent:
                    after = _after(node)
                    silent = True
                    silent_until = after.mem_id if after is not None else 0
                    quiet_in_noscript = kind == _NOSCRIPT

    def _read(self, node: LexborNode, kind: int, in_noscript: bool) -> None:
        if kind == _TITLE:
            parent = node.parent
            # The first title of the page; one inside a drawing is the drawing's.
            if not self._titled and (parent is None or parent.tag_id != _SVG):
                self.title, self._titled = node.text(), True
            return
        attributes = node.attributes
        if kind in _HREFS:
            href = attributes.get("href")
            if href is not None:
                self._link(_HREFS[kind], href, attributes.get("rel") or "")
        elif kind in _SOURCES:
            source = attributes.get("src")
            if source:
                self._link(_SOURCES[kind], source, "")
        elif kind == _LINK:
            self._relation(attributes)
        elif kind == _META:
            self._meta(attributes, in_noscript)
        elif kind == _BASE:
            if not self.base:
                self.base = attributes.get("href") or ""
        elif kind == _HTML and not self.language:
            self.language = attributes.get("lang") or ""

    def _link(self, kind: str, href: str, rel: str) -> None:
        key = (kind, href.partition("#")[0])
        known = self.hrefs.get(key)
        if known is None:
            if len(self.hrefs) >= MAX_LINKS or len(href) > MAX_URL_BYTES:
                self.dropped += 1
            else:
                self.hrefs[key] = rel
        elif known and "nofollow" in known.lower().split() and "nofollow" not in rel.lower().split():
            # Linked twice, once without nofollow: that link is an invitation of its own.
            self.hrefs[key] = rel

    def _relation(self, attributes: dict[str, str | None]) -> None:
        href, rel = attributes.get("href"), attributes.get("rel")
        if not href or not rel:
            return
        tokens = rel.lower().split()
        if "canonical" in tokens and not self.canonical and len(href) <= MAX_URL_BYTES:
            self.canonical = href
        # Alternates are pages in another language or form; `alternate stylesheet` is none.
        if "stylesheet" in tokens:
            return
        for relation in LINK_RELATIONS:
            if relation in tokens:
                self._link(relation, href, rel)

    def _meta(self, attributes: dict[str, str | None], in_noscript: bool) -> None:
        content = attributes.get("content")
        if content is None:
            return
        name = attributes.get("name")
        if name:
            name = name.strip().lower()
            if name == "description":
                self.description = self.description or content
            else:
                self.robots |= from_meta(name, content, self.token)
            return
        pragma = (attributes.get("http-equiv") or "").strip().lower()
        # The refresh of a noscript sends readers without scripts to a poorer page: it is not followed.
        if pragma == "refresh" and not in_noscript and not self._refreshed:
            asked = refresh_of(content)
            if asked is not None:
                self._refreshed = True
                self.refresh_seconds, self.refresh = asked
        elif pragma == "content-language" and not self.language and "," not in content:
            self.language = content.strip().partition(" ")[0]


def _after(node: LexborNode | None) -> LexborNode | None:
    """The node after this one and all it holds, in document order."""
    while node is not None:
        following = node.next
        if following is not None:
            return following
        node = node.parent
    return None


def _parted(node: LexborNode) -> bool:
    """Does a block end right before this text? Where one begins, the walk has seen it."""
    here: LexborNode | None = node
    for _ in range(_CLIMB):
        if here is None:
            return False
        before = here.prev
        if before is not None:
            return before.tag_id in _BLOCK_IDS
        here = here.parent
    return False


def _links(
    walk: _Walk, url: str, base: str, encoding: str, follow: frozenset[str]
) -> tuple[tuple[Link, ...], int]:
    """Resolve what the walk found: each URL once, at its first place, with nofollow only if all its links have it."""
    found: dict[str, Link] = {}
    legacy = encoding != "utf-8" and not encoding.startswith("utf-16")
    own = url if base is url else ""
    dropped = walk.dropped
    for (kind, href), rel in walk.hrefs.items():
        # An empty link is one to the page itself, unless a base says otherwise.
        if kind not in follow or (not href and own):
            continue
        target = _join(base, _in_page_encoding(href, encoding) if legacy and not href.isascii() else href)
        if not target:
            continue
        link = Link(target, kind, tuple(dict.fromkeys(rel.lower().split())) if rel else ())
        known = found.get(target)
        if known is None or (known.nofollow and not link.nofollow):
            found[target] = link
    return tuple(found.values()), dropped


def _join(base: str, href: str) -> str:
    """The canonical URL of a link, '' for what is not visited. The parser's own spelling is the canonical one."""
    if len(href) > MAX_URL_BYTES or href[:11].lower().startswith(_NOT_VISITED):
        return ""
    try:
        joined = _without_fragment(ada_url.join_url(base, href))
    except (ValueError, UnicodeError):
        return ""
    return joined if joined.startswith(_SCHEMES) and len(joined) <= MAX_URL_BYTES else ""


def _without_fragment(url: str) -> str:
    return url.partition("#")[0]


def _in_page_encoding(href: str, encoding: str) -> str:
    """Queries are written in the encoding of their page: the server that gave the page expects them so."""
    path, mark, query = href.partition("?")
    codec = CODECS.get(encoding)
    if not mark or codec is None or query.isascii():
        return href
    # What the encoding lacks is written as a numeric reference, percent-encoded: so do browsers.
    parts = (
        character if character.isascii() else quote_from_bytes(character.encode(codec, "xmlcharrefreplace"), safe="")
        for character in query
    )
    return path + mark + "".join(parts)


def _line(text: str) -> str:
    return " ".join(text[: 4 * MAX_LINE].split())[:MAX_LINE]
