"""An HTML page as Shoal sees it: title, description, text, links and robots directives.

Owns the queries on the tree that lexbor builds. Links are compared by their text before they are resolved, because
three in four are repeats. No input from the web raises, and the work is limited: `html_limits.py` flattens costly
markup, and a page has at most MAX_LINKS links; further ones are counted.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import NamedTuple

import msgspec
from selectolax.lexbor import LexborCSSSelector, LexborHTMLParser, LexborNode

from shoal.parse import link_target, text_layout
from shoal.parse.charset import charset, in_utf8
from shoal.parse.html_limits import tame
from shoal.parse.link_target import join
from shoal.parse.meta_refresh import refresh_of
from shoal.parse.robots_meta import NONE, Directives, from_meta
from shoal.urls.canonical import MAX_URL_BYTES

# The links that are followed by default. Other links also lead to the URLs of `canonical` and `alternate`.
FOLLOW = frozenset({"a", "area", "iframe", "frame", "next"})
LINK_RELATIONS = ("next", "canonical", "alternate")
# An alternate of these types is also a link of the kind `feed`.
FEED_TYPES = ("application/rss+xml", "application/atom+xml")
PRODUCT = "shoal"
MAX_LINKS = 100_000
# Titles and descriptions are cut at this length.
MAX_LINE = 2_000

_NO_EVENTS = 1  # There are no listeners for changes of the tree.
# 1,234.50 and 2026-11-17 are one number each, like 7.
_NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*+")
_ABSOLUTE = ("https://", "http://")
# Longer texts are not cached, to save memory.
_REMEMBERED_LENGTH = 200
_new = tuple.__new__

# One query for all elements, because each query walks the whole tree. The selector is shared by all pages: creating one
# takes 40 microseconds.
_FIND = LexborCSSSelector().find  # type: ignore[no-untyped-call]
# Elements that are only used with an attribute are selected by it: each name less saves a thousandth of the whole time.
_SELECTOR = "[href],[content],frame,iframe,noscript,pre,script,style,title"
_A = LexborHTMLParser("<a>").tags("a")[0].tag_id  # Comparing numbers is faster than creating the name.
_ATTRIBUTE = {"a": "href", "area": "href", "frame": "src", "iframe": "src"}
# Elements whose text is not visible.
_SILENT = frozenset({"iframe", "noscript", "script", "style"})
# How many ancestors are checked for a noscript.
_MAX_ANCESTORS = 16


class Link(NamedTuple):
    """A link of a page: its canonical URL, the element or relation it came from, its rel tokens in lower case."""

    url: str
    kind: str
    rel: tuple[str, ...] = ()

    @property
    def nofollow(self) -> bool:
        return "nofollow" in self.rel


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """The content of one page. `links` are in order, each URL once; `links_dropped` counts those beyond the limit.

    `refresh` is the URL to which the page redirects after `refresh_seconds`; '' if it does not redirect.
    `reduced`: the markup was too costly for a tree, and was flattened or truncated.
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
    body: bytes, *, url: str, content_type: str = "", follow: frozenset[str] = FOLLOW, token: str = PRODUCT
) -> Parsed:
    """Read one page that came from `url`. `follow` selects the links to return, `token` is our product token."""
    encoding = charset(body, content_type)
    whole = in_utf8(body, encoding)
    markup, reduced, lost = tame(text_layout.replace_tags(whole), page=whole)
    page = _HtmlReader(token)
    page.read(tree_of(markup))
    base = join(url, page.base) or url if page.base else url
    links = _links(page, url, base, encoding, follow)
    refresh = join(base, page.refresh) if page.refresh else ""
    return Parsed(
        title=_line(page.title),
        description=_line(page.description),
        text=page.text,
        canonical=join(base, page.canonical) if page.canonical else "",
        language=_line(page.language)[:64],
        charset=encoding,
        links=links,
        links_dropped=page.dropped + lost,
        refresh="" if refresh == link_target.without_fragment(url) else refresh,
        refresh_seconds=page.refresh_seconds,
        robots=page.robots,
        reduced=reduced,
    )


def markup_of(body: bytes, content_type: str) -> bytes:
    """A page in UTF-8, flattened if its tree would be too costly."""
    return tame(in_utf8(body, charset(body, content_type)))[0]


def tree_of(markup: bytes) -> LexborHTMLParser:
    """The tree of UTF-8 markup; invalid bytes become U+FFFD. Scripts do not run, so noscript contains markup."""
    return LexborHTMLParser(markup, options=_NO_EVENTS)


