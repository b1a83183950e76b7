"""Flattens markup whose tree would be too costly, before it is parsed.

Building a tree by the rules of HTML takes quadratic time in the depth of elements and in the attributes of one tag, and
open formatting elements are copied into every later block: 16 KB of `<font a=1><font a=2>...<p><p>` become a million
nodes. Owns the cheap checks for this and the flattening, which keeps what Shoal reads (links, metas, title) and
replaces all other tags with white space or nothing. For most pages, counting the tags is enough. If a page passes the
checks and still crashes its worker, the crash marker identifies it, like every poison page.
"""

from __future__ import annotations

import re

from selectolax.lexbor import LexborHTMLParser

from shoal.parse.text_layout import escape_values, separates

# The page is cut after this number of tags. A million links took 516 MB, so this is about 200 MB.
MAX_TAGS = 400_000
MAX_DEPTH = 2_000
# How many copies of formatting elements the parser may make. Each is a node: in lexbor 430 bytes and 280 ns.
MAX_COPIES = 1_000_000
# A page with at most this many tags cannot cost much, whatever they are: if half of them are formatting elements that
# the other half copies, there are a million copies; if all are nested, they take 7 ms.
_FEW = 2_000
# Up to this number of tags, a page passes if it has enough end tags. End tags that close no element can deceive this
# check: at worst, 16,000 tags are nested in each other, which takes 0.4 s, or make 16 million copies, which a worker
# may not survive. A closer check from 5,000 tags on would leave a tenth of that, and would take a twelfth of the time
# to parse a large page.
_MANY = 16_000
_UNCLOSED = 1_000
# With more tags, a page passes if its tags cannot cause more copies than this. Genuine pages come near it: the contents
# of a manual have 100,000 tags, with ten kinds of formatting.
_CLEARED_COPIES = 3_000_000
# A page with more bytes per tag than this passes. Genuine pages have text and links between their tags: of 28,000 pages
# of documentation 112 have that many tags, and all of these have 16 bytes or more per tag. A page that is padded to
# look like that is left to the limits of the process.
_SPARSE_BYTES_PER_TAG = 12
# Start tags times tags: how many steps lexbor may take to search for the elements that tags close, 2.5 ns each.
_STEPS = 600_000_000
# The same limit for the search in `_costly`, which is slower.
_SEARCH_STEPS = 2_000_000
_WINDOW = 32_768
# Characters that separate attributes. Base64 in a data: URL has one slash per 64 characters, so 512 in a window.
_SEPARATORS = b" \t\n\f\r/\"'"
_DENSE = 2_000
# How many scripts of a page are checked: each check costs about as much as parsing the page.
_TRIALS = 4
_TRIAL_TAG = b"<trial>"
_SCRIPT_TAG = re.compile(rb"<(?:script|style)\b", re.IGNORECASE)
_SCRIPT_END = re.compile(rb"</(?:script|style)", re.IGNORECASE)

