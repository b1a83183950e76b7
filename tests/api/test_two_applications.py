"""Two applications crawl one host at the same time: nothing that one of them does reaches the pages of the other."""

from __future__ import annotations

import contextlib
import itertools
import socketserver
import sqlite3
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.api.auth import create_token
from shoal.client import Client
from shoal.errors import ShoalError
from tests.api.process import ApiProcess, serve_api
from tests.servers import server, wait_until
from tests.system.shell import LOCAL, Shell

PAGES = 40
TOKENS = {app: create_token(f"submit:{app}") for app in ("a", "b")}
FRAMING = (
    "Content-Length", "Transfer-Encoding", "Connection", "Host", "Expect", "Proxy-Authorization", "TE", "Upgrade",
    "Trailer", "Keep-Alive", "HTTP2-Settings", "Proxy-Connection",
)  # fmt: skip
# A response that waits on a connection for the next request.
POISON = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 23\r\n\r\n<title>poisoned</title>\n"
LENGTH = b"Content-Length: %d\r\n" % len(POISON)
MALFORMED = (
    # The length is stated twice, and the body of one reading is the next response of the other.
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + LENGTH + b"\r\n" + POISON,
    b"HTTP/1.1 200 OK\r\n" + LENGTH + b"Content-Length: 0\r\n\r\n" + POISON,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + LENGTH + b"\r\n0\r\n\r\n" + POISON,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + POISON,
    # More than was announced.
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + POISON,
    b"HTTP/1.1 204 No Content\r\n\r\n" + POISON,
    b"HTTP/1.1 304 Not Modified\r\n\r\n" + POISON,
    # No HTTP, a length that is none, a chunk that is none, a header that is none.
    b"\r\n\r\nhello\r\n\r\n" + POISON,
    b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n" + POISON,
    b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999999\r\n\r\n" + POISON,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + POISON,
    b"HTTP/1.1 200 OK\r\n\0: 1\r\nContent-Length: 0\r\n\r\n" + POISON,
)


class _Site(socketserver.ThreadingTCPServer):
    """Answers /a/N with something malformed and /b/N with a page, and keeps every connection open."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.numbers = itertools.count()
        # Path, and the number of its connection, in the order of the requests.
        self.requests: list[tuple[str, int]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Connection(socketserver.StreamRequestHandler):
    server: _Site

    def handle(self) -> None:
        connection = next(self.server.numbers)
        with contextlib.suppress(OSError):
            while line := self.rfile.readline():
                while self.rfile.readline().strip():
                    pass
                path = line.split()[1].decode()
                self.server.requests.append((path, connection))
                self.wfile.write(_answer(path))
                self.wfile.flush()


def _answer(path: str) -> bytes:
    _, kind, *rest = path.split("/")
    if kind == "a":
        return MALFORMED[int(rest[0]) % len(MALFORMED)]
    if kind != "b":
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    links = "".join(f"<a href=/b/{n}>{n}</a>" for n in range(PAGES)) if rest[0] == "0" else ""
    body = f"<title>page {rest[0]}</title>{links}".encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


@pytest.fixture
def site() -> Iterator[_Site]:
    with _Site() as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        yield site
        site.shutdown()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiProcess]:
    tokens = "".join(f'{app} = "{line}"\n' for app, (_, line) in TOKENS.items())
    settings = f'[outputs]\nmain = "{tmp_path / "pages.db"}"\n[tokens]\n{tokens}'
    with (
        server(tmp_path / "store") as store,
        serve_api(tmp_path / "api", "--store", store.url, settings=settings) as api,
    ):
        shell = Shell(tmp_path / "api")
        shell.start("worker", "--store", store.url, *LOCAL, "--workers", "2")
        try:
            yield api
        finally:
            shell.close()


def client(api: ApiProcess, app: str) -> Client:
    api.clients.append(Client(api.url, token=TOKENS[app][0], timeout_seconds=60))
    return api.clients[-1]


def rows(path: Path, crawl: str) -> dict[str, dict[str, Any]]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        fetched = database.execute("SELECT * FROM pages WHERE crawl = ?", (crawl,)).fetchall()
    return {row["url"]: dict(row) for row in fetched}


@pytest.mark.full
def test_malformed_responses_to_one_application_reach_no_page_of_another(
    api: ApiProcess, site: _Site, tmp_path: Path
) -> None:
    a, b = client(api, "a"), client(api, "b")
    options = {"outputs": ["main"], "delay_seconds": 0, "retries": 0, "name": "same"}
    for name in FRAMING:
        with pytest.raises(ShoalError) as refused:
            a.submit(seeds=[f"{site.url}/a/0"], headers={name: "200"}, **options)
        sentence = str(refused.value)
        assert f"The header '{name}' is not allowed" in sentence
        assert sentence.count(". ") == 0
        assert sentence.endswith(".")
    assert site.requests == [], "nothing was sent for a refused crawl"

    a.submit(seeds=[f"{site.url}/a/{n}" for n in range(PAGES)], **options)
    b.submit(seeds=[f"{site.url}/b/0"], **options)
    wait_until(lambda: a.crawl("same")["state"] == b.crawl("same")["state"] == "finished", "both crawls are finished")

    expected = {f"{site.url}/b/{n}": f"page {n}" for n in range(PAGES)}
    stored = rows(tmp_path / "pages.db", "b:same")
    assert {url: row["title"] for url, row in stored.items()} == expected
    assert all(row["status"] == 200 for row in stored.values())
    # Nor has the first application read what lay in wait, as another page of its own.
    assert not {row["url"] for row in rows(tmp_path / "pages.db", "a:same").values() if row["title"] == "poisoned"}
    assert Counter(path for path, _ in site.requests if path.startswith("/b/")) == Counter(
        {f"/b/{n}": 1 for n in range(PAGES)}
    )
    # The test means something only if connections were kept, and both crawls ran at the same time.
    kinds = "".join(path[1] for path, _ in site.requests if path[1] in "ab")
    assert "ab" in kinds.lstrip("b")
    assert "ba" in kinds.lstrip("a")
    paths = defaultdict(list)
    for path, connection in site.requests:
        paths[connection].append(path)
    assert max(map(len, paths.values())) > 1, "no connection was kept"
    # After a malformed response, a connection has no further request.
    assert not [visited for visited in paths.values() if any(path.startswith("/a/") for path in visited[:-1])]
