"""The encoding of a page, by the rules of the HTML standard, and its decoding.

Owns the order of the evidence (13.2.3.2 of the HTML standard): byte order mark, charset of Content-Type, a declaration
in the first 1024 bytes, a later one in the head, then the bytes themselves: valid UTF-8 is UTF-8, everything else is
windows-1252. Must not know tags except those that the prescan needs; `encodings.py` has the labels.
"""

from __future__ import annotations

import codecs
import re

from shoal.parse.encodings import CODECS, encoding_of

DEFAULT = "windows-1252"
PRESCAN_BYTES = 1024
# How far a head is searched for a late declaration. Browsers search to the end of the head.
HEAD_BYTES = 65536

_MARKS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xfe\xff", "utf-16be"), (b"\xff\xfe", "utf-16le"))
# Encodings in which bytes below 128 may not be ASCII.
_NOT_ASCII = frozenset({"utf-16be", "utf-16le", "iso-2022-jp", "replacement"})
_HEADER = re.compile(r""";\s*charset\s*=\s*(?:"([^"]*)"?|([^;\s"]*))""", re.IGNORECASE)
_TAG = re.compile(rb"</?([a-zA-Z][^\t\n\f\r />]*)")
_GAP = re.compile(rb"[\t\n\f\r /]*")
_NAME = re.compile(rb"=?[^\t\n\f\r />=]*")
_EQUALS = re.compile(rb"[\t\n\f\r ]*=[\t\n\f\r ]*")
_BARE = re.compile(rb"[^\t\n\f\r >]*")
_CONTENT = re.compile(
    rb"""charset[\t\n\f\r ]*=[\t\n\f\r ]*(?:"([^"]*)"|'([^']*)'|([^\t\n\f\r ;"'][^\t\n\f\r ;]*))""", re.I
)
_XML = re.compile(rb"""<\?xml[^>]*?encoding[\x00-\x20]*=[\x00-\x20]*(["'])([^\x00-\x20"'>]+)\1[^>]*>""")

# The start of most pages. The prescan takes fifteen times as long for the same result.
_USUAL = re.compile(
    rb"""[\t\n\f\r ]*(?:<\?xml version="1\.0" encoding="utf-8"(?: standalone="(?:no|yes)")?[\t\n\f\r ]*\?>"""
    rb"""[\t\n\f\r ]*)?(?:<!doctype[^>]*>[\t\n\f\r ]*)?"""
    rb"""(?:<html(?:[\t\n\f\r ]+[a-z:-]+="[^"]*")*[\t\n\f\r ]*>[\t\n\f\r ]*)?(?:<head>[\t\n\f\r ]*)?"""
    rb"""<meta[\t\n\f\r ]+(?:charset="utf-8"|charset=utf-8(?=[\t\n\f\r >])"""
    rb"""|http-equiv="content-type"[\t\n\f\r ]+content="text/html; ?charset=utf-8")[\t\n\f\r ]*/?>""",
    re.IGNORECASE,
)

# Elements whose content is text. The standard's prescan reads it; the search for a late declaration skips it.
_RAW = frozenset({b"script", b"style", b"title", b"textarea", b"noembed", b"noframes", b"xmp"})
# Elements that may be in a head. At any other tag, the search for a late declaration ends.
_HEAD = frozenset(
    {b"html", b"head", b"title", b"meta", b"link", b"base", b"script", b"style", b"noscript", b"bgsound", b"basefont"}
)


