"""Fetching: one request in, one page or one FetchError out.

Owns the pool of libcurl handles and the multi handle with its connections. Redirects are ordinary responses here: the
frontier follows them, so that every hop is polite, in scope and checked again. Requests share only open connections,
TLS sessions of the same origin and looked-up names: there are no cookies, and a request sends only its own headers.
"""

from __future__ import annotations

import asyncio
import re
import select
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import ada_url
import msgspec
import pycurl  # type: ignore[import-untyped]

from shoal.errors import FetchError, InvalidInput
from shoal.fetch import ftp
from shoal.fetch.address_guard import AddressGuard
from shoal.fetch.bandwidth import TokenBucket
from shoal.fetch.curl_errors import fetch_error
from shoal.fetch.dns import Origin, OriginCache, Resolver, forbidden
from shoal.fetch.open_files import EXHAUSTED, NoSocket, Shortage, connection_limit
from shoal.fetch.response_cache import ResponseCache
from shoal.fetch.tls import authorities
from shoal.fetch.transfer import CONNECT_SECONDS, TROUBLES, Transfer, framed_twice
from shoal.model.response import Response, Timings
from shoal.model.validation import HEADER_NAME as FIELD
from shoal.model.validation import REFUSED_HEADERS
from shoal.model.worker_report import RequestLine
from shoal.politeness.backoff import Fault
from shoal.settings import FetchSettings, masked

SCHEMES = ("http", "https")
# A URL as the frontier spells it, as nearly all are: the part before the path is the origin.
_PLAIN = re.compile(r"(https?://[a-z0-9.\-]+(?::[0-9]+)?)/[!-~]*")
KEEP_HEADERS = 256
# More than any worker has: the effective limit is that of open files.
_MOST_TRANSFERS = 100_000
# libcurl checks once per second for connections that the server has closed, whatever happens in between.
PRUNE_SECONDS = 1.1
# Errors that a lack of files or memory causes before a request is sent.
_UNSENT = (pycurl.E_SSL_CACERT_BADFILE, pycurl.E_OUT_OF_MEMORY)
T = TypeVar("T")
_HUNG_UP = getattr(select, "POLLRDHUP", 0)  # without it (macOS), only sockets closed in both directions are detected


class MustWait(Exception):
    """A request cannot be sent immediately, and its caller does not want to wait."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request. With `cut`, a body over the limit is truncated instead of failing (robots.txt).

    FTP is used only with `ftp`: a redirect or a link must not direct a crawl of the web to an FTP server.
    """

    url: str
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    timeout_seconds: float = 30.0
    body_bytes: int = 10_000_000
    cut: bool = False
    ftp: bool = False


