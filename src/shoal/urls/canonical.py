"""The canonical form of every URL, and the host that it belongs to for politeness.

Owns the only URL parser of Shoal (ada, the WHATWG standard). Must not know crawls, scope or the store.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

import ada_url

from shoal.errors import InvalidUrl

MAX_URL_BYTES = 8192
# A DNS name has at most 253 characters, a port at most five more.
MAX_HOST_BYTES = 260
SCHEMES = ("http", "https", "ftp")

# The default ports of http and https are one host: http://a/ and https://a/.
_WEB_PORTS = (":80", ":443")
# Paths and queries that the parser leaves as they are.
_PLAIN = re.compile(r"(?:/[A-Za-z0-9_~-][A-Za-z0-9_.~-]*+)*+/?(?:\?[A-Za-z0-9_.~=&+-]++)?")


class Target(NamedTuple):
    """A canonical URL in its parts. `rest` is the path and query, or the whole URL when it cannot be rebuilt."""

    url: str
    scheme: str
    host: str
    rest: str
    whole: bool

    @property
    def origin(self) -> str:
        """Scheme, authority and port, as the URL spells them."""
        return self.url[: self.url.find("/", len(self.scheme) + 3)]

    @property
    def path(self) -> str:
        """The path and query, starting with a slash."""
        return self.url[self.url.find("/", len(self.scheme) + 3) :] if self.whole else self.rest


def canonical(url: str) -> Target:
    """Parse and normalise one URL; the fragment is dropped.

    >>> canonical("HTTP://Example.com:80/a/../b?q#f").url
    'http://example.com/b?q'
    """
    if not isinstance(url, str):
        raise InvalidUrl(f"A URL must be text, not {type(url).__name__}: pass a str.")
    if len(url) > MAX_URL_BYTES or "\0" in url:
        raise InvalidUrl(_reason(url))
    # Scheme and host have at least 8 characters, except in an FTP URL with a host of one letter. There, `slash` is the
    # slash after the first folder.
    slash = url.find("/", 8)
    if slash > 0 and _PLAIN.fullmatch(url, slash) and _is_canonical(url[:slash]):
        # Visits from the store have this form, and parsing them would take five times as long.
        return parts_of(url)
    try:
        href: str = ada_url.normalize_url(url)
    except (ValueError, UnicodeError):
        raise InvalidUrl(_reason(url)) from None
    mark = href.find("#")
    return parts_of(href if mark < 0 else href[:mark])


@lru_cache(maxsize=4096)
def _is_canonical(site: str) -> bool:
    """Whether the parser leaves this site unchanged: its scheme, its host and its port."""
    try:
        return bool(ada_url.normalize_url(f"{site}/") == f"{site}/")
    except (ValueError, UnicodeError):
        return False


def parts_of(href: str) -> Target:
    """The parts of a URL without a fragment that the parser has already normalised, e.g. a link of a page."""
    scheme, separator, after = href.partition("://")
    if not separator or scheme not in SCHEMES:
        raise InvalidUrl(f"{_shown(href)} has an unsupported scheme: use {', '.join(SCHEMES[:-1])} or {SCHEMES[-1]}.")
    if len(href) > MAX_URL_BYTES:
        raise InvalidUrl(_reason(href))
    slash = after.find("/")
    authority = after[:slash]
    host = _host(authority)
    if not 1 <= len(host) <= MAX_HOST_BYTES or host[0] == ":":
        raise InvalidUrl(f"{_shown(href)} has no valid host: a host has 1 to {MAX_HOST_BYTES} characters.")
    if host == authority:
        return Target(href, scheme, host, after[slash:], False)
    return Target(href, scheme, host, href, True)


def resolve(base: str, reference: str) -> Target | None:
    """The target of a link or redirect found at `base`; None if it is not a web address."""
    try:
        return canonical(ada_url.join_url(base, reference.strip()))
    except (InvalidUrl, ValueError, UnicodeError):
        return None


def resolve_header(base: str, location: str) -> Target | None:
    """The target of a Location header. Servers send raw UTF-8 there, and header values are decoded as Latin-1."""
    return resolve(base, location.encode("latin-1", "replace").decode("utf-8", "replace"))


def _host(authority: str) -> str:
    """The host, as the unit of politeness: without user, final dot, and default port of http or https."""
    host = authority.rpartition("@")[2]
    for port in _WEB_PORTS:
        if host.endswith(port) and not host.endswith("]" + port[1:]):
            host = host[: -len(port)]
    if ":" in host and not host.endswith("]"):
        name, _, number = host.rpartition(":")
        return f"{name.rstrip('.')}:{number}"
    return host.rstrip(".")


def rebuild(scheme: str, host: str, rest: str) -> str:
    return f"{scheme}://{host}{rest}"


def _shown(url: str) -> str:
    """A URL as error messages show it, truncated."""
    text = url if len(url) <= 80 else url[:77] + "..."
    return repr(text)


def _reason(url: str) -> str:
    if len(url) > MAX_URL_BYTES:
        return f"{_shown(url)} has {len(url)} characters: the limit is {MAX_URL_BYTES}."
    if "\0" in url:
        return f"{_shown(url)} contains a NUL character, which is not allowed in a URL."
    port = re.match(r"\w+://[^/?#]*:([0-9]{1,20})(?:[/?#]|\Z)", url)
    if port and int(port[1]) > 65535:
        return f"{_shown(url)} has the port {port[1]}: a port is a number up to 65535."
    return f"{_shown(url)} is not a URL: write it with its scheme, as in https://example.org/."
