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
# Recognized without the URL parser: most links that are not visited start with one of these.
_NOT_VISITED = ("javascript:", "mailto:", "tel:", "data:")
# A reference that can be appended to its folder: characters that the URL parser leaves unchanged, in segments that do
# not start with a dot, after a slash or up to seven `../`. This takes a fifth of the time of a join, and nearly all
# links in Debian's documentation are like this.
PLAIN = re.compile(
    r"(/|(?:\.\./){0,7}+)[A-Za-z0-9_~-][A-Za-z0-9_.~-]*+(?:/[A-Za-z0-9_~-][A-Za-z0-9_.~-]*+)*+/?(?:\?[A-Za-z0-9_.~=&+-]+)?"
)


def folders(base: str) -> tuple[str, list[str]]:
    """The site, and the folders that references are relative to: the page's own and the seven above it.

    Above the root folder is the root folder. ('', []) if the base is not a URL that can be visited.
    """
    host = base.find("://") + 3
    end = base.rfind("/", 0, (base + "?").index("?")) + 1
    # The name of a file does not affect the folder, unless it consists of dots.
    if host < base.find("/", host) < end and (end == len(base) or PLAIN.fullmatch(base, end)):
        return _folders_of(base[:end])
    return _folders_of.__wrapped__(base)


@lru_cache(maxsize=256)
def _folders_of(base: str) -> tuple[str, list[str]]:
    """Like `folders`, for the folder of a page, so that its pages share the cache entry, or for any other base."""
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
    """The canonical form of an absolute URL. Cached, because the pages of a site share most links to other sites."""
    return join(href, href)


def join(base: str, href: str) -> str:
    """The canonical URL of a link, '' if it is not visited. The canonical spelling is that of the URL parser."""
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
    """The link with its query in the encoding of the page, as the server of the page expects it."""
    path, mark, query = href.partition("?")
    codec = CODECS.get(encoding)
    if not mark or codec is None or query.isascii():
        return href
    # Characters that the encoding lacks are numeric references, percent-encoded, as in browsers.
    parts = (
        character if character.isascii() else quote_from_bytes(character.encode(codec, "xmlcharrefreplace"), safe="")
        for character in query
    )
    return path + mark + "".join(parts)
