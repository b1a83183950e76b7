"""The name of a robot, as its User-Agent header has it and as robots.txt files address it (RFC 9309 2.2.1)."""

from __future__ import annotations

import re

from shoal.errors import SettingsError

_TOKEN = re.compile(r"[A-Za-z_-]{1,64}\Z")


def check_token(token: str) -> str:
    """A product token has letters, `_` and `-` only (2.2.1). Anything else could never be named in a robots.txt."""
    if not isinstance(token, str) or not _TOKEN.match(token):
        raise SettingsError(
            f"The product token is {str(token)[:80]!r}: use 1 to 64 of the letters A to Z, a to z, _ and - (RFC 9309)."
        )
    return token


# Words that User-Agent headers carry for compatibility. They are not the name of a robot.
_BROWSERS = frozenset((
    "mozilla", "compatible", "applewebkit", "khtml", "like", "gecko", "chrome", "chromium", "safari", "version",
    "mobile", "firefox", "opera", "presto", "trident", "msie", "edge", "edg", "windows", "linux", "macintosh", "iphone",
    "ipad", "android",
))  # fmt: skip
_URL = re.compile(r"\+?https?://[^\s;,)]*", re.I)
_PRODUCT = re.compile(r"(?:compatible;\s*|(?<![\w./-]))([A-Za-z_-]{1,64})(?=/|\s*[;)]|\Z)")
# A copy in the store is named after the authority and this text.
_MAX_AGENT_CHARACTERS = 130


def product_token(user_agent: str) -> str:
    """The product token of a User-Agent header: the name of the robot.

    That is the first word, unless the header imitates a browser and names the robot later.

    >>> product_token("MyBot/1.0 (+https://example.org/bot)")
    'MyBot'
    >>> product_token("Mozilla/5.0 (compatible; MyBot/1.0; +https://example.org/bot)")
    'MyBot'
    """
    first = user_agent.partition("/")[0].partition(" ")[0]
    if first.lower() not in _BROWSERS:
        return first
    for name in _PRODUCT.findall(_URL.sub(" ", user_agent)):
        if name.lower() not in _BROWSERS:
            return str(name)
    return first


def whole_agent(user_agent: str) -> str:
    """A User-Agent header in the form in which `parse` matches all of it, and not only one product token.

    A group then applies to us if its name starts a word anywhere in the header, and the longest such name decides.
    Scrapy's parser does the same.
    """
    text = "".join(character if character.isprintable() else " " for character in user_agent).lower()
    if len(text) > _MAX_AGENT_CHARACTERS:
        text = re.sub(r"/[\w.]+", "", _URL.sub(" ", text))
    text = " ".join(text.split())[:_MAX_AGENT_CHARACTERS].strip()
    return text if "/" in text else f"{text}/"
