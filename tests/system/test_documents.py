"""A crawl of real documents, compared URL by URL with a walk that shares no code with Shoal.

The walk asks the same nginx on addresses of its own, reads pages with html.parser and joins links with urllib. A URL is
compared as it is requested: the fragment is gone, the query is kept, `/` and `/index.html` are two URLs, and what may
not stand in a URL is percent-encoded on both sides.
"""

from __future__ import annotations

import http.client
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, urldefrag, urljoin, urlsplit

import pytest

from tests.system.documents import HANDBOOK, POSTGRESQL, PYTHON, Missing, Tree, Web

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN = "/whatsnew/"
CLOSED_PYTHON = replace(PYTHON, robots=f"User-agent: *\nDisallow: {FORBIDDEN}\n")
# The first address of each tree is the walk's.
TREES = [(CLOSED_PYTHON, 1 + 2), (POSTGRESQL, 1 + 3), (HANDBOOK, 1 + 8)]
ABSENT = "/no-such-page.html"
CRAWL_SECONDS = 240


@dataclass(frozen=True)
class Response:
    status: int
    is_html: bool


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    try:
        with Web(tmp_path / "web", TREES) as running:
            yield running
    except Missing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.mark.full
def test_a_crawl_stores_exactly_the_pages_that_a_reference_crawl_finds(web: Web, tmp_path: Path) -> None:
    walks = {tree: walk(web.sites(tree)[0], tree) for tree, _ in TREES}
    assert all(sum(response.is_html for response in responses.values()) > 100 for responses in walks.values())
    assert any(
        response.status == 200 and not response.is_html
        for responses in walks.values()
        for response in responses.values()
    )
    mark = web.mark()
    seeds = [site + path for tree, _ in TREES for site in web.sites(tree)[1:] for path in (tree.start, ABSENT)]

    rows = crawl(tmp_path, seeds)

    expected = {
        site + path: response
        for tree in walks
        for site in web.sites(tree)[1:]
        for path, response in walks[tree].items()
    }
    stored = Counter(url for url, *_ in rows)
    assert not [url for url, times in stored.items() if times > 1], "stored more than once"
    assert sorted(set(expected) - set(stored)) == [], "found by the walk alone"
    assert sorted(set(stored) - set(expected)) == [], "found by the crawl alone"
    for url, status, error, content_type, title, text in rows:
        response = expected[url]
        assert status == response.status, url
        if status != 200:
            assert error == f"status {status}", url
            continue
        assert not error, url
        assert content_type.startswith("text/html") == response.is_html, url
        assert bool(title and text) == response.is_html, url

    requested = Counter(web.site(request.address) + request.path for request in web.requests(mark))
    robots = {url: times for url, times in requested.items() if urlsplit(url).path == "/robots.txt"}
    assert robots == {site + "/robots.txt": 1 for tree in walks for site in web.sites(tree)[1:]}
    assert {url: times for url, times in requested.items() if url not in robots} == dict.fromkeys(expected, 1)


def crawl(folder: Path, seeds: list[str]) -> list[tuple[str, int, str | None, str, str, str]]:
    (folder / "seeds").write_text("".join(f"{seed}\n" for seed in seeds))
    done = subprocess.run(
        [
            sys.executable, "-m", "shoal", "crawl", "--seeds", "seeds", "--workers", "2", "--out", "pages.db",
            "--delay", "0", "--scope", "host", "--folder", "shoal", "--name", "documents",
            "--allow-network", "127.0.0.0/8", "--user-agent", "ShoalTest/1.0 (+https://example.org/bot)",
        ],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=CRAWL_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    with sqlite3.connect(folder / "pages.db") as database:
        return list(database.execute("SELECT url, status, error, content_type, title, text FROM pages"))


def walk(site: str, tree: Tree) -> dict[str, Response]:
    """What a crawl of the site should store, by path: everything links lead to, breadth first."""
    host = urlsplit(site).netloc
    connection = http.client.HTTPConnection(host)
    waiting, seen, responses = [tree.start, ABSENT], {tree.start, ABSENT}, {}
    for path in waiting:  # It grows while it is walked.
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        is_html = response.status == 200 and (response.getheader("Content-Type") or "").startswith("text/html")
        links = Links(body.decode(errors="replace")).targets if is_html else []
        if response.status in (301, 302):
            links = [response.getheader("Location") or ""]
        else:
            responses[path] = Response(response.status, is_html)
        for link in links:
            parts = urlsplit(urldefrag(urljoin(site + path, link.strip())).url)
            target = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._|[]^") + (
                f"?{parts.query}" if parts.query else ""
            )
            if parts.scheme == "http" and parts.netloc == host and target not in seen:
                seen.add(target)
                if not (tree.robots and target.startswith(FORBIDDEN)):
                    waiting.append(target)
    connection.close()
    return responses


class Links(HTMLParser):
    """The links a crawl follows; those marked nofollow only where another link leads there too."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in reversed(attrs)}
        relations = named.get("rel", "").lower().split()
        target = named.get("src" if tag in ("iframe", "frame") else "href")
        followed = tag in ("a", "area", "iframe", "frame") or (tag == "link" and "next" in relations)
        if followed and target is not None and "nofollow" not in relations:
            self.targets.append(target)