class _HtmlReader:
    """Reads the elements of one page, before links are resolved."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.title = self.description = self.canonical = self.language = self.refresh = self.base = self.text = ""
        self.refresh_seconds = 0
        self.robots = NONE
        # kind and href without its fragment -> rel, in the order of the page
        self.hrefs: dict[tuple[str, str], str] = {}
        self.dropped = 0
        self._titled = self._refreshed = False

    def read(self, tree: LexborHTMLParser) -> None:
        root = tree.root
        if root is not None and root.tag == "html":
            self.language = root.attributes.get("lang") or ""
        if root is None:
            return
        silent: list[LexborNode] = []
        preformatted: list[LexborNode] = []
        # The hrefs for which another link changes nothing. Most links are repeats, identical or with another fragment:
        # nothing else is read from them.
        settled: set[str | None] = {None}
        hrefs = self.hrefs
        for node in _FIND(_SELECTOR, root):
            if node.tag_id == _A:
                try:
                    href = node.attrs["href"]
                except KeyError:  # The selector also matches xlink:href, which is another attribute.
                    continue
                if href not in settled and href is not None:
                    address = href.partition("#")[0]
                    # A link within the page does not count, unless a base makes it a link to another page.
                    if address not in settled and (address or not href or self.base):
                        # Reading all attributes is faster than reading one that may be missing.
                        rel = node.attributes.get("rel")
                        key = ("a", address)
                        usual = not rel and address[-1:] > " " and key not in hrefs and len(href) <= MAX_URL_BYTES
                        if usual and len(hrefs) < MAX_LINKS:
                            # Like `_link`, in a third of the time.
                            hrefs[key] = ""
                            settled.add(address)
                        else:
                            settled.add(self._link("a", href, rel))
                continue
            tag = node.tag
            if tag == "pre":
                preformatted.append(node)
                continue
            if tag in _SILENT:
                silent.append(node)
            self._other(tag or "", node)
        # From the last to the first: removing an element also removes the elements inside it.
        for node in reversed(silent):
            node.decompose()
        body = tree.body
        if body is not None:
            self._text(body, preformatted)

    def _text(self, body: LexborNode, preformatted: list[LexborNode]) -> None:
        texts: list[str] = []
        # Inner elements before outer ones, whose text then contains the placeholder of the inner text.
        for node in reversed(preformatted):
            text = text_layout.preformatted_lines(node.text(), texts)
            node.replace_with(text_layout.placeholder(len(texts)))
            texts.append(text)
        self.text = text_layout.lines(body.text(), texts)

    def _other(self, tag: str, node: LexborNode) -> None:
        if tag in ("script", "style", "noscript"):
            return
        if tag == "title":
            parent = node.parent
            # The first title of the page. A title inside an SVG drawing is not the page's.
            if not self._titled and (parent is None or parent.tag != "svg"):
                self.title, self._titled = node.text(), True
            return
        attributes = node.attributes
        if tag == "link":
            self._relation(attributes)
        elif tag == "meta":
            self._meta(node, attributes)
        elif tag == "base":
            self.base = self.base or attributes.get("href") or ""
        else:
            target = attributes.get(_ATTRIBUTE[tag]) if tag in _ATTRIBUTE else None
            if target is not None:
                self._link(tag, target, attributes.get("rel"))

    def _link(self, kind: str, href: str, rel: str | None) -> str | None:
        """Record a link. Returns the href of links that can be skipped from now on, None if later ones must be read."""
        address, mark, _ = href.partition("#")
        spaced = address[-1:] <= " " and address != ""
        # A space before the fragment belongs to the URL, a space at the end does not: the `#` in the key tells which.
        key = (kind, address + mark if spaced else address)
        known = self.hrefs.get(key)
        if known is None:
            if len(self.hrefs) >= MAX_LINKS or len(href) > MAX_URL_BYTES:
                self.dropped += 1
                return href
            self.hrefs[key] = rel or ""
        elif known and _nofollow(known) and not _nofollow(rel):
            # Linked twice, once without nofollow: that link may be followed.
            self.hrefs[key] = rel or ""
        return None if spaced or (rel and _nofollow(rel)) else address

    def _relation(self, attributes: dict[str, str | None]) -> None:
        href, rel = attributes.get("href"), attributes.get("rel")
        if not href or not rel:
            return
        canonical, relations = _relations(rel) if len(rel) <= _REMEMBERED_LENGTH else _relations.__wrapped__(rel)
        if canonical and not self.canonical and len(href) <= MAX_URL_BYTES:
            self.canonical = href
        if "alternate" in relations and (attributes.get("type") or "").strip().lower() in FEED_TYPES:
            self._link("feed", href, rel)
        for relation in relations:
            self._link(relation, href, rel)

    def _meta(self, node: LexborNode, attributes: dict[str, str | None]) -> None:
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
        # A refresh in a noscript sends readers without scripts to a simpler page: it is not followed.
        if pragma == "refresh" and not self._refreshed and not _in_noscript(node):
            refresh = refresh_of(content)
            if refresh is not None:
                self._refreshed = True
                self.refresh_seconds, self.refresh = refresh
        elif pragma == "content-language" and not self.language and "," not in content:
            self.language = content.strip().partition(" ")[0]


@lru_cache(maxsize=256)
def _relations(rel: str) -> tuple[bool, tuple[str, ...]]:
    """Whether a link names the canonical URL, and which of LINK_RELATIONS it has."""
    tokens = rel.lower().split()
    # Alternates are pages in another language or format, except for `alternate stylesheet`.
    followed = () if "stylesheet" in tokens else tuple(name for name in LINK_RELATIONS if name in tokens)
    return "canonical" in tokens, followed


def _nofollow(rel: str | None) -> bool:
    return rel is not None and "nofollow" in rel.lower().split()


def _in_noscript(node: LexborNode) -> bool:
    ancestor: LexborNode | None = node.parent
    for _ in range(_MAX_ANCESTORS):
        if ancestor is None:
            return False
        if ancestor.tag == "noscript":
            return True
        ancestor = ancestor.parent
    return False


def _links(page: _HtmlReader, url: str, base: str, encoding: str, follow: frozenset[str]) -> tuple[Link, ...]:
    """Resolve the links of a page: each URL once, in order, with nofollow only if all links to it have it."""
    links: dict[str, Link] = {}
    legacy = encoding != "utf-8" and not encoding.startswith("utf-16")
    own = url if base is url else ""
    root, folders = link_target.folders(base)
    plain, elsewhere = link_target.PLAIN.fullmatch, link_target.elsewhere
    for (kind, href), rel in page.hrefs.items():
        # An empty href links to the page itself, unless the page has another base.
        if kind not in follow or (not href and own):
            continue
        match = plain(href) if root else None
        if match:
            start = match.end(1)
            target = root + href if start == 1 else folders[start // 3] + href[start:]
            if len(target) > MAX_URL_BYTES:
                continue
        elif root and len(href) <= _REMEMBERED_LENGTH and href.startswith(_ABSOLUTE) and href.isascii():
            target = elsewhere(href)
        else:
            target = join(base, link_target.in_page_encoding(href, encoding) if legacy and not href.isascii() else href)
        if not target:
            continue
        known = links.get(target)
        if known is None or (known.nofollow and not _nofollow(rel)):
            # Takes half the time of `Link(...)`.
            links[target] = _new(Link, (target, kind, tuple(dict.fromkeys(rel.lower().split())) if rel else ()))
    return tuple(links.values())


def _line(text: str) -> str:
    return " ".join(text[: 4 * MAX_LINE].split())[:MAX_LINE]


def text_hash(parsed: Parsed, body: bytes, *, numbers: bool = True) -> str:
    """A hash of the title and the text, or of the body if it has no text. A page has changed if its hash has.

    Without `numbers`, all numbers in the title and the text count as equal: dates, times, counters.
    """
    if not parsed.text:
        return hashlib.blake2b(body, digest_size=5).hexdigest()
    title, text = parsed.title, parsed.text
    if not numbers:
        title, text = _NUMBER.sub("0", title), _NUMBER.sub("0", text)
    digest = hashlib.blake2b(f"{title}\n".encode(errors="surrogatepass"), digest_size=5)
    digest.update(text.encode(errors="surrogatepass"))
    return digest.hexdigest()


def looks_like_html(body: bytes) -> bool:
    """Whether a body starts like HTML by the MIME sniffing standard, for responses without a Content-Type."""
    head = body[:512].lstrip(b"\t\n\x0c\r \xef\xbb\xbf").lower()
    return head.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<title", b"<script", b"<!--"))