class Fetcher:
    """Fetches pages. Belongs to the event loop that uses it first. Cancelling a fetch closes its transfer at once."""

    def __init__(
        self, settings: FetchSettings, *, resolver: Resolver | None = None,
        on_warning: Callable[[str], None] | None = None, on_request: Callable[[RequestLine], None] | None = None,
    ) -> None:  # fmt: skip
        """`on_request` is called after each request, with its response or its error."""
        self._on_request = on_request
        self._cache = ResponseCache(settings.cache) if settings.cache else None
        self._settings = settings
        self._guard = AddressGuard(settings.allow_networks)
        self._names = OriginCache(self._guard, resolver)
        self._bucket = TokenBucket(settings.bandwidth, time.monotonic()) if settings.bandwidth else None
        self._headers: dict[tuple[tuple[str, str], ...], list[bytes]] = {}
        self._multi = pycurl.AsyncCurlMulti()
        connections = connection_limit(_MOST_TRANSFERS)
        self._multi.setopt(pycurl.M_MAXCONNECTS, min(settings.connections, connections))
        # Idle connections count, too: libcurl closes the oldest one when a request needs another connection.
        self._multi.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, connections)
        self._connecting = asyncio.Semaphore(connections)
        self._shortage = Shortage(on_warning)
        self._trust = authorities()
        self._idle: list[Transfer] = []
        self._closed = False

    async def fetch(self, request: Request, *, wait: bool = True) -> Response:
        """The complete response, with any status; FetchError names the reason if there is none.

        The request waits for bandwidth and for open files, however long that takes; its timeout starts after that.
        Without `wait`, MustWait is raised instead.
        """
        if self._on_request is None and self._cache is None:
            return await self._send(request, wait)
        try:
            response = await self._send(request, wait)
        except FetchError as error:
            self._log(request.url, None, error.reason)
            raise
        self._log(request.url, response)
        if self._cache is not None and request.method == "GET" and not request.body:
            self._cache.write(response)
        return response

    def cached(self, url: str) -> Response | None:
        """The response of the cache to a GET request, None if a request must be sent."""
        response = None if self._cache is None else self._cache.read(url)
        if response is not None:
            self._log(url, response, cached=True)
        return response

    def _log(self, url: str, response: Response | None, error: str = "", *, cached: bool = False) -> None:
        if self._on_request is not None:
            line = RequestLine(url=masked(url), error=error, at=time.time(), cached=cached)
            if response is not None:
                line = msgspec.structs.replace(
                    line, status=response.status, bytes=response.bytes_received,
                    seconds=0.0 if cached else response.timings.total,
                )  # fmt: skip
            self._on_request(line)

    async def _send(self, request: Request, wait: bool) -> Response:
        if wait:
            return await self._with_room(lambda: self._fetch_next(request))
        if self._connecting.locked() or (self._bucket is not None and self._bucket.wait_seconds(time.monotonic()) > 0):
            raise MustWait
        try:
            return await self._fetch_next(request)
        except NoSocket:
            raise MustWait from None

    async def _with_room(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat an attempt while no file is free for its connection. Nothing was sent, so the host is not affected."""
        tries = 0
        while True:
            try:
                return await attempt()
            except NoSocket:
                await self._shortage.wait(tries)
                tries += 1

    async def _fetch_next(self, request: Request) -> Response:
        async with self._connecting:
            return await self._fetch(request)

    async def _fetch(self, request: Request) -> Response:
        url, origin = self._target(request.url, request.ftp)
        is_ftp = origin.scheme == "ftp"
        if is_ftp:
            ftp.check(request.url, request.method, request.body, self._settings.proxy)
        headers = self._header_lines(request.headers)
        if self._bucket is not None:
            # Checked again after each sleep: the bytes that other requests received meanwhile count as debt, too.
            while (seconds := self._bucket.wait_seconds(time.monotonic())) > 0:  # noqa: ASYNC110
                await asyncio.sleep(seconds)
        started_at, started = time.time(), time.monotonic()
        seconds, looked_up = request.timeout_seconds, 0.0
        if started >= origin.expires_mono:
            await self._look_up(origin, min(CONNECT_SECONDS, seconds))
            looked_up = time.monotonic() - started
            seconds -= looked_up
        self._names.check(origin)
        transfer = self._idle.pop() if self._idle else Transfer(self._settings, self._guard, self._trust)
        plain = request.method == "GET" and not request.body and not is_ftp
        whole = False
        try:
            transfer.prepare(url, headers, seconds, request.body_bytes, request.cut)
            transfer.aim(origin, _must_connect(origin, started))
            if is_ftp:
                status = await self._ftp(request, url, origin, transfer, started + request.timeout_seconds)
                return _page(request.url, transfer, started_at, looked_up, status, ftp.headers_of(url, status))
            if not plain:
                _set_method(transfer.curl, request)
            try:
                await self._multi.perform(transfer.curl)
            except pycurl.error as error:
                if not (transfer.cut and transfer.trouble == "cut"):
                    raise self._failure(request.url, origin, transfer, error) from None
            if not transfer.whole_head:
                # libcurl treats an incomplete head as a response without a body.
                raise FetchError(
                    f"{masked(request.url)} was not fetched: the response ended within its headers.",
                    fault=Fault.TRUNCATED,
                    reason="truncated",
                )
            if transfer.opened >= 0:
                origin.socket = transfer.opened
            received = transfer.read_head()
            if framed_twice(received):
                # libcurl does not report which connection it was, so no connection of this origin is reused.
                origin.reusable = False
            whole = True
            status = transfer.curl.getinfo(pycurl.RESPONSE_CODE)
            return _page(request.url, transfer, started_at, looked_up, status, received)
        finally:
            if self._bucket is not None:
                self._bucket.spend(_received(transfer.curl))
            # A handle that was interrupted, or has a method and a body, is not worth resetting.
            if whole and plain and not self._closed:
                transfer.clear()
                self._idle.append(transfer)
            else:
                transfer.close()

    async def _ftp(self, request: Request, url: str, origin: Origin, transfer: Transfer, ends_mono: float) -> int:
        """Fetch a file or list a directory. Returns the outcome as an HTTP status."""
        curl = transfer.curl
        facts = url.endswith("/") and origin.facts
        if facts:
            curl.setopt(pycurl.CUSTOMREQUEST, "MLSD")
        try:
            await self._multi.perform(curl)
        except pycurl.error as error:
            code = error.args[0]
            if facts and not transfer.trouble and ftp.knows_no_facts(code, curl):
                origin.facts = transfer.requested = False
                curl.unsetopt(pycurl.CUSTOMREQUEST)
                curl.setopt(pycurl.TIMEOUT_MS, max(1, int((ends_mono - time.monotonic()) * 1000)))
                return await self._ftp(request, url, origin, transfer, ends_mono)
            if transfer.cut and transfer.trouble == "cut":
                return 200
            if not transfer.trouble and transfer.refused is None and (status := ftp.status_of(code, curl)):
                return status
            raise self._failure(request.url, origin, transfer, error) from None
        return 200

    async def address(self, url: str) -> str:
        """One address of a URL's host: the same one in whichever order they are returned. FetchError as for `fetch`."""
        _, origin = self._target(url, True)
        if time.monotonic() >= origin.expires_mono:
            await self._with_room(lambda: self._look_up(origin, CONNECT_SECONDS))
        self._names.check(origin)
        address = min(origin.addresses)
        return f"[{address}]" if ":" in address else address

    async def _look_up(self, origin: Origin, seconds: float) -> None:
        try:
            await self._names.look_up(origin, seconds)
        except FetchError:
            # Without a free file, the system's resolver cannot read its configuration or reach a name server.
            if self._shortage.explains_failure():
                raise NoSocket from None
            raise

    async def close(self) -> None:
        """Abort all transfers (their callers get a cancellation) and close all connections."""
        self._closed = True
        self._names.close()
        await self._multi.aclose()
        while self._idle:
            self._idle.pop().close()

    def _target(self, url: str, with_ftp: bool) -> tuple[str, Origin]:
        """The URL for libcurl, and its origin."""
        plain = _PLAIN.fullmatch(url)
        try:
            if plain is not None:
                origin = self._names.origin(plain[1])
                if origin.plain:
                    return url, origin
            parsed = ada_url.URL(url)
            scheme = parsed.protocol[:-1]
            if scheme in SCHEMES or (with_ftp and scheme == "ftp"):
                return parsed.href, self._names.origin(parsed.origin)
            explanation = "only http and https are"
        except ValueError:
            explanation = "it is not a URL"
        raise FetchError(f"{masked(url)} is not fetched: {explanation}.", fault=Fault.ABORTED, reason="bad url")

    def _failure(self, url: str, origin: Origin, transfer: Transfer, error: pycurl.error) -> FetchError:
        code, text = error.args
        if transfer.refused is not None:
            origin.forget()
            return forbidden(origin.prefix, *transfer.refused)
        if code == pycurl.E_COULDNT_CONNECT and (
            transfer.starved or transfer.curl.getinfo(pycurl.OS_ERRNO) in EXHAUSTED
        ):
            raise NoSocket from None
        if code in _UNSENT and not transfer.requested and self._shortage.explains_failure():
            raise NoSocket from None
        if transfer.trouble:
            return FetchError(
                f"{masked(url)} was not fetched: {transfer.trouble}.",
                fault=TROUBLES[transfer.trouble],
                reason=transfer.trouble,
            )
        if not transfer.head:
            origin.forget()
        return fetch_error(url, code, text, transfer.curl, proxied=bool(self._settings.proxy))

    def _header_lines(self, headers: tuple[tuple[str, str], ...]) -> list[bytes]:
        """The request's headers as lines. Equal headers give the same list object, which shows that nothing changed."""
        lines = self._headers.get(headers)
        if lines is None:
            if len(self._headers) >= KEEP_HEADERS:
                self._headers.clear()
            # Without this line, libcurl waits for a 100 response before it sends a long body.
            lines = self._headers[headers] = [*(_line(name, value) for name, value in headers), b"Expect:"]
        return lines


def _must_connect(origin: Origin, now: float) -> bool:
    """Whether libcurl might use a connection that the server has closed: the request would fail, and is not repeated.

    The descriptor may be closed or belong to another connection by now. The worst effect is an unnecessary connection.
    """
    if origin.socket >= 0:
        poller = select.poll()
        poller.register(origin.socket, _HUNG_UP)
        for _, events in poller.poll(0):
            origin.socket = -1
            if not events & select.POLLNVAL:
                origin.dead_mono = now
    return not origin.reusable or now - origin.dead_mono < PRUNE_SECONDS


def _line(name: str, value: str) -> bytes:
    if not FIELD.fullmatch(name) or name.lower() in REFUSED_HEADERS or any(sign in value for sign in "\r\n\0"):
        raise InvalidInput(f"The header {name[:60]!r} cannot be sent: HTTP does not allow its name or its value.")
    # libcurl omits a header whose line ends in a colon; with a semicolon, it sends the header with an empty value.
    text = f"{name}: {value}" if value.strip() else f"{name};"
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _set_method(curl: pycurl.Curl, request: Request) -> None:
    if not FIELD.fullmatch(request.method):
        raise InvalidInput(f"The method {request.method[:60]!r} cannot be sent: a method is one word.")
    if request.method == "HEAD":
        curl.setopt(pycurl.NOBODY, 1)
        # The response to a HEAD request states the length of a body that is not sent.
        curl.setopt(pycurl.MAXFILESIZE_LARGE, 0)
        return
    if request.body or request.method in ("POST", "PUT", "PATCH"):
        curl.setopt(pycurl.POSTFIELDS, request.body)
    curl.setopt(pycurl.CUSTOMREQUEST, request.method)


def _page(
    url: str, transfer: Transfer, started_at: float, looked_up: float, status: int, headers: tuple[tuple[str, str], ...]
) -> Response:
    info = transfer.curl.getinfo
    fresh = info(pycurl.NUM_CONNECTS) > 0
    timings = Timings(
        name_lookup=looked_up,
        connect=looked_up + info(pycurl.CONNECT_TIME) if fresh else 0.0,
        tls=looked_up + tls if fresh and (tls := info(pycurl.APPCONNECT_TIME)) else 0.0,
        first_byte=looked_up + info(pycurl.STARTTRANSFER_TIME),
        total=looked_up + info(pycurl.TOTAL_TIME),
    )
    return Response(
        url=url,
        status=status,
        headers=headers,
        body=b"".join(transfer.body),
        address=info(pycurl.PRIMARY_IP) or "",
        http_version=transfer.http_version(),
        bytes_received=_received(transfer.curl),
        started_at=started_at,
        timings=timings,
    )


def _received(curl: pycurl.Curl) -> int:
    received: int = curl.getinfo(pycurl.HEADER_SIZE) + curl.getinfo(pycurl.SIZE_DOWNLOAD_T)
    return received
