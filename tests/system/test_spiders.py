"""Spiders from the command line: items in the outputs, several spiders on one store, and errors in spiders."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import server, wait_until
from tests.site.responses import page, redirect, robots
from tests.site.site import Site
from tests.system.shell import LOCAL, Shell

pytestmark = pytest.mark.full

BOOKS = """
import os
import shoal

class Books(shoal.Spider):
    def parse(self, page):
        for book in page.css("article.book"):
            yield {"title": book.css_first("h3").text(), "on": page.url}
        yield from page.follow("a.next")
        yield from page.follow("a.author", callback="author", data={"list": page.url}, spider=os.environ.get("TO", ""))

    def author(self, page):
        print(".", end="", flush=True)
        yield {"author": page.title, "from": page.data["list"]}

    def failed(self, url, error):
        yield {"gone": url, "why": error}


class Authors(Books):
    pass
"""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    (tmp_path / "here").mkdir()
    shell = Shell(tmp_path / "here")
    (shell.folder / "books.py").write_text(BOOKS)
    yield shell
    shell.close()


def _shelf(site: Site, pages: int) -> str:
    """A list of several pages, each with a book and an author behind a redirect; the last leads nowhere."""
    (host,) = site.take()
    for n in range(pages):
        body = f'<article class=book><h3>Book {n}</h3></article><a class=next href="/list/{n + 1}">next</a>'
        body += f'<a class=author href="/to/author/{n}">author</a><a href="/other/{n}">not followed</a>'
        site.at(host, f"/list/{n}", page(body=body))
        site.at(host, f"/to/author/{n}", redirect(f"/author/{n}"))
        site.at(host, f"/author/{n}", page(title=f"Author {n}"))
    return f"http://{host}"


def _expected(root: str, pages: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for n in range(pages):
        items.append({"title": f"Book {n}", "on": f"{root}/list/{n}"})
        items.append({"author": f"Author {n}", "from": f"{root}/list/{n}"})
    return [*items, {"gone": f"{root}/list/{pages}", "why": "status 404"}]


def _items(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".db":
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return [json.loads(row[0]) for row in connection.execute("SELECT data FROM items")]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in row.items() if not name.startswith("_")} for row in rows]


def _same(items: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert sorted(map(json.dumps, items)) == sorted(map(json.dumps, expected))


@pytest.mark.smoke
def test_a_spider_yields_items_and_requests(site: Site, shell: Shell) -> None:
    root = _shelf(site, 4)
    result = shell.crawl(
        f"{root}/list/0", "--spider", "books.py:Books", "--delay", "0.02", "--out", "b.db", "--out", "b.jsonl"
    )  # fmt: skip
    assert result.code == 0, result.err
    _same(_items(shell.folder / "b.db"), _expected(root, 4))
    _same(_items(shell.folder / "b.jsonl"), _expected(root, 4))
    rows = shell.rows("b.db")
    assert set(rows) == {f"{root}/{kind}/{n}" for kind in ("list", "author") for n in range(4)} | {f"{root}/list/4"}
    assert {row["spider"] for row in rows.values()} == {"Books"}
    # What it prints, without the end of a line, hides no report of its worker.
    assert '"cpu_seconds"' not in result.err
    judge = site.judge(root.removeprefix("http://"))
    assert not judge.impolite(0.02)
    assert not any(request.path.startswith("/other/") for request in site.requests(root.removeprefix("http://")))


def test_without_urls_a_crawl_starts_at_the_start_urls_of_the_spider(site: Site, shell: Shell) -> None:
    root = _shelf(site, 1)
    (shell.folder / "mine.py").write_text(
        f"from books import Books\nimport shoal\n\nclass Mine(Books):\n    name = 'my-books'\n\n    def start(self):\n"
        f"        yield shoal.Follow(url='{root}/author/0', callback='author', data={{'list': 'start'}})\n"
    )
    result = shell.crawl("--spider", "mine.py:Mine", "--delay", "0", "--out", "b.jsonl", "--name", "mine")
    assert result.code == 0, result.err
    assert _items(shell.folder / "b.jsonl") == [{"author": "Author 0", "from": "start"}]
    assert shell.counts("mine")["limits"]["spider"] == "my-books"


def test_two_spiders_with_separate_workers_serve_one_crawl(site: Site, shell: Shell, tmp_path: Path) -> None:
    root = _shelf(site, 3)
    shell.environ["TO"] = "Authors"
    with server(tmp_path / "store") as store:
        where = ("--store", store.url)
        crawl = shell.start(
            "crawl", f"{root}/list/0", "--spider", "books.py:Books", "--delay", "0.02", "--name", "two",
            "--out", "b.jsonl", "--workers", "1", *where, *LOCAL,
        )  # fmt: skip
        # Lists are read; no worker has the spider of the authors, which the command and the status report.
        crawl.wait_for_output("waiting: no worker has spider Authors")
        status = shell.counts("two", *where)
        assert status["waiting"] == ["waiting: no worker has spider Authors"]
        assert not any("author" in request.path for request in site.requests(root.removeprefix("http://")))
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "people.py").write_text((shell.folder / "books.py").read_text())
        other = Shell(elsewhere)
        try:
            other.start("worker", "--spider", "people.py:Authors", "--workers", "1", *where, *LOCAL)
            result = crawl.end()
        finally:
            other.close()
    assert result.code == 0, result.err
    _same(_items(shell.folder / "b.jsonl"), _expected(root, 3))
    assert not site.judge(root.removeprefix("http://")).impolite(0.02)


@pytest.mark.smoke
def test_an_exception_fails_its_page_with_the_traceback_and_nothing_else(site: Site, shell: Shell) -> None:
    root = _shelf(site, 3)
    spider = "from books import Books\n\nclass Bad(Books):\n    def author(self, page):\n"
    spider += "        if page.title == 'Author 1':\n            raise KeyError('one')\n"
    spider += "        return {'author': page.title, 'from': page.data['list']}\n"
    (shell.folder / "bad.py").write_text(spider)
    result = shell.crawl(f"{root}/list/0", "--spider", "bad.py:Bad", "--delay", "0", "--out", "b.db", "--name", "bad")
    assert result.code == 0, result.err
    expected = [item for item in _expected(root, 3) if item.get("author") != "Author 1"]
    # The spider gets its own failures, too.
    _same(_items(shell.folder / "b.db"), [*expected, {"gone": f"{root}/author/1", "why": "spider: KeyError"}])
    error = shell.rows("b.db")[f"{root}/author/1"]["error"]
    assert error.startswith("spider: KeyError\nTraceback")
    assert "bad.py" in error
    assert "KeyError: 'one'" in result.err
    assert shell.counts("bad")["failed"] == {"spider: KeyError": 1, "status 404": 1}


def test_a_spider_that_ends_its_process_is_detected_and_its_page_fails(site: Site, shell: Shell) -> None:
    root = _shelf(site, 2)
    spider = "import os\nfrom books import Books\n\nclass Deadly(Books):\n    async def author(self, page):\n"
    spider += "        if page.title == 'Author 1':\n            os.abort()\n        return {'author': page.title}\n"
    (shell.folder / "deadly.py").write_text(spider)
    result = shell.crawl(
        f"{root}/list/0", "--spider", "deadly.py:Deadly", "--delay", "0", "--workers", "1", "--out", "b.db",
        "--name", "d", seconds=90,
    )  # fmt: skip
    assert result.code == 0, result.err
    assert shell.counts("d")["failed"] == {"poison": 1, "status 404": 1}
    assert len(_items(shell.folder / "b.db")) == 4


def test_a_killed_crawl_with_a_spider_is_resumed_and_loses_and_repeats_nothing(site: Site, shell: Shell) -> None:
    root = _shelf(site, 40)
    typed = ("crawl", f"{root}/list/0", "--spider", "books.py:Books", "--delay", "0.03", "--name", "k", *LOCAL)
    outputs = ("--out", "b.db", "--out", "b.jsonl", "--workers", "2")
    crawl = shell.start(*typed, *outputs)
    crawl.wait_for_output("Starting crawl")
    host = root.removeprefix("http://")
    wait_until(lambda: len(site.requests(host)) > 20, "some pages are fetched")
    pids = [*crawl.workers(), crawl.process.pid]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    crawl.process.wait()
    result = shell.run("crawl", "--name", "k", *LOCAL)
    assert result.code == 2
    assert "uses the spider Books; pass --spider FILE.py:Books" in result.err
    result = shell.run(*typed, *outputs, seconds=120)
    assert result.code == 0, result.err
    assert "Resuming crawl" in result.err
    _same(_items(shell.folder / "b.db"), _expected(root, 40))
    _same(_items(shell.folder / "b.jsonl"), _expected(root, 40))
    assert not site.judge(host).impolite(0.03)


def test_requests_of_a_spider_obey_the_scope_and_robots_txt(site: Site, shell: Shell) -> None:
    here, there = site.take(2)
    links = f'<a class=next href="http://{there}/list/1">other host</a><a class=next href="ftp://{here}/">no</a>'
    site.at(here, "/list/0", page(body=links + '<a class=next href="/list/2">2</a><a class=next href="/no">no</a>'))
    site.at(
        here, "/list/2", page(body='<a class=next href="/list/3">3</a>', head="<meta name=robots content=nofollow>")
    )
    site.at(here, "/robots.txt", robots("User-agent: *\nDisallow: /no\n"))
    result = shell.crawl(f"http://{here}/list/0", "--spider", "books.py:Books", "--delay", "0", "--out", "b.db")
    assert result.code == 0, result.err
    assert {request.path for request in site.requests(here)} == {"/robots.txt", "/list/0", "/list/2"}
    assert not site.requests(there)


@pytest.mark.parametrize(
    ("spider", "sentence"),
    [
        ("books.py:Bokks", "No spider Bokks in books.py; it has Books, Authors."),
        ("none.py:Books", "Spider file not found"),
        ("books.py", "use FILE.py:Class"),
    ],
)
def test_a_missing_spider_is_reported_in_one_sentence(shell: Shell, spider: str, sentence: str) -> None:
    for command in (("crawl", "http://127.0.0.1:1/"), ("worker",)):
        result = shell.run(*command, "--spider", spider)
        assert result.code == 2, result.err
        assert sentence in result.err
        assert result.err.count("\n") == 1
    assert not (shell.folder / ".shoal").exists()


def test_spiders_are_registered_by_name_in_the_settings(site: Site, shell: Shell) -> None:
    root = _shelf(site, 1)
    (shell.folder / "shoal.toml").write_text('[spiders]\nshelf = "books.py:Books"\n[outputs]\nmine = "items.jsonl"\n')
    result = shell.crawl(f"{root}/list/0", "--spider", "shelf", "--delay", "0", "--out", "mine", "--name", "r")
    assert result.code == 0, result.err
    _same(_items(shell.folder / "items.jsonl"), _expected(root, 1))
    status = shell.counts("r")
    assert (status["limits"]["spider"], status["policy"]["outputs"]) == ("shelf", ["mine"])


def test_a_spider_that_another_spider_sends_pages_to_is_found_if_registered(site: Site, shell: Shell) -> None:
    root = _shelf(site, 2)
    shell.environ["TO"] = "people"
    (shell.folder / "shoal.toml").write_text('[spiders]\npeople = "books.py:Authors"\n')
    result = shell.crawl(f"{root}/list/0", "--spider", "books.py:Books", "--delay", "0", "--out", "items.jsonl")
    assert result.code == 0, result.err
    assert "waiting" not in result.err
    _same(_items(shell.folder / "items.jsonl"), _expected(root, 2))


BAD = """
import asyncio, sys
import shoal

