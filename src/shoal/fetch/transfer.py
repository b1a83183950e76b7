"""One libcurl handle and the response that it collects. It is reused, because creating a handle takes 30 us.

Owns the options of the handle, the limits of a response, and the reading of headers. Options that never change are set
once; a request sets its URL, and other options only if they differ from the previous request.
"""

from __future__ import annotations

import functools
import socket
from typing import Any

import pycurl  # type: ignore[import-untyped]

from shoal.fetch.address_guard import AddressGuard
from shoal.fetch.dns import Origin
from shoal.fetch.open_files import EXHAUSTED
from shoal.model.validation import HEADER_NAME as FIELD
from shoal.politeness.backoff import Fault
from shoal.settings import FetchSettings

CONNECT_SECONDS = 10.0
SLOW_BYTES = 100
SLOW_SECONDS = 20
# How much longer an encoded body may be than the decoded one, because of the coding's own frames. Without this limit, a
# stream of empty blocks, which decodes to nothing, would continue until the deadline.
CODING_BYTES = 64 * 1024
_CODING = b"content-encoding:"
# The reasons for which Shoal stops a transfer.
TROUBLES = {
    "too large": Fault.TOO_LARGE,
    "stacked codings": Fault.MALFORMED,
    "lost connection": Fault.RESET,
}
_FRAMING = ("content-length", "transfer-encoding")
_VERSIONS = {1: "1.0", 2: "1.1", 3: "2", 30: "3"}


@functools.lru_cache(maxsize=1000)
def _name(raw: str) -> str:
    """A header's name in lower case, '' if it is invalid. Cached, because servers use few different names."""
    name = raw.rstrip(" \t").lower()
    return name if FIELD.fullmatch(name) else ""


def framed_twice(headers: tuple[tuple[str, str], ...]) -> bool:
    """Whether a head states the end of the body more than once (RFC 9112 6.3).

    The next bytes on such a connection may be a part of this response.
    """
    return sum(name in _FRAMING for name, _ in headers) > 1


class _SocketForCurl:
    """A socket for pycurl, which copies it; the original is closed when pycurl releases it."""

    __slots__ = ("_own",)

    def __init__(self, own: socket.socket) -> None:
        self._own = own

    def fileno(self) -> int:
        return self._own.fileno()

    def __del__(self) -> None:
        self._own.close()