def charset(body: bytes, content_type: str = "") -> str:
    """The name of the encoding, in lower case, as the Encoding standard spells it."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return name
    declared = _HEADER.search(content_type)
    if declared:
        name = encoding_of(declared[1] if declared[1] is not None else declared[2])
        if name:
            return name
    if _USUAL.match(body, 0, PRESCAN_BYTES):
        return "utf-8"
    return prescan(body[: 2 * PRESCAN_BYTES], PRESCAN_BYTES) or _guess(body)


def decode(body: bytes, name: str) -> str:
    """The text in one encoding. Invalid bytes become U+FFFD; a byte order mark is not part of the text."""
    for mark, marked in _MARKS:
        if name == marked and body.startswith(mark):
            body = body[len(mark) :]
    codec = CODECS.get(name)
    if codec is None:  # `replacement`: encodings that are dangerous to decode are not decoded.
        return "\ufffd" if body else ""
    try:
        return body.decode(codec, "replace")
    except ValueError:  # Some codecs of Python fail in spite of "replace".
        return body.decode("latin-1")


def in_utf8(body: bytes, name: str) -> bytes:
    """The text in UTF-8. The bytes of a UTF-8 page stay unchanged: the HTML parser replaces invalid ones."""
    if name == "utf-8":
        return body.removeprefix(_MARKS[0][0])
    if name in _NOT_ASCII or not body.isascii():
        return decode(body, name).encode()
    return body


def prescan(head: bytes, limit: int, *, head_only: bool = False) -> str:
    """The encoding that a tag declares which starts before the limit; '' for none.

    With `head_only` the search ends with the head, like that of browsers after the first kilobyte.
    """
    if head.startswith(b"<\0?\0x\0"):
        return "utf-16le"
    if head.startswith(b"\0<\0?\0x"):
        return "utf-16be"
    at, end = 0, len(head)
    while True:
        at = head.find(b"<", at)
        if at < 0 or at >= limit or at + 1 >= end:
            break
        if head.startswith(b"<!--", at):
            # The start and the end of a comment may share their dashes: `<!-->` is a complete comment.
            at = head.find(b"-->", at + 2)
            if at < 0:
                break
            continue
        tag = _TAG.match(head, at)
        if not tag:
            if head[at + 1] in b"!/?":
                at = head.find(b">", at + 1)
                if at < 0:
                    break
            else:
                at += 1
            continue
        name, closing = tag[1].lower(), head[at + 1] == 0x2F
        if head_only and (name not in _HEAD or (closing and name == b"head")):
            break
        attributes, at = _attributes(head, tag.end())
        if at >= end:
            break
        if closing:
            continue
        if name == b"meta":
            encoding = _declared(attributes)
            if encoding:
                return encoding
        elif head_only and name in _RAW:
            at = _after(head, at, name)
    xml = _XML.match(head)
    return _usable(xml[2]) if xml else ""


def _attributes(head: bytes, at: int) -> tuple[dict[bytes, bytes], int]:
    """The attributes of a tag, and the position of its end; the length of `head` if the tag does not end in it."""
    attributes: dict[bytes, bytes] = {}
    end = len(head)
    while True:
        at = _match_end(_GAP, head, at)
        if at >= end:
            return attributes, end
        if head[at] == 0x3E:
            return attributes, at
        stop = _match_end(_NAME, head, at)
        name, value = head[at:stop].lower(), b""
        at = stop
        equals = _EQUALS.match(head, at)
        if equals:
            at = equals.end()
            if at >= end:
                return attributes, end
            if head[at] in b"\"'":
                close = head.find(head[at : at + 1], at + 1)
                if close < 0:
                    return attributes, end
                value, at = head[at + 1 : close], close + 1
            else:
                stop = _match_end(_BARE, head, at)
                value, at = head[at:stop], stop
        attributes.setdefault(name, value)


def _match_end(pattern: re.Pattern[bytes], head: bytes, at: int) -> int:
    match = pattern.match(head, at)
    return match.end() if match else at


def _after(head: bytes, at: int, name: bytes) -> int:
    """The position of the end tag of an element whose content is text."""
    close = re.compile(rb"</" + name + rb"[\t\n\f\r />]", re.IGNORECASE).search(head, at)
    return close.start() if close else len(head)


def _declared(attributes: dict[bytes, bytes]) -> str:
    label = attributes.get(b"charset")
    if label is not None:
        return _usable(label)
    if attributes.get(b"http-equiv", b"").lower() != b"content-type":
        return ""
    match = _CONTENT.search(attributes.get(b"content", b""))
    return _usable(match[1] or match[2] or match[3] or b"") if match else ""


def _usable(label: bytes) -> str:
    text = label.decode("latin-1")
    if "&" in text:
        # Imported here: it loads a table of two thousand entities, and escapes in a charset are very rare.
        import html

        text = html.unescape(text)
    name = encoding_of(text)
    # The declaration was read as ASCII, so it cannot be UTF-16.
    if name in ("utf-16le", "utf-16be"):
        return "utf-8"
    return "windows-1252" if name == "x-user-defined" else name


def _guess(body: bytes) -> str:
    """The encoding of a page without a declaration at its start: by the rest of its head, then by its bytes."""
    late = prescan(body[:HEAD_BYTES], HEAD_BYTES, head_only=True) if len(body) > PRESCAN_BYTES else ""
    if late:
        return late
    if body.isascii():
        return DEFAULT
    try:
        # `final=False`: a body that was cut at the size limit may end inside a character.
        codecs.getincrementaldecoder("utf-8")().decode(body, False)
    except UnicodeDecodeError:
        return DEFAULT
    return "utf-8"
