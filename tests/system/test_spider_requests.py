"""Requests of spiders: method, body, headers and cookies reach the site, are deduplicated, and survive redirects."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal
from tests.site.dynamic import Reply, Request, moved, serving

pytestmark = pytest.mark.full

LOCAL = {"fetch.allow_networks": "127.0.0.0/8"}


def crawl(spider: type[shoal.Spider], *urls: str, **more: Any) -> list[Any]:
    return list(shoal.crawl(*urls, spider=spider, delay_seconds=0, settings=LOCAL, **more))


def echo(request: Request) -> Reply:
    """The request as JSON."""
    seen = {
        "method": request.method, "path": request.path, "body": request.body.decode("latin-1"),
        "type": request.headers.get("content-type", ""), "key": request.headers.get("x-key", ""),
        "accept": request.headers.get("accept", ""), "cookies": request.cookies,
    }  # fmt: skip
    return Reply(json.dumps(seen), type="application/json")


class Echoed(shoal.Spider):
    def read(self, page: shoal.Page) -> Iterator[Any]:
        yield page.json() | {"number": page.data["number"]}


@pytest.mark.smoke
def test_a_request_has_the_method_body_headers_and_cookies_that_its_spider_gives_it() -> None:
    class Asks(Echoed):
        def parse(self, page: shoal.Page) -> Iterator[Any]:
            every: list[dict[str, Any]] = [
                {"json": {"q": ["ü", 1]}},
                {"form": {"q": "a b&c", "many": ["1", "2"], "none": None}},
                {"body": "<x/>", "method": "put", "headers": {"Content-Type": "text/xml", "X-Key": "k"}},
                {"method": "DELETE"},
                {"form": {"q": "ü"}, "method": "GET"},
                {"headers": {"Accept": "application/json"}, "cookies": {"tide": "high", "b": "1"}},
            ]
            for number, request in enumerate(every):
                yield page.follow(f"/{number}?a=1", callback=self.read, data={"number": number}, **request)

    with serving(echo) as site:
        items = crawl(Asks, site.url)
    seen = [item for _, item in sorted((item.pop("number"), item) for item in items)]
    assert [item["method"] for item in seen] == ["POST", "POST", "PUT", "DELETE", "GET", "GET"]
    assert json.loads(seen[0]["body"].encode("latin-1")) == {"q": ["ü", 1]}
    assert (seen[0]["type"], seen[1]["type"]) == ("application/json", "application/x-www-form-urlencoded")
    assert seen[1]["body"] == "q=a+b%26c&many=1&many=2"
    assert (seen[2]["type"], seen[2]["body"], seen[2]["key"]) == ("text/xml", "<x/>", "k")
    assert (seen[4]["path"], seen[4]["body"], seen[3]["body"]) == ("/4?a=1&q=%C3%BC", "", "")
    # One header of a name: its own, not that of the crawl besides.
    assert (seen[5]["accept"], seen[5]["cookies"]) == ("application/json", {"tide": "high", "b": "1"})


@pytest.mark.smoke
def test_requests_that_differ_in_method_or_body_are_different_pages_with_separate_rows(tmp_path: Path) -> None:
    class Asks(Echoed):
        def parse(self, page: shoal.Page) -> Iterator[Any]:
            for number in range(3):
                for _ in range(2):
                    yield page.follow("/api", callback=self.read, data={"number": number}, json={"page": number})
            yield page.follow("/api", callback=self.read, data={"number": 3})
            yield page.follow("/api", callback=self.read, data={"number": 4}, method="PUT")
            # Headers do not make another page of it.
            yield page.follow("/api", callback=self.read, data={"number": 5}, headers={"X-Key": "1"})

    database = tmp_path / "pages.db"
    with serving(echo) as site:
        yielded = crawl(Asks, site.url, name="asks", outputs=[str(database)])
    assert sorted(item["number"] for item in yielded) == [0, 1, 2, 3, 4]
    requests = [(request.method, request.body) for request in site.requests_to("/api")]
    assert sorted(requests) == sorted([("GET", b""), ("PUT", b""), *(("POST", b'{"page":%d}' % n) for n in range(3))])
    with sqlite3.connect(database) as connection:
        pages = [row[0] for row in connection.execute("SELECT url FROM pages WHERE url LIKE '%api%' ORDER BY url")]
        items = [row[0] for row in connection.execute("SELECT url FROM items ORDER BY url")]
    assert pages == items
    assert [page.removeprefix(f"{site.url}/api")[:6] for page in pages] == ["", "#POST-", "#POST-", "#POST-", "#PUT"]
    assert len(set(pages)) == 5


@pytest.mark.parametrize(
    ("status", "method", "kept"),
    [(301, "POST", False), (302, "POST", False), (303, "POST", False), (303, "PUT", False), (307, "POST", True),
     (308, "POST", True), (302, "PUT", True), (302, "HEAD", True)],
)  # fmt: skip
def test_a_redirect_repeats_the_request_or_becomes_a_get(status: int, method: str, kept: bool) -> None:
    class Asks(Echoed):
        def start(self) -> Iterator[shoal.Follow]:
            body = b"" if method == "HEAD" else b"tide=high"
            headers = {"X-Key": "k", "Content-Type": "text/tide"}
            yield shoal.Follow(url=url, callback=self.read, method=method, body=body, headers=headers)

        def read(self, page: shoal.Page) -> Iterator[Any]:
            yield {"url": page.url}

    with serving(lambda request: moved("/end", status) if request.path == "/" else echo(request)) as site:
        url = f"{site.url}/"
        assert crawl(Asks) == [{"url": f"{url}end"}]
    (end,) = site.requests_to("/end")
    assert (end.method, end.body) == ((method, site.requests[0].body) if kept else ("GET", b""))
    assert end.headers["x-key"] == "k"
    assert end.headers.get("content-type") == ("text/tide" if kept else None)


def test_a_redirect_to_another_host_is_sent_neither_headers_nor_cookies() -> None:
    class Asks(Echoed):
        def start(self) -> Iterator[shoal.Follow]:
            yield shoal.Follow(
                url=f"{site.url}/", callback=self.read, data={"number": 1}, body="secret",
                headers={"X-Key": "k", "Authorization": "x"}, cookies={"tide": "high"},
            )  # fmt: skip

    def respond(request: Request) -> Reply:
        return moved(f"http://{site.hosts[1]}/end", 307) if request.host == site.hosts[0] else echo(request)

    with serving(respond, "127.0.0.1", "127.0.0.2") as site:
        crawl(Asks, scope="any")
    first, end = site.requests
    assert (first.headers["x-key"], first.cookies) == ("k", {"tide": "high"})
    assert (end.method, end.body) == ("POST", b"secret")
    assert not {"x-key", "authorization", "cookie"} & end.headers.keys()


@pytest.mark.smoke
def test_the_page_after_a_form_is_visited_even_if_it_was_visited_before() -> None:
    """POST, redirect, GET: the last response is the result of the POST."""

    class Asks(shoal.Spider):
        def parse(self, page: shoal.Page) -> Iterator[Any]:
            yield page.follow("/", callback=self.saved, form={"a": "1"})

        def saved(self, page: shoal.Page) -> Iterator[Any]:
            yield {"saved": page.url}

    with serving(lambda request: moved("/", 303) if request.method == "POST" else Reply("the list")) as site:
        assert crawl(Asks, site.url) == [{"saved": f"{site.url}/"}]
    assert [request.method for request in site.requests] == ["GET", "POST", "GET"]


def test_a_page_is_visited_again_if_the_spider_requests_it() -> None:
    class Polls(shoal.Spider):
        def parse(self, page: shoal.Page) -> Iterator[Any]:
            polls = page.data.get("polls", 0) + 1
            yield {"polls": polls}
            if polls < 4:
                yield page.follow(page.url, data={"polls": polls}, dont_filter=True)
                yield page.follow(page.url, data={"polls": polls})

    with serving(lambda request: Reply("same")) as site:
        assert [item["polls"] for item in crawl(Polls, site.url)] == [1, 2, 3, 4]
    assert len(site.requests) == 4


def test_a_failed_post_is_retried_with_its_body() -> None:
    class Asks(Echoed):
        def parse(self, page: shoal.Page) -> Iterator[Any]:
            yield page.follow("/api", callback=self.read, data={"number": 1}, json={"a": 1})

    def respond(request: Request) -> Reply:
        if request.path == "/api" and len(site.requests_to("/api")) < 3:
            return Reply("busy", 500)
        return echo(request)

    with serving(respond) as site:
        (item,) = crawl(Asks, site.url)
    assert item["body"] == '{"a":1}'
    assert [request.body for request in site.requests_to("/api")] == [b'{"a":1}'] * 3


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"headers": {"Content-Length": "1"}}, "The header 'Content-Length' is not allowed"),
        ({"headers": {"Host": "x"}}, "The header 'Host' is not allowed"),
        ({"headers": {"User-Agent": "x"}}, "use user_agent"),
        ({"headers": {"X": 1}}, "both must be str"),
        ({"method": "CONNECT"}, "The method 'CONNECT' is not allowed"),
        ({"method": "GET /"}, "is not allowed"),
        ({"cookies": {"a": "1;2"}}, "has a semicolon"),
        ({"cookies": ["a"]}, "cookies"),
        ({"json": {1, 2}, "form": {"a": "b"}}, "both form and json"),
        ({"json": object()}, "json of a request"),
        ({"body": 3}, "it must be bytes or a str"),
        ({"body": "x" * 50_000}, "the limit is about 48,000"),
        ({"callback": lambda page: None}, "pass a method of the spider"),
        ({"callback": "_private"}, "no method _private"),
    ],
)  # fmt: skip
def test_an_impossible_request_fails_its_page_with_one_sentence(
    request_: dict[str, Any], sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    class Asks(Echoed):
        def parse(self, page: shoal.Page) -> Iterator[Any]:
            yield shoal.Follow(**{"url": "/api", **request_})

    with serving(echo) as site:
        crawl = shoal.crawl(site.url, spider=Asks, delay_seconds=0, settings=LOCAL)
        assert list(crawl) == []
        assert crawl.counts.failed == 1
    if request_.get("callback") != "_private":
        assert sentence in capfd.readouterr().err
        assert not site.requests_to("/api")
