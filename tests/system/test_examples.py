"""The example is run as its reader would run it, and checked by the web server's own log."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, urljoin

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/crawler.py"
DELAY_SECONDS = 1.0
PAGES = {
    "/": '<a href="/a">a</a> <a href="b/">b</a> <a href="/#top">top</a> <a href="mailto:me@example.org">me</a>',
    "/a": '<a href="/">home</a> <a href="/gone">gone</a> <a href="/moved">moved</a>',
    "/b/": '<a href="c?x=1">c</a> <a href="http://other.example/">elsewhere</a>',
    "/b/c?x=1": '<a href="../a">a</a>',
}
FAILING = {"/gone": 404, "/moved": 302}


@dataclass
class Site:
    """A small site on loopback. Notes of each request its path, start and end."""

    requests: list[tuple[str, float, float]] = field(default_factory=list)
    url: str = ""

    def walk(self) -> set[str]:
        """Every path that links lead to, by a walk that knows nothing of the crawler."""
        paths, todo = {"/"}, ["/"]
        while todo:
            path = todo.pop()
            for href in re.findall(r'href="([^"#]+)', PAGES.get(path, "")):
                link = urljoin(self.url + path, href)
                if link.startswith(self.url) and (fresh := link.removeprefix(self.url)) not in paths:
                    paths.add(fresh)
                    todo.append(fresh)
        return paths


@pytest.fixture
def site() -> Iterator[Site]:
    served = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            start = time.monotonic()
            self.send_response(FAILING.get(self.path, 200))
            self.send_header("Location", "/a")
            self.end_headers()
            body = PAGES.get(self.path, "").encode()
            # Noted before the last byte is sent: the visitor cannot have finished earlier.
            served.requests.append((self.path, start, time.monotonic()))
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def start(folder: Path, url: str) -> subprocess.Popen[str]:
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "no_proxy": "127.0.0.1"}
    return subprocess.Popen(
        [sys.executable, str(EXAMPLE), f"{url}/"], cwd=folder, env=environment, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out


def pages(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


def stored(site: Site) -> dict[str, str]:
    return {quote(site.url + path, ""): body for path, body in PAGES.items()}


def test_the_example_has_thirty_lines() -> None:
    text = EXAMPLE.read_text()
    docstring = ast.parse(text).body[0]
    code = text.splitlines()[docstring.end_lineno or 0 :]
    assert sum(bool(line.strip()) for line in code) <= 30


@pytest.mark.full
def test_the_example_visits_every_page_once_and_keeps_the_delay(site: Site, tmp_path: Path) -> None:
    out = finish(start(tmp_path, site.url))

    requested = Counter(path for path, _, _ in site.requests)
    assert set(requested) == site.walk() == {*PAGES, *FAILING}
    assert set(requested.values()) == {1}
    assert pages(tmp_path) == stored(site)
    assert "admitted=6" in out
    assert "stored=4, failed=2" in out
    assert "failed:<HTTPError 404: 'Not Found'>" in out
    gaps = [later[1] - earlier[2] for earlier, later in zip(site.requests, site.requests[1:], strict=False)]
    assert min(gaps) >= DELAY_SECONDS

    again = finish(start(tmp_path, site.url))
    assert again == out, "a finished crawl that is started again sends no requests"
    assert len(site.requests) == len(requested)
