"""One cookie jar for the fleet: a request carries the cookies that its jar had when it was yielded.

So the process that makes the next request of a session has its cookies, and no shared jar is needed. Of two values of a
cookie, the one that was set last wins.
"""

from __future__ import annotations

import time
from http.cookiejar import Cookie
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.utils.httpobj import urlparse_cached

_CookieKey = tuple[Any, str, str, str]
# Cookies of one host. Browsers do not send more either.
_MAX_COOKIES = 100


class Cookies:
    def __init__(self, crawler: Crawler) -> None:
        self._middleware: CookiesMiddleware | None = crawler.get_downloader_middleware(CookiesMiddleware)
        self._known: dict[_CookieKey, tuple[str | None, float]] = {}

    def of(self, request: Request) -> list[Any]:
        """The cookies of this request: domain, path, name, value, expires, secure, and when the value was set."""
        if self._middleware is None or request.meta.get("dont_merge_cookies"):
            return []
        name = request.meta.get("cookiejar")
        try:
            jar = self._middleware.jars.get(name)
        except TypeError:
            return []
        if jar is None or not jar._cookies:
            return []
        host = (urlparse_cached(request).hostname or "").lower()
        carried: list[Any] = []
        for domain, paths in jar._cookies.items():
            if host != domain.lstrip(".") and not host.endswith("." + domain.lstrip(".")):
                continue
            for path, cookies in paths.items():
                for cookie in list(cookies.values())[: _MAX_COOKIES - len(carried)]:
                    key = (name, domain, path, cookie.name)
                    value, stamp = self._known.get(key, (None, 0.0))
                    if value != cookie.value:
                        stamp = time.time()
                        self._known[key] = (cookie.value, stamp)
                    carried.append([domain, path, cookie.name, cookie.value, cookie.expires, cookie.secure, stamp])
        return carried

    def learn(self, request: Request, carried: list[Any]) -> None:
        """Put carried cookies into this process's jar, unless it has a newer value."""
        if self._middleware is None or not carried:
            return
        name = request.meta.get("cookiejar")
        jar = self._middleware.jars[name]
        for domain, path, cookie_name, value, expires, secure, stamp in carried:
            key = (name, domain, path, cookie_name)
            current = jar._cookies.get(domain, {}).get(path, {}).get(cookie_name)
            known = self._known.get(key)
            if current is not None and (known is None or known[0] != current.value):
                # A response has set it since the last check.
                known = self._known[key] = (current.value, time.time())
            if known is not None and known[1] >= stamp:
                continue
            self._known[key] = (value, stamp)
            jar.set_cookie(_cookie(domain, path, cookie_name, value, expires, secure))


def _cookie(domain: str, path: str, name: str, value: str | None, expires: int | None, secure: bool) -> Cookie:
    return Cookie(
        0, name, value, None, False, domain, domain.startswith("."), domain.startswith("."), path, True, secure,
        expires, expires is None, None, None, {},
    )  # fmt: skip
