"""Which requests are the same, in the frontier's terms: a request becomes a visit, a visit becomes the request again.

The frontier knows a visit by its URL, method and body. Scrapy's fingerprinter makes the same of a request, with the
URL's query sorted, so the visit gets the sorted URL and the request keeps its own. Where a project's fingerprinter or
dupefilter says something else, the visit's path is that fingerprint: then it alone decides.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from scrapy import Request, Spider
from scrapy.utils.request import RequestFingerprinter
from w3lib.url import canonicalize_url

from shoal.errors import InvalidVisit, StoreCorrupt
from shoal.leases.recent_urls import RecentUrls
from shoal.model.visit import Visit
from shoal.scrapy import codec
from shoal.scrapy.cookies import Cookies
from shoal.urls.canonical import canonical

_CARRIED = "scrapy"
_MOST_BYTES = 48_000
# In the meta of a start request that was given out: its retries, its redirects and what a callback makes of it are
# copies that still say is_start_request, and no starts.
_GIVEN_OUT = "shoal_started"


class RequestIdentity:
    def __init__(self, spider: Spider, fingerprint: Callable[[Request], bytes] | None, cookies: Cookies) -> None:
        """`fingerprint` is None where the frontier's own identity is the right one."""
        self._spider = spider
        self._fingerprint = fingerprint
        self._cookies = cookies
        self._started: Counter[bytes] = Counter()
        # Fifo and Lifo queues have one priority.
        self.flat = False
        self._recent = RecentUrls()
        # The same as pages spell them: most links are repeats, and need not be taken apart again to see that.
        self._spelled = RecentUrls()

    def visit(self, request: Request, *, pushed: bytes = b"") -> tuple[Visit, bool] | None:
        """The visit that stands for a request, and whether it is to be made even if the crawl has made it before.

        None when this process has added it already. `pushed` names the message a start URL came in, so that it is the
        same visit when it is added twice.
        """
        method, body = request.method, request.body
        plain = method == "GET" and not body and not request.dont_filter and self._fingerprint is None
        if plain and request.url in self._spelled:
            return None
        url = canonical(canonicalize_url(request.url)).url
        force, salt = bool(request.dont_filter), b""
        if force and pushed:
            salt = pushed
        elif force and request.meta.get("is_start_request") and _GIVEN_OUT not in request.meta:
            # Every process of a fleet yields these: the n-th of its kind is one visit of the crawl, whoever adds it.
            mark = hashlib.sha1(method.encode() + url.encode() + body, usedforsecurity=False).digest()
            salt = b"start %d" % self._started[mark]
            self._started[mark] += 1
        if salt:
            force = False
            body = b"%s\n%s" % (salt, hashlib.sha1(body, usedforsecurity=False).digest())
        elif self._fingerprint is not None and not force:
            target = canonical(url)
            url, method, body = f"{target.scheme}://{target.host}/{self._fingerprint(request).hex()}", "GET", b""
        if not force and not body and method == "GET" and url in self._recent:
            if plain:
                self._spelled.add(request.url)
            return None
        packed = codec.pack(request, self._spider, known=(url, method, body), jar=self._cookies.of(request))
        if len(packed) + len(body) > _MOST_BYTES:
            raise InvalidVisit(
                f"{request} carries {len(packed) + len(body)} bytes of body, meta, cb_kwargs and headers: "
                f"it may carry {_MOST_BYTES}."
            )
        depth = request.meta.get("depth", 0)
        visit = Visit(
            url=url, method=method, body=body, depth=depth if type(depth) is int and depth >= 0 else 0,
            priority=0 if self.flat else request.priority, found="spider", meta={_CARRIED: packed},
        )  # fmt: skip
        return visit, force

    def added(self, visit: Visit) -> None:
        """It is in the store: whoever yields it again need not ask."""
        if visit.method == "GET" and not visit.body:
            self._recent.add(visit.url)

    def forget(self) -> None:
        """The store may have lost what it was told last."""
        self._recent.clear()
        self._spelled.clear()

    def request(self, visit: Visit) -> Request:
        data: Any = visit.meta.get(_CARRIED)
        if not isinstance(data, bytes):
            raise StoreCorrupt(f"A visit of {visit.url[:80]!r} carries no request of Scrapy.")
        request, jar = codec.unpack(data, known=(visit.url, visit.method, visit.body), spider=self._spider)
        self._cookies.learn(request, jar)
        if request.meta.get("is_start_request"):
            request.meta[_GIVEN_OUT] = True
        return request


def is_default(fingerprinter: object) -> bool:
    """Whether Scrapy's own fingerprinter is used: it and the frontier agree on what is the same."""
    return type(fingerprinter) is RequestFingerprinter
