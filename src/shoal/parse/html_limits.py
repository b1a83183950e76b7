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

# Tags of one page: more are cut off. A million links took 516 MB, so this is about 200 MB.
MAX_TAGS = 400_000
MAX_DEPTH = 2_000
# Copies of formatting elements that may be made, each a node: with lexbor 430 bytes and 280 ns.
MAX_COPIES = 1_000_000
# So few tags cannot cost much, whatever they are: half of them formatting, copied by the other half, make a million
# copies; all of them nested take 7 ms.
_FEW = 2_000
# Up to here a page is cleared by the number of its end tags. End tags of nothing can deceive it: at worst, 16,000 tags
# are nested in each other, which takes 0.4 s, or make 16 million copies, which a worker may not survive. To look closer
# from 5,000 on would leave a tenth of that and cost a twelfth of the whole reading of a large page.
_MANY = 16_000
_UNCLOSED = 1_000
# Beyond that a page is cleared by what its tags can do at most. Honest pages come near it: the contents of a manual
# have 100,000 tags, with ten kinds of formatting.
_CLEARED_COPIES = 3_000_000
# Honest pages have text and links between their tags: of 28,000 pages of documentation 112 have so many tags, and all
# of them 16 bytes or more for each. What is padded to look like that is left to the limits of the process.
_AIRY = 12
# Start tags times tags: how many steps lexbor may take to look for the element that a tag closes, 2.5 ns each.
_STEPS = 600_000_000
# The same for the look at single tags here, which is slower.
_LOOKS = 2_000_000
_WINDOW = 32_768
# Attributes need something between them; base64 in a data: URL has a slash in 64 characters, 512 in a window.
_SEPARATORS = b" \t\n\f\r/\"'"
_DENSE = 2_000
# How many scripts of a page are looked at: each costs about as much as to parse the page.
_TRIALS = 4
_TRIAL_TAG = b"<trial>"
_SCRIPT_TAG = re.compile(rb"<(?:script|style)\b", re.IGNORECASE)
_SCRIPT_END = re.compile(rb"</(?:script|style)", re.IGNORECASE)

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
# Start tags of the above, whole where their end is beyond doubt. Without IGNORECASE it takes a fifth less.
_FORMATTED = re.compile(
    rb"<[bcefinstuBCEFINSTU](?:[iI][gG]|[oO](?:[dD][eE]|[nN][tT]|[bB][rR])|[mM][aA][lL][lL]|[mM]"
    rb"|[tT][rR](?:[iI][kK][eE]|[oO][nN][gG])|[tT])?+(?:>|(?=[\s/])"
    rb"(?:(?:[\s/]++[^\s\"'<>=/]++(?:\s*+=\s*+(?:\"[^\"<]*+\"|'[^'<]*+'|[^\s\"'<>=`]++))?+)*+[\s/]*+>)?+)"
)
_TOKEN = re.compile(rb"<(?:(/?)([a-zA-Z][a-zA-Z0-9:-]*+)|!--)")
# Without end tags, or closed by their own kind or by their parent's end: they do not add to the depth by themselves.
_SHALLOW = frozenset(
    b"area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr "
    b"a p li dt dd tr td th thead tbody tfoot colgroup caption option optgroup html head body".split()
)
# End tags do not reach past these, and those of inline elements not past blocks.
_WALLS = frozenset(b"applet marquee object table template foreignobject desc mi mo mn ms mtext annotation-xml".split())
_BLOCKS = frozenset(
    b"address article aside blockquote button center details dir div dl fieldset figcaption figure footer form h1 h2 "
    b"h3 h4 h5 h6 header hgroup listing main menu nav ol pre search section select summary ul".split()
)
# Their content is text: end tags in it are none.
_RAW = frozenset(b"iframe noembed noframes script style textarea title xmp".split())


def tame(markup: bytes, *, page: bytes | None = None) -> tuple[bytes, bool, int]:
    """The markup as it may be parsed, whether something was taken away, and how many links were cut off.

    `page` is the whole page, if tags were removed from the markup: without them, text looks like attributes.
    """
    tags = markup.count(b"<")
    cut, lost = tags > MAX_TAGS, 0
    if cut:
        end = _place_of(markup, MAX_TAGS)
        lost = markup.count(b"<a ", end)
        markup, tags = markup[:end], MAX_TAGS
    page = markup if page is None else page
    if (tags > _FEW and _suspect(markup, tags) and _costly(markup)) or (len(page) > _WINDOW and _crowded(page)):
        return _FLAT.sub(_flattened, escape_values(markup)), True, lost
    return markup, cut, lost


