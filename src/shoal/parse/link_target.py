"""The URL that a link of a page leads to, without the URL parser if the result is already known.

Owns how references are resolved against the URL of a page, and the encoding of their queries. Must not know HTML.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import quote_from_bytes

import ada_url

from shoal.parse.encodings import CODECS
from shoal.urls.canonical import MAX_URL_BYTES

_SCHEMES = ("http://", "https://", "ftp://")
# Told without asking the URL parser: most links that are not visited begin with one of these.
_NOT_VISITED = ("javascript:", "mailto:", "tel:", "data:")
# Letters that the URL parser leaves as they are, in segments other than dots, behind a slash or steps up: to join them
# is to put one behind the other. It takes a fifth of the time, and nearly all links in Debian's documentation are such.
PLAIN = re.compile(
    r"(/|(?:\.\./){0,7}+)[A-Za-z0-9_~-][A-Za-z0-9_.~-]*+(?:/[A-Za-z0-9_~-][A-Za-z0-9_.~-]*+)*+/?(?:\?[A-Za-z0-9_.~=&+-]+)?"
)


def folders(base: str) -> tuple[str, list[str]]:
    """The site, and the folders that links start from: the page's own and those seven steps up; above a root is itself.

    ('', []) when the base is nothing to start from.
    """
    host = base.find("://") + 3
    end = base.rfind("/", 0, (base + "?").index("?")) + 1
    # The name of a file changes no folder, unless it is one of dots.
    if host < base.find("/", host) < end and (end == len(base) or PLAIN.fullmatch(base, end)):
        return _folders_of(base[:end])
    return _folders_of.__wrapped__(base)


@lru_cache(maxsize=256)
def _folders_of(base: str) -> tuple[str, list[str]]:
    """The same for the folder of a page, or for what is not written as one. Pages of a folder share it."""
    whole = join(base, "")
    if not whole:
        return "", []
    slash = whole.find("/", whole.find("://") + 3)
    end = whole.rfind("/", 0, (whole + "?").index("?"))
    steps = [whole[: end + 1]]
    for _ in range(7):
        end = max(slash, whole.rfind("/", 0, end))
        steps.append(whole[: end + 1])
    return whole[:slash], steps


@lru_cache(maxsize=4096)
def elsewhere(href: str) -> str:
    """A whole URL, wherever it stands. The pages of a site share most links that lead away from it."""
    return join(href, href)


def join(base: str, href: str) -> str:
    """The canonical URL of a link, '' for what is not visited. The parser's own spelling is the canonical one."""
    if len(href) > MAX_URL_BYTES or (":" in href and href[:11].lower().startswith(_NOT_VISITED)):
        return ""
    try:
        joined = without_fragment(ada_url.join_url(base, href))
    except (ValueError, UnicodeError):
        return ""
    return joined if joined.startswith(_SCHEMES) and len(joined) <= MAX_URL_BYTES else ""


def without_fragment(url: str) -> str:
    return url.partition("#")[0]


def in_page_encoding(href: str, encoding: str) -> str:
    """Queries are written in the encoding of their page: the server that gave the page expects them so."""
    path, mark, query = href.partition("?")
    codec = CODECS.get(encoding)
    if not mark or codec is None or query.isascii():
        return href
    # What the encoding lacks is written as a numeric reference, percent-encoded: so do browsers.
    parts = (
        character if character.isascii() else quote_from_bytes(character.encode(codec, "xmlcharrefreplace"), safe="")
        for character in query
    )
    return path + mark + "".join(parts)