_TAG = re.compile(rb"<(/?)([a-zA-Z][a-zA-Z0-9:-]*)")
# A tag that is kept must be complete: its quotes are closed, it has few attributes and no angle bracket inside.
# Possessive quantifiers (++, *+) keep the match linear. Every other `<` is removed, so a quote cannot hide a tag.
_FLAT = re.compile(
    rb"(</?(?:a|area|base|head|html|iframe|frame|link|meta|script|style|title)"
    rb"(?:[\s/]++[^\s\"'<>=/]++(?:\s*+=\s*+(?:\"[^\"<>]*+\"|'[^'<>]*+'|[^\s\"'<>]++))?+){0,64}+[\s/]*+>)"
    rb"|<[a-z/!?][^<>]*+>|<",
    re.IGNORECASE,
)
_FORMATTING = frozenset(b"b big code em font i nobr s small strike strong tt u".split())
# Start tags of these elements, as a whole if their end is unambiguous. Without IGNORECASE, a match takes a fifth less
# time.
_FORMATTED = re.compile(
    rb"<[bcefinstuBCEFINSTU](?:[iI][gG]|[oO](?:[dD][eE]|[nN][tT]|[bB][rR])|[mM][aA][lL][lL]|[mM]"
    rb"|[tT][rR](?:[iI][kK][eE]|[oO][nN][gG])|[tT])?+(?:>|(?=[\s/])"
    rb"(?:(?:[\s/]++[^\s\"'<>=/]++(?:\s*+=\s*+(?:\"[^\"<]*+\"|'[^'<]*+'|[^\s\"'<>=`]++))?+)*+[\s/]*+>)?+)"
)
_TOKEN = re.compile(rb"<(?:(/?)([a-zA-Z][a-zA-Z0-9:-]*+)|!--)")
# Elements without an end tag, or closed by the next element of their kind or by the end of their parent. They alone do
# not increase the depth.
_SHALLOW = frozenset(
    b"area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr "
    b"a p li dt dd tr td th thead tbody tfoot colgroup caption option optgroup html head body".split()
)
# An end tag does not close elements outside of these. An end tag of an inline element does not close any outside of a
# block.
_WALLS = frozenset(b"applet marquee object table template foreignobject desc mi mo mn ms mtext annotation-xml".split())
_BLOCKS = frozenset(
    b"address article aside blockquote button center details dir div dl fieldset figcaption figure footer form h1 h2 "
    b"h3 h4 h5 h6 header hgroup listing main menu nav ol pre search section select summary ul".split()
)
# Elements whose content is text, so that it contains no end tags.
_RAW = frozenset(b"iframe noembed noframes script style textarea title xmp".split())


def tame(markup: bytes, *, page: bytes | None = None) -> tuple[bytes, bool, int]:
    """The markup that may be parsed, whether anything was removed, and how many links were cut off.

    `page` is the whole page, if tags were removed from the markup: without them, text looks like attributes.
    """
    tags = markup.count(b"<")
    cut, lost = tags > MAX_TAGS, 0
    if cut:
        end = _tag_start(markup, MAX_TAGS)
        lost = markup.count(b"<a ", end)
        markup, tags = markup[:end], MAX_TAGS
    page = markup if page is None else page
    if (tags > _FEW and _suspect(markup, tags) and _costly(markup)) or (len(page) > _WINDOW and _crowded(page)):
        return _FLAT.sub(_flattened, escape_values(markup)), True, lost
    return markup, cut, lost


def _flattened(tag: re.Match[bytes]) -> bytes:
    # An inline element may be inside a word.
    return tag[1] or (b"\f" if separates(tag[0]) else b"" if len(tag[0]) > 1 else b" ")


def _tag_start(body: bytes, number: int) -> int:
    """The position of the tag with this number, by binary search."""
    low, high, before = 0, len(body), 0
    while high - low > 1:
        middle = (low + high) // 2
        count = body.count(b"<", low, middle)
        if before + count > number:
            high = middle
        else:
            low, before = middle, before + count
    return low


def _suspect(body: bytes, tags: int) -> bool:
    """Whether counts alone cannot show that the page is harmless: then `_costly` follows its tags one by one."""
    ends = body.count(b"</")
    starts = tags - ends
    if starts - ends > _UNCLOSED:
        return True
    if tags <= _MANY or len(body) > _SPARSE_BYTES_PER_TAG * tags:
        return False
    # Links and list items nest only with other elements between them, so each other element adds at most one of each.
    if starts * tags > _STEPS and 3 * (starts - body.count(b"<a ") - body.count(b"<li>")) * tags > _STEPS:
        return True
    # By the HTML standard, and in lexbor, at most three formatting elements with the same attributes stay open.
    kinds = set(_FORMATTED.findall(body))
    return 3 * len(kinds) * tags > _CLEARED_COPIES or any(kind[-1:] != b">" for kind in kinds)


