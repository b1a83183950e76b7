"""Cookie jars and logins: what a site sets is kept in the store, shared by the fleet, and sent nowhere else."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

import shoal
from tests.servers import server
from tests.site.dynamic import DynamicSite, Reply, Request, moved, serving
from tests.system.shell import Shell

pytestmark = pytest.mark.full

LOCAL = {"fetch.allow_networks": "127.0.0.0/8"}
SECRET = "s3cret-session"
FORM = '<form id=login method=post action=/login><input type=hidden name=token value="t&amp;1"><input name=user>'
FORM += "<input name=password type=password><button name=go value=1>Log in</button></form>"
MEMBERS = 12


def members(request: Request) -> Reply | None:
    """A site with a login. Each of its pages for members leads to more of them."""
    path = request.path.partition("?")[0]
    inside = request.cookies.get("session") == SECRET
    if path == "/login":
        if request.method == "GET":
            return Reply(FORM, headers=(("Set-Cookie", "seen=1; Path=/"),))
        if request.body == b"token=t%261&user=ann&password=tide&go=1" and request.cookies.get("seen"):
            return moved("/members/0", 303, ("Set-Cookie", f"session={SECRET}; Path=/; HttpOnly; Max-Age=3600"))
        return moved("/login", 302)
    if path.startswith("/members/"):
        if not inside:
            return moved("/login", 302)
        number = int(path.rpartition("/")[2])
        links = "".join(f'<a href="/members/{n}">{n}</a>' for n in range(number, min(number + 4, MEMBERS)))
        return Reply(f"<title>Member {number}</title>{links}")
    return None


SPIDER = """
import shoal

class Club(shoal.Spider):
    def start(self):
        yield shoal.Follow(url=SITE + "/login", callback=self.login)

    def login(self, page):
        yield page.submit("#login", {"user": "ann", "password": "tide"}, callback=self.member)

    def member(self, page):
        yield {"member": page.title}
        yield from page.follow("a", callback=self.member)
