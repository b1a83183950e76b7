"""Checks of values from callers: numbers in a range, names of plain characters, headers.

An invalid value raises InvalidLimit with its name and value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from shoal.errors import InvalidLimit

# Larger whole numbers are not exact in Lua and JSON.
WIDEST = 2**53
Count = Annotated[int, Meta(ge=0, le=WIDEST)]
# Not . and .., which clients and browsers remove from a path.
ID_PATTERN = r"^(?!\.{1,2}$)[A-Za-z0-9_.:@-]{1,128}$"
_ID = re.compile(ID_PATTERN.replace("$", r"\Z"))
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}\Z")
_SPIDER = re.compile(r"[A-Za-z0-9_.:-]{0,64}\Z")
# RFC 9110 5.1: a name is a token.
HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# Headers that decide where a request ends, which connection it uses and which host it is for. With them, a request
# could swallow the next one on its connection, or evade the rules of its host.
REFUSED_HEADERS = frozenset({
    "connection", "content-length", "expect", "host", "http2-settings", "keep-alive", "proxy-authenticate",
    "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
# Headers that carry a password, a token or a session.
CREDENTIAL_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization"})
_METHOD = re.compile(r"[A-Z][A-Z0-9_-]{0,31}")
# They open a tunnel, or return the headers of a request with its credentials.
_REFUSED_METHODS = frozenset({"CONNECT", "TRACE"})
# RFC 6265 4.1.1: the characters of a cookie's value; a space and a comma are common, too.
_COOKIE_VALUE = re.compile(r"[ !-:<-~\x80-\U0010ffff]*")
# The store keeps the arguments of a spider with its crawl, and every worker reads them.
_MOST_ARGUMENTS = 20_000
_NAMESPACE = re.compile(r"[a-z0-9_-]{1,16}\Z")


def number(name: str, value: float, least: float, most: float) -> float:
    # `not a <= b` also refuses nan.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise InvalidLimit(f"{name} is {value!r}: it must be a number from {least:g} to {most:g}.")
    return value


def whole(name: str, value: int, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidLimit(f"{name} is {value!r}: it must be a whole number from {least} to {most}.")
    return value


def crawl_id(value: str) -> str:
    return _plain("A crawl's id", value, _ID, "1 to 128 letters, digits and . _ : @ -, not only dots")


def worker(value: str) -> str:
    return _plain("A worker's name", value, _NAME, "1 to 64 letters, digits and . _ @ -")


def spider(value: str) -> str:
    return _plain("spider", value, _SPIDER, "up to 64 letters, digits and . _ : -")


def arguments(given: Mapping[str, str]) -> Mapping[str, str]:
    """Arguments of a spider: names that attributes can have."""
    for name in given:
        if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
            raise InvalidLimit(f"Invalid argument {name!r:.80} of the spider: use a name such as category.")
    if sum(len(name) + len(value) for name, value in given.items()) > _MOST_ARGUMENTS:
        raise InvalidLimit(f"The arguments of the spider are too long: the limit is {_MOST_ARGUMENTS:,} characters.")
    return given


def namespace(value: str) -> str:
    return _plain("The namespace", value, _NAMESPACE, "1 to 16 lower-case letters, digits and _ -")


def headers(given: Mapping[str, str]) -> Mapping[str, str]:
    """Headers of a request besides those that Shoal sets itself."""
    names = set()
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str) or not HEADER_NAME.fullmatch(name):
            raise InvalidLimit(f"Invalid header name {name!r:.80}: use letters, digits and -.")
        if name.lower() in REFUSED_HEADERS:
            raise InvalidLimit(f"The header {name!r} is not allowed: Shoal sets it for each connection.")
        if name.lower() == "user-agent":
            raise InvalidLimit(
                "The header 'User-Agent' is not allowed: use user_agent, which also selects the rules of robots.txt."
            )
        if name.lower() in names:
            raise InvalidLimit(f"The header {name!r:.80} is given twice.")
        names.add(name.lower())
        header_value(f"The header {name!r:.80}", value)
    return given


def method(value: str) -> str:
    """The method of a request: one word in capitals."""
    if not _METHOD.fullmatch(value) or value in _REFUSED_METHODS:
        raise InvalidLimit(f"The method {value!r:.60} is not allowed: use e.g. GET, POST or PUT.")
    return value


def cookie(name: str, value: str) -> None:
    """A cookie as a request sends it."""
    if not HEADER_NAME.fullmatch(name):
        raise InvalidLimit(f"Invalid cookie name {name!r:.80}: use letters, digits and - _.")
    if not _COOKIE_VALUE.fullmatch(value):
        raise InvalidLimit(f"The value of the cookie {name!r:.80} has a semicolon or a control character.")


def header_value(what: str, value: str) -> str:
    # A line break would let a value add another header.
    if any(character in value for character in "\r\n\0"):
        raise InvalidLimit(f"{what} contains a line break or NUL; a header is one line.")
    return value


def milliseconds(name: str, seconds: float, most: float = 10**10) -> int:
    return round(number(name, seconds, 0, most) * 1000)


def _plain(what: str, value: str, pattern: re.Pattern[str], use: str) -> str:
    if not isinstance(value, str) or not pattern.match(value):
        shown = repr(value)
        raise InvalidLimit(f"{what} is {shown if len(shown) < 100 else shown[:97] + '...'}: use {use}.")
    return value
