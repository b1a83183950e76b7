"""The readable text of a page, in the lines that a reader sees.

Owns which tags separate text, and how text becomes lines: a block has its own lines, a row of a table is one line with
tabs between its cells, preformatted text keeps its lines and spaces. Nothing else separates text, so an inline element
never splits a word. Must not build or query trees.

To find line breaks in a tree, every node would have to be visited, which costs more than building the tree. So tags
that only affect layout are replaced in the markup, with a mark or with nothing. The tree of the remaining markup takes
a third of the time to build, and returns its whole text in one call. The mark is a form feed: white space that creates
and moves no element, and that pages do not use. A tag that is not well-formed stays, and marks nothing.
"""

from __future__ import annotations

import re

# The attributes and the end of a tag; the first two alternatives are the most frequent. `-->` does not end a tag.
_REST = (
    rb"(?:>| class=\"[^\"]*+\">"
    rb"|(?:\s++[^\s\"'<>=/-][^\s\"'<>=/]*+(?:\s*+=\s*+(?:\"[^\"<>]*+\"|'[^'<>]*+'|[^\s\"'<>`=]++))?+)*+\s*+/?+(?<!--)(?<!!)>)"
)
_INLINE = (
    rb"</?+(?:span|em|code|strong|[biqsu]|abbr|acronym|b(?:d[io]|ig)|cite|d(?:ata|el|fn)|font|ins|kbd|label|mark|nobr"
    rb"|s(?:amp|mall|trike|u[bp])|t(?:ime|t)|var|wbr)" + _REST
)
_BLOCK = (
    rb"<(?:/?+(?:p|div|li|a(?:ddress|rticle|side)|b(?:lockquote|r)|c(?:aption|enter)|d(?:etails|i(?:alog|r)|[dlt])"
    rb"|f(?:i(?:eldset|g(?:caption|ure))|o(?:oter|rm))|h(?:eader|group|[123456r])|legend|m(?:ain|enu)|nav"
    rb"|o(?:pt(?:group|ion)|l)|s(?:e(?:arch|ction|lect)|ummary)|t(?:body|foot|head)|ul)|table|/t[dhr])" + _REST
)
_CELL_START = rb"<t[dh]" + _REST
_ROW_END = rb"<(?:tr|/table)" + _REST
# Replaces inline tags until it is known that none of them was inside a value.
_INLINE_MARK = b"\1"
_KINDS = (
    # Up to three tags in a row are one match, which saves a sixth of the time. A repeated group takes twice as long.
    _INLINE + (rb"(?:" + _INLINE) * 2 + rb"|)" * 2,
    # Block tags with nothing but white space between them are one mark.
    _BLOCK + rb"(?:[\s\1]*+" + _BLOCK + rb"(?:[\s\1]*+" + _BLOCK + rb")*+|)",
    _CELL_START,
    _ROW_END,
)
_TAGS = tuple(re.compile(kind) for kind in _KINDS)
# A tag was replaced inside a quoted value of a tag or script, as in one page in fifteen. Then tags with values are
# matched as a whole, so that `<b>` in `<a href="/?q=<b>">` does not count as a tag. Quotes count only after an equals
# sign.
_MARK_IN_VALUE = re.compile(rb"=\s*+(?:\"[^\"\1\f]*+[\1\f]|'[^'\1\f]*+[\1\f])")
_NO_ANGLES_OR_MARKS = bytes(set(range(256)) - set(b"<>\1\f"))
_TAG_WITH_VALUE = re.compile(
    rb"<[a-zA-Z][^\s/<>]*+(?:=\s*+(?:\"[^\"<]*+\"|'[^'<]*+'|(?![\"']))|[^<>=])*+"
    rb"=\s*+(?:\"[^\"<]*+<[^\"]*+\"|'[^'<]*+<[^']*+')(?:=\s*+(?:\"[^\"]*+\"|'[^']*+')?+|[^<>=])*+>"
)
# These take twice the time, so they are used only for pages with tags in capitals, anywhere or in parts of the page.
_ANY_CASE_TAGS = tuple(re.compile(kind, re.IGNORECASE) for kind in _KINDS)
_CAPITAL_TAG = re.compile(rb"<[A-Z]")
_SAMPLE_BYTES = 1_024

