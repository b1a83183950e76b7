"""Four small web sites for `shoal demo`, served on ports of 127.0.0.1, and the log of their requests.

Each site is one host to Shoal. The web servers write the log: when each request came and when it was answered.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import NamedTuple

# Much shorter than is polite on the web; these servers are our own.
DELAY_SECONDS = 0.1
CRAWL_DELAY_SECONDS = 0.3
BUSY_SECONDS = 1
_TITLES = {
    "library": ("Atlas", "Botany", "Comets", "Deserts", "Etching", "Fables", "Glass", "Harbours", "Islands", "Jade"),
    "news": ("Bridge reopens", "Rain at last", "Chess final", "New ferry", "Old mill", "Market day", "Night train"),
    "museum": ("Clocks", "Coins", "Maps", "Masks", "Ships"),
    "shop": ("Bread", "Candles", "Honey", "Ink", "Lamps", "Paper", "Rope", "Soap", "Tea"),
}
_ROBOTS = {
    "news": "User-agent: *\nDisallow: /drafts/\n",
    "museum": f"User-agent: *\nCrawl-delay: {CRAWL_DELAY_SECONDS}\n",
}
_DRAFTS = ("/drafts/election", "/drafts/merger")


class LoggedRequest(NamedTuple):
    """One line of a web server's log. Times are seconds since the sites started."""

    site: str
    path: str
    status: int
    start: float
    end: float


class Sites:
    """The sites, by name; `log` has every request that was answered."""

    def __init__(self) -> None:
        self.ports: dict[str, int] = {}
        self.log: list[LoggedRequest] = []
        self._started_mono = time.monotonic()
        self._lock = threading.Lock()
        self._pages: dict[str, dict[str, str]] = {}

    def host(self, site: str) -> str:
        return f"127.0.0.1:{self.ports[site]}"

    def seeds(self) -> list[str]:
        return [f"http://{self.host(site)}/" for site in self.ports]

    def stored(self) -> set[str]:
        """The URLs that a crawl must have stored at its end."""
        pages = {f"http://{self.host(site)}{path}" for site, pages in self._pages.items() for path in pages}
        return pages - {f"http://{self.host('news')}{path}" for path in _DRAFTS}

    def delay(self, site: str) -> float:
        return CRAWL_DELAY_SECONDS if site == "museum" else DELAY_SECONDS

    def requests(self, site: str) -> list[LoggedRequest]:
        return sorted((request for request in self.log if request.site == site), key=lambda request: request.start)

    def open_at_once(self, site: str) -> int:
        requests = self.requests(site)
        return max(sum(r.start <= request.start < r.end for r in requests) for request in requests)

    def smallest_gap(self, site: str) -> float:
        return min(late.start - early.end for early, late in pairwise(self.requests(site)))

    def waited_after_busy(self) -> float:
        """Seconds from the 503 response to the next request to that host."""
        return next(late.start - early.end for early, late in pairwise(self.requests("shop")) if early.status == 503)

    @contextmanager
    def served(self) -> Iterator[None]:
        with ExitStack() as stack:
            for site in _TITLES:
                server = stack.enter_context(_Server(("127.0.0.1", 0), _handler(self, site)))
                threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
                stack.callback(server.shutdown)
                self.ports[site] = server.server_port
            self._pages = {site: self._create_pages(site) for site in self.ports}
            yield

    def answer(self, site: str, path: str) -> tuple[int, dict[str, str], str]:
        """Status, headers and body."""
        if path == "/robots.txt" and site in _ROBOTS:
            return 200, {"Content-Type": "text/plain"}, _ROBOTS[site]
        if site == "library" and path == "/catalogue":
            return 301, {"Location": "/all-books"}, ""
        if site == "shop" and path == "/offers":
            return 302, {"Location": f"http://{self.host('news')}/today"}, ""
        if site == "shop" and path == "/tea" and not any(r.path == "/tea" for r in self.requests(site)):
            return 503, {"Retry-After": str(BUSY_SECONDS)}, "Sold out; come back in a moment."
        body = self._pages[site].get(path)
        if body is None:
            return 404, {"Content-Type": "text/html"}, "<title>Not found</title>"
        return 200, {"Content-Type": "text/html; charset=utf-8"}, body

    def add_to_log(self, site: str, path: str, status: int, start: float) -> None:
        with self._lock:
            self.log.append(LoggedRequest(site, path, status, start, self.now()))

    def now(self) -> float:
        return time.monotonic() - self._started_mono

    def _create_pages(self, site: str) -> dict[str, str]:
        """Return every page of a site: a start page with links, and pages that link to the next and to another site."""
        titles = {f"/{title.lower().replace(' ', '-')}": title for title in _TITLES[site]}
        paths = list(titles)
        sites = list(_TITLES)
        neighbour = sites[(sites.index(site) + 1) % len(sites)]
        extra = {
            "library": ["/catalogue", "/lost-book"],
            "news": list(_DRAFTS),
            "museum": ["https://museum.example/"],
            "shop": ["/offers"],
        }[site]
        # The start page links to half of the pages; the others are found through links.
        pages = {"/": _page(f"The {site}", [*paths[::2], *extra])}
        for number, (path, title) in enumerate(titles.items()):
            onward = paths[(number + 1) % len(paths)]
            pages[path] = _page(title, ["/", onward, f"http://{self.host(neighbour)}/"])
        # No page links to these two: only a redirect leads to each.
        if site == "library":
            pages["/all-books"] = _page("All books", ["/"])
        if site == "news":
            pages["/today"] = _page("Offers of today", ["/"])
            pages |= {path: _page("A draft", ["/"]) for path in _DRAFTS}
        return pages


def _page(title: str, links: list[str]) -> str:
    listed = "".join(f'<li><a href="{link}">{link}</a></li>' for link in links)
    return f"<!doctype html><html lang=en><title>{title}</title><h1>{title}</h1><ul>{listed}</ul></html>"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Ignore the error: a crawler that was stopped does not read its response."""


def _handler(sites: Sites, site: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            start = sites.now()
            status, headers, body = sites.answer(site, self.path)
            data = body.encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            # Logged before anything is sent: the crawler cannot have finished earlier, even if the body is empty.
            sites.add_to_log(site, self.path, status, start)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