class Transfer:
    """Collects head and body of one response at a time."""

    __slots__ = (
        "_body_bytes",
        "_fresh",
        "_guard",
        "_once",
        "_proxied",
        "_seconds",
        "body",
        "curl",
        "cut",
        "ftp",
        "head",
        "headers",
        "left",
        "opened",
        "refused",
        "requested",
        "starved",
        "trouble",
        "whole_head",
    )

    def __init__(self, settings: FetchSettings, guard: AddressGuard, trust: tuple[str, str]) -> None:
        self._guard = guard
        self._proxied = bool(settings.proxy)
        self._fresh = False
        self._once = False
        self._seconds = 0.0
        self._body_bytes = -1
        self.headers: list[bytes] | None = None
        self.curl = pycurl.Curl()
        self._set_up(settings, trust)
        self.clear()

    def _set_up(self, settings: FetchSettings, trust: tuple[str, str]) -> None:
        curl = self.curl
        for option, value in (
            (pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS | pycurl.PROTO_FTP),
            (pycurl.FOLLOWLOCATION, 0),
            (pycurl.NOSIGNAL, 1),
            (pycurl.NETRC, pycurl.NETRC_IGNORED),
            # Set even if empty: otherwise libcurl reads HTTP_PROXY and similar variables.
            (pycurl.PROXY, settings.proxy),
            (pycurl.NOPROXY, ""),
            (pycurl.ACCEPT_ENCODING, "gzip, deflate, br"),
            (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS),
            (pycurl.HTTP09_ALLOWED, 0),
            # Keep the frontier's spelling of the URL.
            (pycurl.PATH_AS_IS, 1),
            # Of the address that an FTP server sends for its data, only the port is used. Change to a folder with one
            # command, not with one per segment.
            (pycurl.FTP_SKIP_PASV_IP, 1),
            (pycurl.FTP_FILEMETHOD, pycurl.FTPMETHOD_SINGLECWD),
            (pycurl.SSLVERSION, pycurl.SSLVERSION_TLSv1_2),
            (pycurl.SSL_VERIFYPEER, 1),
            (pycurl.SSL_VERIFYHOST, 2),
            (pycurl.LOW_SPEED_LIMIT, SLOW_BYTES),
            (pycurl.BUFFERSIZE, 64 * 1024),
            (pycurl.SOCKOPTFUNCTION, self._opened),
            (pycurl.PREREQFUNCTION, self._allow_request),
            (pycurl.HEADERFUNCTION, self._take_head),
            (pycurl.WRITEFUNCTION, self._take_body),
        ):
            curl.setopt(option, value)
        file, folder = trust
        for option, where in (
            (pycurl.CAINFO, file),
            (pycurl.PROXY_CAINFO, file),
            (pycurl.CAPATH, folder),
            (pycurl.PROXY_CAPATH, folder),
        ):
            curl.setopt(option, where) if where else curl.unsetopt(option)
        if settings.bandwidth:
            curl.setopt(pycurl.MAX_RECV_SPEED_LARGE, settings.bandwidth)
            curl.setopt(pycurl.LOW_SPEED_LIMIT, min(SLOW_BYTES, settings.bandwidth // 2))
        if not settings.proxy:
            # With a proxy, all sockets connect to it, and the administrator has chosen its address.
            curl.setopt(pycurl.OPENSOCKETFUNCTION, self._open)

    def prepare(self, url: str, headers: list[bytes], seconds: float, body_bytes: int, cut: bool) -> None:
        """Set the options that differ from the last request."""
        setopt = self.curl.setopt
        setopt(pycurl.URL, url)
        if not self._proxied:
            # libcurl writes %3d as %3D. HTTP treats both alike, but a server with signed URLs does not.
            setopt(pycurl.REQUEST_TARGET, "/" + url.partition("#")[0].split("/", 3)[3])
        if headers is not self.headers:
            setopt(pycurl.HTTPHEADER, headers)
            self.headers = headers
        if seconds != self._seconds:
            setopt(pycurl.TIMEOUT_MS, max(1, int(seconds * 1000)))
            setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(min(CONNECT_SECONDS, seconds) * 1000)))
            # At least 2: libcurl measures the rate once per second, and has no value before that.
            setopt(pycurl.LOW_SPEED_TIME, max(2, min(SLOW_SECONDS, int(seconds * 2 / 3))))
            self._seconds = seconds
        # If the body may be cut, the response may state any length.
        wire_bytes = 0 if cut else body_bytes + CODING_BYTES
        if wire_bytes != self._body_bytes:
            setopt(pycurl.MAXFILESIZE_LARGE, wire_bytes)
            self._body_bytes = wire_bytes
        self.left = body_bytes
        self.cut = cut

    def aim(self, origin: Origin, fresh: bool) -> None:
        """Give libcurl the addresses that were checked, so that it never looks up a name itself."""
        curl = self.curl
        self.ftp = origin.scheme == "ftp"
        if fresh != self._fresh:
            curl.setopt(pycurl.FRESH_CONNECT, int(fresh))
            self._fresh = fresh
        if self._once is origin.reusable:
            self._once = not origin.reusable
            curl.setopt(pycurl.FORBID_REUSE, int(self._once))
        if not self._proxied:
            # If the host is an address, the entry of an earlier request stays: it applies only to its own name.
            if origin.resolve:
                curl.setopt(pycurl.RESOLVE, origin.resolve)
        elif origin.scheme == "https" and not origin.literal:
            address = origin.addresses[0]
            curl.setopt(pycurl.CONNECT_TO, [f"::{f'[{address}]' if ':' in address else address}:{origin.port}"])
        else:
            # For http:// URLs, a proxy resolves the name itself.
            curl.unsetopt(pycurl.CONNECT_TO)

    def clear(self) -> None:
        """Release the response."""
        self.requested = False
        self.opened = -1
        self.starved = False
        self.head = bytearray()
        self.whole_head = False
        self.body: list[bytes] = []
        self.left = 0
        self.cut = False
        self.ftp = False
        self.trouble = ""
        self.refused: tuple[str, int, str] | None = None

    def _open(self, _purpose: int, peer: Any) -> _SocketForCurl | int:
        """The last check before a connection, for each address libcurl tries: the first refusal ends the transfer."""
        family, kind, protocol, where = peer
        if self.refused is None and family in (socket.AF_INET, socket.AF_INET6):
            address, port = where[0], where[1]
            if reason := self._guard.refuses(address, port, ftp=self.ftp):
                self.refused = (address, port, reason)
            else:
                try:
                    opened = _SocketForCurl(socket.socket(family, kind, protocol))
                    # pycurl duplicates the socket. If no file is left for that, `_opened` is not called.
                    self.starved = True
                    return opened
                except OSError as error:
                    self.starved = error.errno in EXHAUSTED
        bad: int = pycurl.SOCKET_BAD
        return bad

    def _opened(self, descriptor: int, _purpose: int) -> int:
        self.opened = descriptor
        self.starved = False
        done: int = pycurl.SOCKOPT_OK
        return done

    def _allow_request(self, *_: object) -> int:
        """Let the request be sent once.

        libcurl repeats it immediately, up to five times, if a reused connection ends without a response. The server may
        have received the first one, so the frontier decides about a retry, after the host's delay.
        """
        if self.requested:
            self.trouble = "lost connection"
        self.requested = True
        verdict: int = pycurl.PREREQFUNC_ABORT if self.trouble else pycurl.PREREQFUNC_OK
        return verdict

    def _take_head(self, line: bytes) -> int | None:
        if self.ftp:
            # Replies of the control connection, which only libcurl needs.
            return None
        if self.whole_head:
            # A complete head is followed by another one if it was a 1xx response or a proxy's, or by a trailer.
            if self.body or line[:5] != b"HTTP/":
                return None
            self.whole_head = False
            self.head = bytearray()
        self.head += line
        if line in (b"\r\n", b"\n"):
            self.whole_head = True
            # With stacked codings, a few bytes can cause much work without any output; no server needs them.
            if self.head.lower().count(_CODING) and len(self._codings()) > 1:
                self.trouble = "stacked codings"
                return 0
        return None

    def _codings(self) -> list[str]:
        named = ",".join(value for name, value in self.read_head() if name == "content-encoding").lower()
        return [coding for coding in (part.strip() for part in named.split(",")) if coding not in ("", "identity")]

    def _take_body(self, data: bytes) -> int | None:
        self.left -= len(data)
        if self.left >= 0:
            self.body.append(data)
            return None
        if self.cut:
            self.body.append(data[: self.left])
            self.trouble = "cut"
        else:
            self.body.clear()
            self.trouble = "too large"
        return 0

    def read_head(self) -> tuple[tuple[str, str], ...]:
        """The headers of the response in order, with names in lower case."""
        headers: list[tuple[str, str]] = []
        for line in self.head.decode("latin-1").split("\n")[1:]:
            if line[:1] in (" ", "\t"):
                # Obsolete folding: the line continues (RFC 9112 5.2).
                if headers and (more := line.strip(" \t\r")):
                    name, value = headers[-1]
                    headers[-1] = (name, f"{value} {more}" if value else more)
                continue
            raw, colon, value = line.partition(":")
            if colon and (name := _name(raw)):
                headers.append((name, value.strip(" \t\r")))
        return tuple(headers)

    def http_version(self) -> str:
        return _VERSIONS.get(self.curl.getinfo(pycurl.INFO_HTTP_VERSION), "")

    def close(self) -> None:
        self.curl.close()