class Bad(shoal.Spider):
    def parse(self, page):
        yield from page.follow("a")
        yield {"title": page.title}
        what = page.url.rpartition("/")[2]
        if what == "exit":
            sys.exit(0)
        if what == "cancel":
            raise asyncio.CancelledError
        if what == "large":
            yield page.visit("/x", data={"x": "x" * 60000})
        if what == "method":
            yield page.visit("/x", callback=lambda page: None)
        if what == "name":
            yield page.visit("/x", spider="a" * 60)
"""


def test_no_error_of_a_spider_ends_a_worker(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    wrong = ("exit", "cancel", "large", "method", "name")
    site.at(host, "/", page(*(f"/{what}" for what in wrong), "/good"))
    for what in (*wrong, "good"):
        site.at(host, f"/{what}", page())
    (shell.folder / "bad.py").write_text(BAD)
    name = "b" * 100
    result = shell.crawl(
        f"http://{host}/", "--spider", "bad.py:Bad", "--delay", "0", "--out", "b.jsonl", "--name", name,
        "--workers", "1",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert shell.counts(name)["failed"] == {
        "spider: CancelledError": 1, "spider: InvalidVisit": 2, "spider: SystemExit": 1, "spider: no branch": 1,
    }  # fmt: skip
    assert len(_items(shell.folder / "b.jsonl")) == 2
    assert len(site.requests(host)) == 8
    # One sentence where no line of the spider raised it.
    assert "\nshoal.errors.InvalidVisit: callback of a follow-up is of type function" in result.err
    assert "_carried" not in result.err


ODD = """
import shoal

