"""Requests under a lease: their headers; one that is still open when the lease expires is aborted."""

from __future__ import annotations

import asyncio
import contextlib

from shoal.errors import FetchError
from shoal.fetch import Fetcher, MustWait, Request
from shoal.leases.held_lease import HeldLease
from shoal.model.response import Response
from shoal.model.visit import Visit
from shoal.politeness.backoff import Fault
from shoal.settings import masked


def request_headers(
    of_crawl: tuple[tuple[str, str], ...], visit: Visit, kept_cookies: str = ""
) -> tuple[tuple[str, str], ...]:
    """The headers of a visit: those of the crawl, replaced by its own of the same name. Cookies are joined.

    `kept_cookies` are those of the crawl's jar.
    """
    notes_cookies = visit.notes.cookies if visit.meta else {}
    if not visit.headers and not notes_cookies and not kept_cookies:
        return of_crawl
    own = {name.lower() for name in visit.headers} - {"cookie"}
    headers = [(name, value) for name, value in of_crawl if name.lower() not in own]
    headers += visit.headers.items()
    given = [value for name, value in headers if name.lower() == "cookie"]
    cookies = [*given, *(f"{name}={value}" for name, value in notes_cookies.items()), kept_cookies]
    pairs: dict[str, str] = {}
    for pair in "; ".join(filter(None, cookies)).split(";"):
        if pair := pair.strip():
            # Of two cookies of one name, the later one is that of the request or of the jar.
            pairs[pair.partition("=")[0]] = pair
    others = [(name, value) for name, value in headers if name.lower() != "cookie"]
    return (*others, ("Cookie", "; ".join(pairs.values()))) if pairs else tuple(others)


class ProxyUnavailable(Exception):
    """The forward proxy is unavailable: no host was requested."""


async def fetch_under_lease(lease: HeldLease, fetcher: Fetcher, request: Request) -> Response:
    """Fetch for as long as the lease can be trusted, then abort with FetchError `timed out`."""
    try:
        if request.timeout_seconds <= lease.seconds_left:
            with contextlib.suppress(MustWait):
                return await fetcher.fetch(request, wait=False)
        return await _fetch_until_expiry(lease, fetcher, request)
    except FetchError as error:
        if error.fault == Fault.PROXY:
            raise ProxyUnavailable(f"The proxy is unavailable ({error.reason}). Retrying.") from None
        raise


async def _fetch_until_expiry(lease: HeldLease, fetcher: Fetcher, request: Request) -> Response:
    """The request may take longer than the lease lasts now; renewals decide whether it may continue."""
    fetching = asyncio.ensure_future(fetcher.fetch(request))
    try:
        while not fetching.done() and (left := lease.seconds_left) > 0:
            await asyncio.wait((fetching,), timeout=left)
        if fetching.done():
            return fetching.result()
    finally:
        if not fetching.done():
            fetching.cancel()
            await asyncio.wait((fetching,))
    raise FetchError(
        f"{masked(request.url)} was not fetched: the lease of its host expired.",
        fault=Fault.TIMED_OUT, reason="timed out",
    )  # fmt: skip