# White space that no page uses for indentation, between two marks.
_CELL, _ROW = "\f\t \t\f", "\f \t \f"
_CELL_MARK, _ROW_MARK = _CELL.encode(), _ROW.encode()
# Line separators that do not end a line in HTML, and the no-break space, the most frequent space beside the plain one.
_SPACES = "\n\xa0\x85\u2028\u2029"
# Two spaces before the star: only a literal start of two characters makes the search fast.
_SPACE_RUN = re.compile("   *")
# The text of a tree never contains NUL: the parser drops or replaces it.
_PLACEHOLDER = re.compile(r"\0(\d+)\0")
_LINE_ENDS = re.compile(r"\n*\f[\f\n]*")


def replace_tags(markup: bytes) -> bytes:
    """The markup with marks in place of tags that separate text, and without the tags of inline elements."""
    samples = range(0, len(markup), len(markup) // 4 + 1)
    capitals = any(_CAPITAL_TAG.search(markup, start, start + _SAMPLE_BYTES) for start in samples)
    tags = _ANY_CASE_TAGS if capitals else _TAGS
    if _INLINE_MARK not in markup:
        marked = _marked(markup, tags, _INLINE_MARK)
        if not _has_marked_value(marked):
            return marked.replace(_INLINE_MARK, b"")
    return _marked(escape_values(markup), tags, b"")


def _has_marked_value(marked: bytes) -> bool:
    # If no mark is between `<` and `>`, and every `>` ends a tag, no value contains a mark. This check settles most
    # pages in half the time that it takes to read all values.
    angles = marked.translate(None, _NO_ANGLES_OR_MARKS)
    if b"<\1" not in angles and b"<\f" not in angles and b">>" not in angles.translate(None, b"\1\f"):
        return False
    return _MARK_IN_VALUE.search(marked) is not None


def _marked(markup: bytes, tags: tuple[re.Pattern[bytes], ...], inline_mark: bytes) -> bytes:
    inline, block, cell, row = tags
    return row.sub(_ROW_MARK, cell.sub(_CELL_MARK, block.sub(b"\f", inline.sub(inline_mark, markup))))


def escape_values(markup: bytes) -> bytes:
    """The markup without angle brackets in the values of tags."""
    return _TAG_WITH_VALUE.sub(_escaped, markup)


def _escaped(tag: re.Match[bytes]) -> bytes:
    """The tag with character references for the angle brackets in its values, which the tree decodes again."""
    inner = tag[0][1:-1]
    return b"<" + inner.replace(b"<", b"&lt;").replace(b">", b"&gt;") + b">"


def separates(tag: bytes) -> bool:
    """Whether this tag separates text."""
    return any(tags.match(tag) for tags in _ANY_CASE_TAGS[1:])


def placeholder(number: int) -> str:
    """The text that replaces a preformatted text in the tree, on a line of its own."""
    return f"\f\0{number}\0\f"


def lines(text: str, preformatted: list[str]) -> str:
    """The text of a tree with marks as lines, without empty lines except in preformatted texts."""
    for character in _SPACES:
        text = text.replace(character, " ")
    # Both marks contain a tab, which is the fastest to search.
    table = "\t" in text and (_ROW in text or _CELL in text)
    if not table:
        text = text.replace("\t", " ")
    # Faster than splitting the text into words.
    text = _SPACE_RUN.sub(" ", text)
    if not table:
        return _filled(_blocks(text), preformatted)
    # The parser drops white space before the body, and with it the mark of a row at the start of the page.
    first, *rows = text.split(_ROW)
    laid = ["\t".join([_blocks(cell) for cell in first.split(_CELL)]).rstrip()]
    for row in rows:
        before, *cells = row.split(_CELL)
        laid.append(_blocks(before))
        laid.append("\t".join([_blocks(cell) for cell in cells]).rstrip())
    return _filled("\n".join([line for line in laid if line]), preformatted)


def preformatted_lines(text: str, inner: list[str]) -> str:
    """A preformatted text of a tree with marks, without empty lines around it. `inner` fills its placeholders."""
    if "\f" in text:
        text = text.replace(_CELL, "\t").replace(_ROW, "\f")
        text = _LINE_ENDS.sub(lambda run: "\n" * max(1, run[0].count("\n")), text)
    return _filled(text.strip("\n").rstrip(), inner)


def _filled(text: str, preformatted: list[str]) -> str:
    return _PLACEHOLDER.sub(lambda match: preformatted[int(match[1])], text) if "\0" in text else text


def _blocks(text: str) -> str:
    text = text.strip()
    if "\t" in text:
        return "\n".join([line for block in text.split("\f") if (line := " ".join(block.split()))])
    # Most cells of tables are one block.
    if "\f" not in text:
        return text
    return "\n".join([line for line in map(str.strip, text.split("\f")) if line])
