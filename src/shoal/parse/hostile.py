"""Markup that would cost too much to build a tree of, made flat before it is parsed.

Building a tree by the rules of HTML takes quadratic time in the depth of elements and in the attributes of one tag, and
open formatting elements are copied into every later block: 16 KB of `<font a=1><font a=2>...<p><p>` become a million
nodes. Owns the cheap signs of that and the flattening, which keeps what Shoal reads (links, metas, title) and replaces
all other tags by a space. The signs are a heuristic: they count tags and do not build the tree. What passes them and
still costs a worker its life is found by blame, as every poison page is.
"""

from __future__ import annotations

import re

# Tags of one page: more are cut off. A million links took 516 MB, so this is about 200 MB.
MAX_TAGS = 400_000
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
# A tag that is kept, whole in itself: its quotes are closed, its attributes few, no angle bracket inside. Possessive
# quantifiers (++, *+) keep the match linear. Every other `<` goes, so nothing can hide behind a quote.
_FLAT = re.compile(
    rb"(</?(?:a|area|base|head|html|iframe|frame|link|meta|script|style|title)"
    rb"(?:[\s/]++[^\s\"'<>=/]++(?:\s*+=\s*+(?:\"[^\"<>]*+\"|'[^'<>]*+'|[^\s\"'<>]++))?+){0,64}+[\s/]*+>)"
    rb"|<[a-z/!?][^<>]*+>|<",
    re.IGNORECASE,
)
_FORMATTING = frozenset(b"b big code em font i nobr s small strike strong tt u".split())
# Without end tags, or closed by their own kind or by their parent's end: they do not add to the depth by themselves.
_SHALLOW = frozenset(
    b"area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr "
    b"a p li dt dd tr td th thead tbody tfoot colgroup caption option optgroup html head body".split()
)


def tame(body: bytes) -> tuple[bytes, bool, int]:
    """The markup as it may be parsed, whether something was taken away, and how many links were cut off."""
    tags = body.count(b"<")
    cut, lost = tags > MAX_TAGS, 0
    if cut:
        end = _place_of(body, MAX_TAGS)
        lost = body.count(b"<a ", end)
        body, tags = body[:end], MAX_TAGS
    # No more tags can be unclosed than there are: most small pages need no second count.
    odd = tags > _UNCLOSED and (tags > _MANY or tags - 2 * body.count(b"</") > _UNCLOSED)
    if (odd and _costly(body)) or (len(body) > _WINDOW and _crowded(body)):
        return _FLAT.sub(lambda tag: tag[1] or b" ", body), True, lost
    return body, cut, lost


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
    """A stretch without the end of a tag that may hold thousands of attributes.

    It follows the start of a tag, or a quote: the last `>` may have been inside one. Long text with quotes in it looks
    the same and is made flat for nothing, which changes neither its words nor its links.
    """
    for start in range(0, len(body) - _WINDOW + 1, _WINDOW):
        end = start + _WINDOW
        if body.find(b">", start, end) >= 0:
            continue
        window = body[start:end]
        if _WINDOW - len(window.translate(None, _SEPARATORS)) > _DENSE:
            opened = body.rfind(b">", 0, start) + 1
            if body.find(b'"', opened, end) >= 0 or body.find(b"'", opened, end) >= 0 or _TAG.search(body, opened, end):
                return True
    return False
