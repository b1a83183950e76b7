"""One cookie jar for the fleet: a request carries the cookies its jar had when it was yielded.

A session that one process opened is thereby known to whichever process makes the next request of it, with no jar to
keep in step. Of two values of a cookie the one that was set last wins.
"""

from __future__ import annotations

import time
from http.cookiejar import Cookie
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.utils.httpobj import urlparse_cached

_Place = tuple[Any, str, str, str]
# Set-Cookie of one host; more than this no browser sends either.
_MOST = 100


class Cookies:
    def __init__(self, crawler: Crawler) -> None:
        self._middleware: CookiesMiddleware | None = crawler.get_downloader_middleware(CookiesMiddleware)
        self._known: dict[_Place, tuple[str | None, float]] = {}

    def of(self, request: Request) -> list[Any]:
        """The cookies that would go with this request: domain, path, name, value, expires, secure, when it was set."""
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
        found: list[Any] = []
        for domain, paths in jar._cookies.items():
            if host != domain.lstrip(".") and not host.endswith("." + domain.lstrip(".")):
                continue
            for path, cookies in paths.items():
                for cookie in list(cookies.values())[: _MOST - len(found)]:
                    place = (name, domain, path, cookie.name)
                    value, stamp = self._known.get(place, (None, 0.0))
                    if value != cookie.value:
                        stamp = time.time()
                        self._known[place] = (cookie.value, stamp)
                    found.append([domain, path, cookie.name, cookie.value, cookie.expires, cookie.secure, stamp])
        return found

    def learn(self, request: Request, carried: list[Any]) -> None:
        """Put carried cookies into the jar of this process, but for those it has a newer value of."""
        if self._middleware is None or not carried:
            return
        name = request.meta.get("cookiejar")
        jar = self._middleware.jars[name]
        for domain, path, cookie_name, value, expires, secure, stamp in carried:
            place = (name, domain, path, cookie_name)
            here = jar._cookies.get(domain, {}).get(path, {}).get(cookie_name)
            known = self._known.get(place)
            if here is not None and (known is None or known[0] != here.value):
                # It was set here since the last look.
                known = self._known[place] = (here.value, time.time())
            if known is not None and known[1] >= stamp:
                continue
            self._known[place] = (value, stamp)
            jar.set_cookie(_cookie(domain, path, cookie_name, value, expires, secure))


def _cookie(domain: str, path: str, name: str, value: str | None, expires: int | None, secure: bool) -> Cookie:
    return Cookie(
        0, name, value, None, False, domain, domain.startswith("."), domain.startswith("."), path, True, secure,
        expires, expires is None, None, None, {},
    )  # fmt: skip
