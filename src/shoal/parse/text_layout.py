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

# Attributes up to the end of the tag; the first two alternatives are the usual ones. The end of a comment ends no tag.
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
# Stands for inline tags until it is known that none of them was inside a value.
_INLINE_MARK = b"\1"
_KINDS = (
    # Up to three tags in a row are one match, which saves a sixth of the time; a repeated group takes twice the time.
    _INLINE + (rb"(?:" + _INLINE) * 2 + rb"|)" * 2,
    # Block tags with nothing but white space between them are one mark.
    _BLOCK + rb"(?:[\s\1]*+" + _BLOCK + rb"(?:[\s\1]*+" + _BLOCK + rb")*+|)",
    _CELL_START,
    _ROW_END,
)
_TAGS = tuple(re.compile(kind) for kind in _KINDS)
# A tag was replaced in a quoted value, of a tag or in a script: one page in fifteen has one. Then such tags are read as
# a whole, and what looks like a tag in a value is none: `<a href="/?q=<b>">`. Quotes count only after an equals sign.
_MARK_IN_VALUE = re.compile(rb"=\s*+(?:\"[^\"\1\f]*+[\1\f]|'[^'\1\f]*+[\1\f])")
_NO_ANGLES_OR_MARKS = bytes(set(range(256)) - set(b"<>\1\f"))
_TAG_WITH_VALUE = re.compile(
    rb"<[a-zA-Z][^\s/<>]*+(?:=\s*+(?:\"[^\"<]*+\"|'[^'<]*+'|(?![\"']))|[^<>=])*+"
    rb"=\s*+(?:\"[^\"<]*+<[^\"]*+\"|'[^'<]*+<[^']*+')(?:=\s*+(?:\"[^\"]*+\"|'[^']*+')?+|[^<>=])*+>"
)
# They take twice the time, so they are for pages with tags in capitals: a page has them everywhere, or in parts of it.
_ANY_CASE_TAGS = tuple(re.compile(kind, re.IGNORECASE) for kind in _KINDS)
_CAPITAL_TAG = re.compile(rb"<[A-Z]")
_SAMPLE_BYTES = 1_024

# Between two marks, white space as no page is indented.
_CELL, _ROW = "\f\t \t\f", "\f \t \f"
_CELL_MARK, _ROW_MARK = _CELL.encode(), _ROW.encode()
# Line ends that are none in HTML, and the space that pages use most beside the usual one.
_SPACES = "\n\xa0\x85\u2028\u2029"
# NUL is in no text of a tree: the parser drops or replaces it.
_PLACE = re.compile(r"\0(\d+)\0")
_LINE_ENDS = re.compile(r"\n*\f[\f\n]*")


def replace_tags(markup: bytes) -> bytes:
    """The markup with marks in place of tags that separate text, without those of inline elements."""
    samples = range(0, len(markup), len(markup) // 4 + 1)
    capitals = any(_CAPITAL_TAG.search(markup, start, start + _SAMPLE_BYTES) for start in samples)
    tags = _ANY_CASE_TAGS if capitals else _TAGS
    if _INLINE_MARK not in markup:
        marked = _marked(markup, tags, _INLINE_MARK)
        if not _has_marked_value(marked):
            return marked.replace(_INLINE_MARK, b"")
    return _marked(escape_values(markup), tags, b"")


def _has_marked_value(marked: bytes) -> bool:
    # Without a mark between `<` and `>`, and without a `>` that ends no tag, no value has one. That clears most pages
    # in half the time that it takes to read all values.
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
    """The tag with character references for the angle brackets in its values: the tree has the same values."""
    inner = tag[0][1:-1]
    return b"<" + inner.replace(b"<", b"&lt;").replace(b">", b"&gt;") + b">"


def separates(tag: bytes) -> bool:
    """Whether this tag separates text."""
    return any(tags.match(tag) for tags in _ANY_CASE_TAGS[1:])


def place(number: int) -> str:
    """What stands in the tree in place of a preformatted text, on lines of its own."""
    return f"\f\0{number}\0\f"


def lines(text: str, preformatted: list[str]) -> str:
    """The text of a tree with marks as lines, without empty ones except in preformatted texts."""
    for character in _SPACES:
        text = text.replace(character, " ")
    # Both marks have a tab in them, which is found fastest.
    if "\t" not in text or (_ROW not in text and _CELL not in text):
        return _filled(_blocks(text), preformatted)
    # The parser drops white space before the body, and with it the mark of a row that begins the page.
    first, *rows = text.split(_ROW)
    laid = ["\t".join([_blocks(cell) for cell in first.split(_CELL)]).rstrip()]
    for row in rows:
        before, *cells = row.split(_CELL)
        laid.append(_blocks(before))
        laid.append("\t".join([_blocks(cell) for cell in cells]).rstrip())
    return _filled("\n".join([line for line in laid if line]), preformatted)


def preformatted_lines(text: str, inner: list[str]) -> str:
    """A preformatted text of a tree with marks, without the empty lines around it; `inner` may have places in it."""
    if "\f" in text:
        text = text.replace(_CELL, "\t").replace(_ROW, "\f")
        text = _LINE_ENDS.sub(lambda run: "\n" * max(1, run[0].count("\n")), text)
    return _filled(text.strip("\n").rstrip(), inner)


def _filled(text: str, preformatted: list[str]) -> str:
    return _PLACE.sub(lambda found: preformatted[int(found[1])], text) if "\0" in text else text


def _blocks(text: str) -> str:
    text = text.strip()
    if "\f" not in text:
        return _line(text)
    # As `_line` does, without a call for each of some 200 blocks.
    return "\n".join(
        [
            " ".join(block.split()) if "  " in block or "\t" in block else block.rstrip()
            for block in map(str.lstrip, text.split("\f"))
            if block
        ]
    )


def _line(text: str) -> str:
    # To look is faster than to split into words, and most texts are a line already.
    return " ".join(text.split()) if "  " in text or "\t" in text else text.rstrip()