"""


@pytest.fixture
def club() -> Iterator[DynamicSite]:
    with serving(members) as site:
        yield site


@pytest.mark.smoke
def test_a_spider_logs_in_by_a_form_and_several_workers_crawl_the_pages_of_members(
    club: DynamicSite, shell: Shell
) -> None:
    (shell.folder / "club.py").write_text(f"SITE = {club.url!r}\n{SPIDER}")
    with server(shell.folder / "store") as store:
        where = ("--store", store.url)
        result = shell.crawl(
            "--spider", "club.py:Club", "--name", "club", "--delay", "0", "--per-host", "3", "--workers", "3",
            "--out", "club.db", "--out", "club.jsonl", *where,
        )  # fmt: skip
        assert result.code == 0, result.err
        with contextlib.closing(sqlite3.connect(shell.folder / "club.db")) as connection:
            items = [json.loads(row[0])["member"] for row in connection.execute("SELECT data FROM items")]
            dumped = "\n".join(connection.iterdump())
        assert sorted(items) == sorted(f"Member {n}" for n in range(MEMBERS))
        # One worker logged in, once.
        assert [request.method for request in club.requests_to("/login")] == ["GET", "POST"]
        assert all(request.cookies == {"seen": "1", "session": SECRET} for request in club.requests_to("/members/5"))
        # No command shows the cookie.
        shown = [
            shell.run(*args, *where) for args in (("show", "club"), ("show", "club", "--json"), ("failed", "club"))
        ]
        texts = [
            result.err + result.out,
            dumped,
            (shell.folder / "club.jsonl").read_text(),
            *(shown_jar.out for shown_jar in shown),
        ]
        assert not any(SECRET in text for text in texts)
        # The jar is in the store, and goes with its crawl.
        assert SECRET in str(store.ask("HGETALL", *store.ask("KEYS", "*jars:*")))
        assert shell.run("delete", "club", *where).code == 0
        assert store.ask("KEYS", "*jars:*") == []


class Visits(shoal.Spider):
    """Visits the paths that it is given, one after the other, and yields the cookies it sent."""

    paths = ("/1", "/2", "/3")

    def parse(self, page: shoal.Page) -> Iterator[Any]:
        yield page.json()
        rest = page.data.get("rest", list(self.paths))
        if rest:
            yield page.follow(rest[0], data={"rest": rest[1:]})


def _echo(request: Request, *headers: tuple[str, str]) -> Reply:
    return Reply(json.dumps({"path": request.path, **request.cookies}), headers=headers, type="application/json")


def _crawl(site: DynamicSite, spider: type[shoal.Spider] = Visits, **more: Any) -> list[Any]:
    return list(shoal.crawl(f"{site.url}/0", spider=spider, delay_seconds=0, settings=LOCAL, **more))


@pytest.mark.smoke
def test_cookies_are_kept_between_pages_unless_disabled() -> None:
    def respond(request: Request) -> Reply:
        sets = {"/0": "a=1", "/1": "b=2; Path=/2", "/2": "a=; Max-Age=0"}
        return _echo(request, *((("Set-Cookie", sets[request.path]),) if request.path in sets else ()))

    with serving(respond) as site:
        assert _crawl(site) == [
            {"path": "/0"}, {"path": "/1", "a": "1"}, {"path": "/2", "b": "2", "a": "1"}, {"path": "/3"},
        ]  # fmt: skip
        assert _crawl(site, cookie_jar="off") == [{"path": f"/{n}"} for n in range(4)]
        # Without a spider, only on request.
        site.requests.clear()
        list(shoal.crawl(f"{site.url}/0", f"{site.url}/1", delay_seconds=0, settings=LOCAL))
        assert not any(request.cookies for request in site.requests)
        list(shoal.crawl(f"{site.url}/0", f"{site.url}/1", delay_seconds=0, settings=LOCAL, cookie_jar="host"))
        assert any(request.cookies for request in site.requests)


def test_a_cookie_is_not_sent_to_another_host() -> None:
    def respond(request: Request) -> Reply:
        other = f"http://{site.hosts[1]}/"
        if request.host == site.hosts[0]:
            return Reply(
                f'<a href="{other}">x</a>', headers=(("Set-Cookie", "a=1; Domain=127.0.0.2"), ("Set-Cookie", "b=2"))
            )
        return _echo(request)

    class Both(shoal.Spider):
        def parse(self, page: shoal.Page) -> Iterator[Any]:
            yield {"url": page.url}
            yield from page.follow("a")

    with serving(respond, "127.0.0.1", "127.0.0.2") as site:
        assert len(_crawl(site, Both, scope="any")) == 2
    assert "cookie" not in site.requests[-1].headers


def test_cookies_of_a_request_join_those_of_the_crawl_and_of_the_jar() -> None:
    class Gives(Visits):
        def start(self) -> Iterator[shoal.Follow]:
            yield shoal.Follow(url=f"{site.url}/0", cookies={"currency": "EUR"})

    def respond(request: Request) -> Reply:
        return _echo(request, *((("Set-Cookie", "a=1"),) if request.path == "/0" else ()))

    with serving(respond) as site:
        first, second, *_ = list(shoal.crawl(spider=Gives, delay_seconds=0, settings=LOCAL, cookie="own=1; a=0"))
    assert first == {"path": "/0", "currency": "EUR", "own": "1", "a": "0"}
    # It stays in the jar, and cookies of the site take precedence over initial cookies of the crawl.
    assert second == {"path": "/1", "currency": "EUR", "own": "1", "a": "1"}


def test_a_page_that_redirects_to_itself_with_a_cookie_is_visited_again() -> None:
    def respond(request: Request) -> Reply:
        if request.path == "/consent":
            return moved("/0", 302, ("Set-Cookie", "ok=1; Path=/"))
        return _echo(request) if request.cookies.get("ok") else moved("/consent")

    with serving(respond) as site:
        assert _crawl(site)[0] == {"path": "/0", "ok": "1"}
    assert [request.path for request in site.requests][:3] == ["/0", "/consent", "/0"]
    # Without end it is a loop still.
    with serving(lambda request: moved("/0", 302, ("Set-Cookie", f"n={len(site.requests)}"))) as site:
        crawl = shoal.crawl(f"{site.url}/0", spider=Visits, delay_seconds=0, settings=LOCAL)
        assert list(crawl) == []
        assert crawl.counts.reasons == {"failed:too many redirects": 1, "excluded:redirect": 20}
