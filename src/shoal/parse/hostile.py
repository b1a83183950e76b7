"""Markup that would cost too much to build a tree of, made flat before it is parsed.

Building a tree by the rules of HTML takes quadratic time in the depth of elements and in the attributes of one tag, and
open formatting elements are copied into every later block: 16 KB of `<font a=1><font a=2>...<p><p>` become a million
nodes. Owns the cheap signs of that and the flattening, which keeps what Shoal reads (links, metas, title) and replaces all
other tags by a space. The signs are a heuristic: they count tags and do not build the tree. What passes them and
still costs a worker its life is found by blame, as every poison page is.
"""

from __future__ import annotations

import re

# Tags of one page: more are cut off. A node takes about 200 bytes, so this is 200 MB at the worst.
MAX_TAGS = 1_000_000
MAX_DEPTH = 2_000
# Copies of formatting elements that may be made, each a node.
MAX_COPIES = 500_000
# More start tags without an end tag than this, or more tags than this, and the page is looked at closely.
_UNCLOSED = 1_000
_MANY = 50_000
_WINDOW = 32_768
# Attributes need something between them; base64 in a data: URL has a slash in 64 characters, 512 in a window.
_SEPARATORS = b" \t\n\f\r/\"'"
_DENSE = 2_000

_TAG = re.compile(rb"<(/?)([a-zA-Z][a-zA-Z0-9:-]*)")
_FLAT = re.compile(
    rb"<(?!/?(?:a|area|base|head|html|iframe|frame|link|meta|noscript|script|style|template|textarea|title)[\t\n\f\r />])"
    rb"/?[a-zA-Z][^<>]*>|<[^<>]{32768,}>?",
    re.IGNORECASE,
)
_FORMATTING = frozenset(b"b big code em font i nobr s small strike strong tt u".split())
# Without end tags, or closed by their own kind or by their parent's end: they do not add to the depth by themselves.
_SHALLOW = frozenset(
    b"area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr "
    b"a p li dt dd tr td th thead tbody tfoot colgroup caption option optgroup html head body".split()
)


def tame(body: bytes) -> tuple[bytes, bool]:
    """The markup as it may be parsed, and whether something was taken away."""
    tags = body.count(b"<")
    cut = tags > MAX_TAGS
    if cut:
        body = body[: _place_of(body, MAX_TAGS)]
        tags = MAX_TAGS
    unclosed = tags - 2 * body.count(b"</")
    if ((unclosed > _UNCLOSED or tags > _MANY) and _costly(body)) or (len(body) > _WINDOW and _crowded(body)):
        return _FLAT.sub(b" ", body), True
    return body, cut


def _place_of(body: bytes, number: int) -> int:
    """Where the tag with this number begins, found by halves."""
    low, high, before = 0, len(body), 0
    while high - low > 1:
        middle = (low + high) // 2
        count = body.count(b"<", low, middle)
        if before + count > number:
            high = middle
        else:
            low, before = middle, before + count
    return low


def _costly(body: bytes) -> bool:
    """Follow the tags as if each end tag closed the last of its name: how deep, and how many copies?"""
    open_of: dict[bytes, int] = {}
    depth = formatting = copies = 0
    for tag in _TAG.finditer(body):
        name = tag[2].lower()
        if tag[1]:
            if open_of.get(name):
                open_of[name] -= 1
                depth -= 1
                formatting -= name in _FORMATTING
            continue
        if name in _FORMATTING:
            formatting += 1
        else:
            copies += formatting
        if name not in _SHALLOW:
            open_of[name] = open_of.get(name, 0) + 1
            depth += 1
        if depth > MAX_DEPTH or copies > MAX_COPIES:
            return True
    return False


def _crowded(body: bytes) -> bool:
    """A stretch of one tag that may hold thousands of attributes."""
    for start in range(0, len(body) - _WINDOW + 1, _WINDOW):
        if body.find(b">", start, start + _WINDOW) >= 0:
            continue
        if _TAG.search(body, body.rfind(b">", 0, start) + 1, start + _WINDOW):
            window = body[start : start + _WINDOW]
            if _WINDOW - len(window.translate(None, _SEPARATORS)) > _DENSE:
                return True
    return False