class Odd(shoal.Spider):
    def parse(self, page):
        yield {"url": page.url}
        yield shoal.Follow(url="a?x=1")
        yield shoal.Follow(url="//%s/shelf/b" % page.url.split("/")[2])
        yield shoal.Follow(url="nobody", callback="nobody")
        yield from page.follow("a")

    def failed(self, url, error):
        yield {"gone": url, "why": error}
        yield shoal.Follow(url="/instead")
"""


def test_a_followed_url_may_be_relative_and_an_invalid_one_is_reported(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    site.at(host, "/shelf/", page("mailto:me@a.example", "javascript:void(0)"))
    for path in ("/shelf/a?x=1", "/shelf/b", "/shelf/nobody"):
        site.at(host, path, page())
    (shell.folder / "odd.py").write_text(ODD)
    result = shell.crawl(
        f"http://{host}/shelf/", "--spider", "odd.py:Odd", "--delay", "0", "--out", "b.jsonl", "--name", "odd"
    )  # fmt: skip
    assert result.code == 0, result.err
    root = f"http://{host}/shelf/"
    gone = {"gone": f"{root}nobody", "why": "spider: no method nobody"}
    _same(_items(shell.folder / "b.jsonl"), [*({"url": f"{root}{path}"} for path in ("", "a?x=1", "b")), gone])
    assert shell.counts("odd")["failed"] == {"spider: no method nobody": 1}
    assert "Spider Odd: the follow-ups of failed() are ignored" in result.err
    assert not any(request.path == "/instead" for request in site.requests(host))


def test_a_worker_with_two_spiders_of_one_name_is_refused(shell: Shell) -> None:
    (shell.folder / "more.py").write_text(BOOKS)
    result = shell.run("worker", "--spider", "books.py:Books", "--spider", "more.py:Books")
    assert result.code == 2, result.err
    assert "Two spiders are named Books: " in result.err
    assert result.err.count("\n") == 1
    assert not (shell.folder / ".shoal").exists()


def test_redirects_too_long_for_an_entry_end_with_a_reason(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    long = "x" * 8000
    site.at(host, "/r0", redirect(f"/r1?{long}"))
    for n in range(1, 9):
        site.at(host, f"/r{n}?{long}", redirect(f"/r{n + 1}?{long}"))
    site.at(host, "/good", page())
    result = shell.crawl(f"http://{host}/r0", f"http://{host}/good", "--delay", "0", "--workers", "1", "--name", "r")
    assert result.code == 0, result.err
    assert shell.counts("r")["failed"] == {"redirects too long": 1}


def test_a_killed_crawl_is_resumed_with_its_branches(site: Site, shell: Shell) -> None:
    root = _shelf(site, 12)
    shell.environ["TO"] = "Authors"
    typed = ("crawl", f"{root}/list/0", "--spider", "books.py:Books", "--delay", "0.02", "--name", "k", *LOCAL)
    outputs = ("--out", "b.jsonl", "--workers", "1")
    crawl = shell.start(*typed, *outputs)
    crawl.wait_for_output("waiting: no worker has spider Authors")
    for pid in [*crawl.workers(), crawl.process.pid]:
        os.kill(pid, signal.SIGKILL)
    crawl.process.wait()
    # In an embedded store an interrupted crawl is paused, but not one that is resumed.
    crawl = shell.start(*typed, *outputs)
    crawl.wait_for_output("Resuming crawl")
    shell.start("worker", "--spider", "books.py:Authors", "--workers", "1", *LOCAL)
    result = crawl.end()
    assert result.code == 0, result.err
    assert "interrupted" not in result.err
    _same(_items(shell.folder / "b.jsonl"), _expected(root, 12))
    assert not site.judge(root.removeprefix("http://")).impolite(0.02)
