"""What callers may pass: numbers in a range, names of plain characters. The rest is InvalidLimit, by name and value."""

from __future__ import annotations

import re

from shoal.errors import InvalidLimit

WIDEST = 2**53
_ID = re.compile(r"[A-Za-z0-9_.:@-]{1,128}\Z")
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}\Z")
_SPIDER = re.compile(r"[A-Za-z0-9_.:-]{0,64}\Z")
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
    return _plain("A crawl's id", value, _ID, "1 to 128 letters, digits and . _ : @ -")


def worker(value: str) -> str:
    return _plain("A worker's name", value, _NAME, "1 to 64 letters, digits and . _ @ -")


def spider(value: str) -> str:
    return _plain("spider", value, _SPIDER, "up to 64 letters, digits and . _ : -")


def namespace(value: str) -> str:
    return _plain("The namespace", value, _NAMESPACE, "1 to 16 lower-case letters, digits and _ -")


def milliseconds(name: str, seconds: float, most: float = 10**10) -> int:
    return round(number(name, seconds, 0, most) * 1000)


def _plain(what: str, value: str, pattern: re.Pattern[str], use: str) -> str:
    if not isinstance(value, str) or not pattern.match(value):
        shown = repr(value)
        raise InvalidLimit(f"{what} is {shown if len(shown) < 100 else shown[:97] + '...'}: use {use}.")
    return value