def _flattened(tag: re.Match[bytes]) -> bytes:
    # An inline element may stand within a word.
    return tag[1] or (b"\f" if separates(tag[0]) else b"" if len(tag[0]) > 1 else b" ")


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


def _suspect(body: bytes, tags: int) -> bool:
    """Counts do not clear the page: its tags have to be followed one by one."""
    ends = body.count(b"</")
    starts = tags - ends
    if starts - ends > _UNCLOSED:
        return True
    if tags <= _MANY or len(body) > _AIRY * tags:
        return False
    # Links and items do not nest without something else between them, so there is at most one of each for one of those.
    if starts * tags > _STEPS and 3 * (starts - body.count(b"<a ") - body.count(b"<li>")) * tags > _STEPS:
        return True
    # Of formatting elements with the same attributes no more than three stay open: so says HTML, and lexbor does.
    kinds = set(_FORMATTED.findall(body))
    return 3 * len(kinds) * tags > _CLEARED_COPIES or any(kind[-1:] != b">" for kind in kinds)


def _costly(body: bytes) -> bool:
    """Follow the tags as the tree would: how deep, and how many copies? End tags that may be none close nothing."""
    stack: list[bytes] = []
    active: list[tuple[bytes, int]] = []  # Formatting that continues in later blocks, and the walls around it.
    copies = steps = walls = after = comment_end = 0
    raw = b""  # The element whose content is text: what has to end before other end tags count again.
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
            if name not in _SHALLOW:  # They may be written in capitals.
                stack.append(name)
        else:
            if raw == name:
                raw = b""
            # Without a `>` since the last tag, this one is inside it.
            if raw or start < comment_end or body.find(b">", before, start) < 0:
                continue
            if stack and stack[-1] == name and name not in _FORMATTING and name not in _WALLS:
                stack.pop()
                continue
            formatting = name in _FORMATTING
            if formatting:
                place = next((at for at in range(len(active) - 1, -1, -1) if active[at][0] == name), -1)
                steps += len(active) - place
                if place < 0 or active[place][1] < walls:
                    continue
                del active[place]
            place, looked = _closed(stack, name)
            steps += looked
            if place >= 0:
                end = place + 1 if formatting else len(stack)
                walls -= sum(element in _WALLS for element in stack[place:end]) if walls else 0
                del stack[place:end]
        if len(stack) > MAX_DEPTH or copies > MAX_COPIES or steps > _LOOKS:
            return True
    return copies > MAX_COPIES


def _closed(stack: list[bytes], name: bytes) -> tuple[int, int]:
    """The place of the element that this end tag closes, -1 for none, and how many were looked at."""
    passes_blocks = name in _BLOCKS or name in _WALLS or name in _FORMATTING
    looked = 0
    for element in reversed(stack):
        looked += 1
        if element == name:
            return len(stack) - looked, looked
        if element in _WALLS or (element in _BLOCKS and not passes_blocks):
            break
    return -1, looked


def _crowded(page: bytes) -> bool:
    """A stretch without the end of a tag that may hold thousands of attributes.

    It follows the start of a tag, or a quote: the last `>` may have been inside one. Long text with quotes in it looks
    the same and is made flat for nothing, which changes neither its words nor its links. So do scripts, and those are
    common: one in twelve news pages keeps its data in a script of that length.
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
    """Where the script or style ends whose content starts here; 0 if none does.

    Only the parser knows: the tag may be inside a comment or a value. It reads the page up to here, which has been
    cleared, and a tag more. That tag is text only in such an element.
    """
    if not _SCRIPT_TAG.match(page, page.rfind(b"<", 0, start)):
        return 0
    tree = LexborHTMLParser(page[:start] + _TRIAL_TAG)
    if not any(node.text() == _TRIAL_TAG.decode() for node in tree.css("script,style")):
        return 0
    end = _SCRIPT_END.search(page, start)
    return end.start() if end else len(page)