def _costly(body: bytes) -> bool:
    """Whether the tree would be too deep or have too many copies. Follows the tags as the parser does.

    An end tag that may be text closes no element.
    """
    stack: list[bytes] = []
    # Formatting elements that continue in later blocks, each with the number of walls around it.
    active: list[tuple[bytes, int]] = []
    copies = steps = walls = after = comment_end = 0
    raw = b""  # The open element whose content is text: until it ends, no other end tag counts.
    for token in _TOKEN.finditer(body):
        slash, name = token.groups()
        if name in _SHALLOW:
            copies += len(active)
            after = token.end()
            continue
        before, after = after, token.end()
        start = token.start()
        if name is None:
            if start >= comment_end:
                comment_end = body.find(b"-->", start) % (len(body) + 1)
            continue
        if not name.islower():
            name = name.lower()
        if not slash:
            if name in _FORMATTING:
                active.append((name, walls))
            else:
                copies += len(active)
                if name in _WALLS:
                    walls += 1
                elif name in _RAW:
                    raw = raw or name
            if name not in _SHALLOW:  # Checked again: the name may have been in capitals.
                stack.append(name)
        else:
            if raw == name:
                raw = b""
            # Without a `>` since the previous tag, this tag is inside it.
            if raw or start < comment_end or body.find(b">", before, start) < 0:
                continue
            if stack and stack[-1] == name and name not in _FORMATTING and name not in _WALLS:
                stack.pop()
                continue
            formatting = name in _FORMATTING
            if formatting:
                index = next((at for at in range(len(active) - 1, -1, -1) if active[at][0] == name), -1)
                steps += len(active) - index
                if index < 0 or active[index][1] < walls:
                    continue
                del active[index]
            index, checked = _closed(stack, name)
            steps += checked
            if index >= 0:
                end = index + 1 if formatting else len(stack)
                walls -= sum(element in _WALLS for element in stack[index:end]) if walls else 0
                del stack[index:end]
        if len(stack) > MAX_DEPTH or copies > MAX_COPIES or steps > _SEARCH_STEPS:
            return True
    return copies > MAX_COPIES


def _closed(stack: list[bytes], name: bytes) -> tuple[int, int]:
    """The index of the element that this end tag closes, -1 for none, and how many elements were checked."""
    passes_blocks = name in _BLOCKS or name in _WALLS or name in _FORMATTING
    checked = 0
    for element in reversed(stack):
        checked += 1
        if element == name:
            return len(stack) - checked, checked
        if element in _WALLS or (element in _BLOCKS and not passes_blocks):
            break
    return -1, checked


def _crowded(page: bytes) -> bool:
    """Whether the page has a long range without the end of a tag, which may contain thousands of attributes.

    Such a range follows the start of a tag, or a quote: the last `>` may have been inside quotes. Long text with quotes
    looks the same and is flattened needlessly, which changes neither its words nor its links. Scripts look the same,
    too, and are common: one in twelve news pages has its data in a script of that length.
    """
    script_end = trials = 0
    for start in range(0, len(page) - _WINDOW + 1, _WINDOW):
        end = start + _WINDOW
        if end <= script_end or page.find(b">", start, end) >= 0:
            continue
        window = page[start:end]
        if _WINDOW - len(window.translate(None, _SEPARATORS)) > _DENSE:
            opened = page.rfind(b">", 0, start) + 1
            if trials < _TRIALS and opened > script_end:
                trials += 1
                script_end = _end_of_script(page, opened)
                if end <= script_end:
                    continue
            if page.find(b'"', opened, end) >= 0 or page.find(b"'", opened, end) >= 0 or _TAG.search(page, opened, end):
                return True
    return False


def _end_of_script(page: bytes, start: int) -> int:
    """The end of the script or style whose content starts at `start`; 0 if none starts there.

    Only the parser knows: the tag may be inside a comment or a value. It parses the page up to `start`, a part that has
    passed the checks, followed by one more tag. That tag is text only inside a script or style.
    """
    if not _SCRIPT_TAG.match(page, page.rfind(b"<", 0, start)):
        return 0
    tree = LexborHTMLParser(page[:start] + _TRIAL_TAG)
    if not any(node.text() == _TRIAL_TAG.decode() for node in tree.css("script,style")):
        return 0
    end = _SCRIPT_END.search(page, start)
    return end.start() if end else len(page)
