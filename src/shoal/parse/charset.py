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
# How far a head is searched for a late declaration. Browsers read on to the end of the head, Shoal to here.
HEAD_BYTES = 65536

_MARKS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xfe\xff", "utf-16be"), (b"\xff\xfe", "utf-16le"))
# In these, bytes below 128 may be something else than ASCII.
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

# How most pages begin. The prescan finds the same in fifteen times the time.
_USUAL = re.compile(
    rb"""[\t\n\f\r ]*(?:<\?xml version="1\.0" encoding="utf-8"(?: standalone="(?:no|yes)")?[\t\n\f\r ]*\?>"""
    rb"""[\t\n\f\r ]*)?(?:<!doctype[^>]*>[\t\n\f\r ]*)?"""
    rb"""(?:<html(?:[\t\n\f\r ]+[a-z:-]+="[^"]*")*[\t\n\f\r ]*>[\t\n\f\r ]*)?(?:<head>[\t\n\f\r ]*)?"""
    rb"""<meta[\t\n\f\r ]+(?:charset="utf-8"|charset=utf-8(?=[\t\n\f\r >])"""
    rb"""|http-equiv="content-type"[\t\n\f\r ]+content="text/html; ?charset=utf-8")[\t\n\f\r ]*/?>""",
    re.IGNORECASE,
)

# Their content is text. The standard's prescan reads on inside; the search for a late declaration does not.
_RAW = frozenset({b"script", b"style", b"title", b"textarea", b"noembed", b"noframes", b"xmp"})
# What may stand in a head: at any other tag the search for a late declaration ends.
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
    if codec is None:  # `replacement`: encodings that are a danger to read are not read.
        return "\ufffd" if body else ""
    try:
        return body.decode(codec, "replace")
    except ValueError:  # A codec of Python that gives up all the same.
        return body.decode("latin-1")


def in_utf8(body: bytes, name: str) -> bytes:
    """The text in UTF-8. The bytes of a UTF-8 page stay as they are: the HTML parser replaces what is wrong in them."""
    if name == "utf-8":
        return body.removeprefix(_MARKS[0][0])
    if name in _NOT_ASCII or not body.isascii():
        return decode(body, name).encode()
    return body


def prescan(head: bytes, limit: int, *, head_only: bool = False) -> str:
    """The declaration in a tag that begins before the limit, '' for none.

    With `head_only` the search ends with the head, as that of browsers does after the first kilobyte.
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
            # The dashes of the opening may be those of the closing: `<!-->` is a whole comment.
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
            found = _declared(attributes)
            if found:
                return found
        elif head_only and name in _RAW:
            at = _after(head, at, name)
    xml = _XML.match(head)
    return _usable(xml[2]) if xml else ""


def _attributes(head: bytes, at: int) -> tuple[dict[bytes, bytes], int]:
    """The attributes of a tag and the place of its end; a place past the end when the bytes run out."""
    found: dict[bytes, bytes] = {}
    end = len(head)
    while True:
        at = _match_end(_GAP, head, at)
        if at >= end:
            return found, end
        if head[at] == 0x3E:
            return found, at
        stop = _match_end(_NAME, head, at)
        name, value = head[at:stop].lower(), b""
        at = stop
        equals = _EQUALS.match(head, at)
        if equals:
            at = equals.end()
            if at >= end:
                return found, end
            if head[at] in b"\"'":
                close = head.find(head[at : at + 1], at + 1)
                if close < 0:
                    return found, end
                value, at = head[at + 1 : close], close + 1
            else:
                stop = _match_end(_BARE, head, at)
                value, at = head[at:stop], stop
        found.setdefault(name, value)


def _match_end(pattern: re.Pattern[bytes], head: bytes, at: int) -> int:
    match = pattern.match(head, at)
    return match.end() if match else at


def _after(head: bytes, at: int, name: bytes) -> int:
    """The end tag of an element whose content is text."""
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
        # Loads a table of two thousand entities, and nobody escapes a charset.
        import html

        text = html.unescape(text)
    name = encoding_of(text)
    # The declaration was read as ASCII, so it cannot be UTF-16.
    if name in ("utf-16le", "utf-16be"):
        return "utf-8"
    return "windows-1252" if name == "x-user-defined" else name


def _guess(body: bytes) -> str:
    """Nothing is declared at the start: check the rest of the head, then the bytes."""
    late = prescan(body[:HEAD_BYTES], HEAD_BYTES, head_only=True) if len(body) > PRESCAN_BYTES else ""
    if late:
        return late
    if body.isascii():
        return DEFAULT
    try:
        # `final=False`: a body cut at the size limit may end within a character.
        codecs.getincrementaldecoder("utf-8")().decode(body, False)
    except UnicodeDecodeError:
        return DEFAULT
    return "utf-8"
