"""Which requests are the same: converts a request into a visit, and a visit back into its request.

The frontier identifies a visit by URL, method and body. Scrapy's fingerprinter does the same, with a sorted query, so
the visit gets the sorted URL and the request keeps its own. Where a project defines its own fingerprint, the visit's
path is that fingerprint, so that it alone decides.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

from scrapy import Request, Spider
from scrapy.settings import BaseSettings
from scrapy.utils.request import RequestFingerprinter
from w3lib.url import canonicalize_url

from shoal.errors import InvalidLimit, InvalidVisit, SettingsError, StoreCorrupt
from shoal.frontier.visit_codec import LARGEST_EXTENSION_BYTES
from shoal.leases.recent_urls import RecentUrls
from shoal.model.validation import REFUSED_HEADERS, whole
from shoal.model.visit import Visit
from shoal.scrapy import codec
from shoal.scrapy.cookies import Cookies
from shoal.scrapy.request_target import target_of
from shoal.urls.canonical import MAX_URL_BYTES, canonical

_REQUEST_KEY = "scrapy"
_MAX_REQUEST_BYTES = "SHOAL_MAX_REQUEST_BYTES"
_DEFAULT_BYTES = 2_000_000
# Room for the other fields of a visit, beside the packed request and the body.
_ENVELOPE_BYTES = 1000
# In the meta of a start request that Scrapy has received. Its retries, redirects and copies are not start requests,
# although they still have is_start_request.
_SCHEDULED = "shoal_started"
# Scrapy's own proxy middleware sets Proxy-Authorization, and retries keep it.
_REFUSED = REFUSED_HEADERS - {"proxy-authorization"}
log = logging.getLogger(__name__)


class RequestTooLarge(InvalidVisit):
    """A request has more bytes than the frontier may store."""


class RequestIdentity:
    def __init__(
        self, spider: Spider, fingerprint: Callable[[Request], bytes] | None, cookies: Cookies,
        max_bytes: int = _DEFAULT_BYTES,
    ) -> None:  # fmt: skip
        """`fingerprint` is None where the frontier's own identity applies. `max_bytes` limits a stored visit."""
        self._max_bytes = max_bytes
        self._spider = spider
        self._fingerprint = fingerprint
        self._cookies = cookies
        self._started: Counter[bytes] = Counter()
        self._dropped_headers: set[bytes] = set()
        # FIFO and LIFO queues have a single priority.
        self.flat = False
        self._recent = RecentUrls()
        # The same URLs as they are written in pages: most links are repeats, and this avoids parsing them again.
        self._recent_raw = RecentUrls()

    def visit(self, request: Request, *, pushed: bytes = b"") -> tuple[Visit, bool] | None:
        """The visit of a request, and whether it is forced, i.e. made even if the crawl has made it before.

        None when this process has already added it. `pushed` identifies the message of a start URL, so that a message
        that is added twice is one visit.
        """
        method, body = request.method, request.body
        plain = method == "GET" and not body and not request.dont_filter and self._fingerprint is None
        if plain and request.url in self._recent_raw:
            return None
        url = _spelled(request.url)
        force, salt = bool(request.dont_filter), b""
        if force and pushed:
            salt = pushed
        elif force and request.meta.get("is_start_request") and _SCHEDULED not in request.meta:
            # Every process of a fleet yields the start requests: the n-th equal one is a single visit of the crawl.
            key = hashlib.sha1(method.encode() + url.encode() + body, usedforsecurity=False).digest()
            salt = b"start %d" % self._started[key]
            self._started[key] += 1
        if salt:
            force = False
            body = b"%s\n%s" % (salt, hashlib.sha1(body, usedforsecurity=False).digest())
        elif self._fingerprint is not None and not force:
            target = canonical(url)
            url, method, body = f"{target.scheme}://{target.host}/{self._fingerprint(request).hex()}", "GET", b""
        if not force and not body and method == "GET" and url in self._recent:
            if plain:
                self._recent_raw.add(request.url)
            return None
        if request.headers:
            self._drop_refused_headers(request)
        packed = codec.pack(request, self._spider, known=(url, method, body), jar=self._cookies.of(request))
        if len(packed) + len(body) > self._max_bytes - _ENVELOPE_BYTES:
            raise RequestTooLarge(
                f"{str(request)[:200]} carries {len(packed) + len(body)} bytes of body, meta, cb_kwargs and headers; "
                f"the limit is {self._max_bytes} ({_MAX_REQUEST_BYTES})."
            )
        depth = request.meta.get("depth", 0)
        visit = Visit(
            url=url, method=method, body=body, depth=depth if type(depth) is int and depth >= 0 else 0,
            priority=0 if self.flat else request.priority, found="spider", meta={_REQUEST_KEY: packed},
        )  # fmt: skip
        return visit, force

    def _drop_refused_headers(self, request: Request) -> None:
        """Remove headers that could mix up requests on a connection. Scrapy projects often copy some from a browser."""
        for name in [name for name in request.headers if name.decode("latin-1").lower() in _REFUSED]:
            del request.headers[name]
            if name not in self._dropped_headers:
                self._dropped_headers.add(name)
                log.warning(
                    "The header %s of a request was removed: each connection has its own.", name.decode("latin-1"),
                    extra={"spider": self._spider},
                )  # fmt: skip

    def added(self, visit: Visit) -> None:
        """The visit is in the store, so its repeats can be dropped here."""
        if visit.method == "GET" and not visit.body:
            self._recent.add(visit.url)

    def forget(self) -> None:
        """Forget recent URLs, because the store may have lost its last writes."""
        self._recent.clear()
        self._recent_raw.clear()

    def request(self, visit: Visit) -> Request:
        data: Any = visit.meta.get(_REQUEST_KEY)
        if not isinstance(data, bytes):
            raise StoreCorrupt(f"A visit of {visit.url[:80]!r} has no Scrapy request.")
        request, jar = codec.unpack(data, known=(visit.url, visit.method, visit.body), spider=self._spider)
        self._cookies.learn(request, jar)
        if request.meta.get("is_start_request"):
            request.meta[_SCHEDULED] = True
        return request


def max_request_bytes(settings: BaseSettings) -> int:
    """How many bytes of a request the store may hold."""
    configured = settings.get(_MAX_REQUEST_BYTES, _DEFAULT_BYTES)
    try:
        return whole(_MAX_REQUEST_BYTES, int(configured), 2 * _ENVELOPE_BYTES, LARGEST_EXTENSION_BYTES)
    except (TypeError, ValueError, InvalidLimit):
        raise SettingsError(
            f"{_MAX_REQUEST_BYTES} is {configured!r}: use a whole number from {2 * _ENVELOPE_BYTES} to "
            f"{LARGEST_EXTENSION_BYTES}."
        ) from None


def _spelled(url: str) -> str:
    """The URL of a request as the frontier compares it, with a sorted query."""
    spelled = canonicalize_url(url)
    # The sorted query can be longer than the URL, because characters are encoded.
    return target_of(url if len(url) > MAX_URL_BYTES else spelled).url


def is_default(fingerprinter: object) -> bool:
    """Whether Scrapy's own fingerprinter is used, which agrees with the frontier's identity."""
    return type(fingerprinter) is RequestFingerprinter
