"""A site whose responses depend on the whole request: forms, cookies, redirects. In threads of the test.

with serving(respond, "127.0.0.1", "127.0.0.2") as site:
    ...
    assert [request.method for request in site.requests] == ["GET", "POST"]
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Request:
    """A request as it was received. The names of its headers are in lower case."""

    host: str
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def cookies(self) -> dict[str, str]:
        pairs = (pair.strip().partition("=") for pair in self.headers.get("cookie", "").split(";"))
        return {name: value for name, mark, value in pairs if mark}


@dataclass(frozen=True)
class Reply:
    body: str = ""
    status: int = 200
    headers: Headers = ()
    type: str = "text/html; charset=utf-8"


def moved(location: str, status: int = 302, *headers: tuple[str, str]) -> Reply:
    return Reply("Elsewhere.", status, (("Location", location), *headers))


@dataclass
class DynamicSite:
    hosts: list[str] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://{self.hosts[0]}"

    def requests_to(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path.partition("?")[0] == path]


@contextlib.contextmanager
def serving(respond: Callable[[Request], Reply | None], *addresses: str) -> Iterator[DynamicSite]:
    """`respond` returns None for a path that the site does not have. The site has no robots.txt."""
    site = DynamicSite()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _respond(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", 0)))
            request = Request(headers["host"], self.command, self.path, headers, body)
            if self.path != "/robots.txt":
                site.requests.append(request)
            reply = (respond(request) if self.path != "/robots.txt" else None) or Reply("None here.", 404)
            content = reply.body.encode()
            self.send_response(reply.status)
            for name, value in (("Content-Type", reply.type), *reply.headers, ("Content-Length", str(len(content)))):
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = _respond

        def log_message(self, *args: object) -> None:
            pass

    servers = [ThreadingHTTPServer((address, 0), Handler) for address in addresses or ("127.0.0.1",)]
    for server in servers:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        site.hosts.append(f"{server.server_address[0]!s}:{server.server_port}")
    try:
        yield site
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
