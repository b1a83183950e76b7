"""Outputs of items: flat files, appended to or overwritten, standard output, a data frame."""

from __future__ import annotations

import csv
import json
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal
from tests.site.responses import page
from tests.site.site import Site
from tests.system.shell import LOCAL, Shell

pytestmark = pytest.mark.full

SPIDER = """
import shoal

class Shelf(shoal.Spider):
    def parse(self, page):
        yield {"title": page.title, "pages": len(page.title), "url": page.url}
        yield from page.follow("a", callback=self.parse)
"""


@pytest.fixture
def shelf(site: Site, shell: Shell) -> str:
    (host,) = site.take()
    site.at(host, "/", page("/a", "/b", title="Root"))
    for name in "ab":
        site.at(host, f"/{name}", page("/", title=f"Book {name}"))
    (shell.folder / "shelf.py").write_text(SPIDER)
    return f"http://{host}"


def _csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _run(shell: Shell, shelf: str, *args: str) -> str:
    result = shell.crawl(f"{shelf}/", "--spider", "shelf.py:Shelf", "--delay", "0", *args)
    assert result.code == 0, result.err
    return result.out


def test_a_file_of_flat_items_is_appended_to_or_overwritten(shell: Shell, shelf: str) -> None:
    path = shell.folder / "books.csv"
    assert _run(shell, shelf, "-o", "books.csv", "-o", "books.jsonl") == ""
    rows = _csv(path)
    assert sorted(row["title"] for row in rows) == ["Book a", "Book b", "Root"]
    assert list(rows[0])[:4] == ["title", "pages", "url", "_crawl"]
    assert {row["url"] for row in rows} == {row["_url"] for row in rows}
    lines = [json.loads(line) for line in (shell.folder / "books.jsonl").read_text().splitlines()]
    assert {(line["title"], line["pages"]) for line in lines} == {("Root", 4), ("Book a", 6), ("Book b", 6)}
    _run(shell, shelf, "-o", "books.csv", "--name", "second")
    assert len(_csv(path)) == 6
    _run(shell, shelf, "-O", "books.csv", "--name", "third")
    assert [row["_crawl"] for row in _csv(path)] == ["third"] * 3
    # A crawl that exists does not overwrite what it has written.
    result = shell.crawl(f"{shelf}/", "--spider", "shelf.py:Shelf", "-O", "books.csv", "--name", "third")
    assert "already finished" in result.err
    assert len(_csv(path)) == 3


@pytest.mark.parametrize(
    ("output", "sentence"), [("-", "-O - is not a file: use --out."), ("postgresql://h/d", "is not a file: use --out.")]
)
def test_only_files_are_overwritten(shell: Shell, output: str, sentence: str) -> None:
    result = shell.call("crawl", "http://a.example/", "-O", output)
    assert result.code == 2
    assert sentence in result.err


def test_overwriting_a_database_leaves_nothing_of_it(site: Site, shell: Shell, shelf: str) -> None:
    for name in ("one", "two"):
        _run(shell, shelf, "-O", "books.db", "--name", name)
    with sqlite3.connect(shell.folder / "books.db") as connection:
        assert connection.execute("SELECT DISTINCT crawl FROM pages").fetchall() == [("two",)]


@pytest.mark.smoke
def test_only_records_go_to_standard_output(shell: Shell, shelf: str) -> None:
    out = _run(shell, shelf, "--out", "-", "--name", "n")
    lines = [json.loads(line) for line in out.splitlines()]
    assert sorted(line["title"] for line in lines) == ["Book a", "Book b", "Root"]
    # Pages, too; and no file is left.
    result = shell.crawl(f"{shelf}/", "--delay", "0", "-o", "-", "--name", "pages")
    assert sorted(json.loads(line)["status"] for line in result.out.splitlines()) == [200, 200, 200]
    assert not (shell.folder / "pages.db").exists()
    assert not list((shell.folder / ".shoal/stdout").glob("*.jsonl*"))


def test_an_output_in_a_folder_named_stdout_is_a_file_like_any_other(shell: Shell, shelf: str) -> None:
    (shell.folder / "stdout").mkdir()
    result = shell.crawl(f"{shelf}/", "--delay", "0", "--out", "stdout/pages.jsonl", "--name", "n")
    assert (result.code, result.out) == (0, ""), result.err
    assert len((shell.folder / "stdout/pages.jsonl").read_text().splitlines()) == 3
    assert "output      jsonl:" in result.err


def test_a_reader_that_closes_the_pipe_pauses_the_crawl(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    tree = site.plant(3000, [host])
    running = shell.start("crawl", tree.url(0), "--delay", "0.05", "--out", "-", "--name", "n", *LOCAL)
    assert running.process.stdout is not None
    # Its reader is a thread of the test: the pipe is closed under it once a line has come.
    while not running._out:
        assert running.process.poll() is None, running.stderr_lines
    running.process.stdout.close()
    code = running.process.wait(60)
    assert code in (130, 1)
    assert 0 < len(site.requests(host)) < 3000
    assert shell.counts("n")["state"] == "paused"


def test_a_data_frame_of_a_crawl_has_a_column_for_each_field(site: Site, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pip install pandas")

    class Shelf(shoal.Spider):
        def parse(self, page: shoal.Page) -> Iterator[Any]:
            yield {"title": page.title, "length": len(page.title)}
            yield from page.follow("a")

    (host,) = site.take()
    site.at(host, "/", page("/a", title="Root"))
    site.at(host, "/a", page(title="Leaf!"))
    how: dict[str, Any] = {"delay_seconds": 0, "settings": {"fetch.allow_networks": "127.0.0.0/8"}}
    frame = pandas.DataFrame(shoal.crawl(f"http://{host}/", spider=Shelf, **how))
    assert list(frame.columns) == ["title", "length"]
    assert sorted(frame["length"]) == [4, 5]
    pages = pandas.DataFrame(shoal.crawl(f"http://{host}/", **how))
    assert sorted(pages["title"]) == ["Leaf!", "Root"]


def test_another_pass_of_a_crawl_with_a_spider_starts_from_its_seeds(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    site.at(host, "/", page("/a", "/a#x", "/moved", title="Root"))
    site.at(host, "/a", page("/", title="A"))
    site.at(host, "/moved", page(title="M"))
    (shell.folder / "shelf.py").write_text(SPIDER)
    args = ("--spider", "shelf.py:Shelf", "--delay", "0", "--name", "n", "--out", "n.db")
    assert shell.crawl(f"http://{host}/", *args).code == 0
    site.at(host, "/a", page("/", "/new", title="A changed"))
    site.at(host, "/new", page(title="New"))
    for passes in (2, 3):
        result = shell.crawl(*args, "--again")
        assert result.code == 0, result.err
        paths = [request.path for request in site.requests(host) if request.path != "/robots.txt"]
        assert {path: paths.count(path) for path in ("/", "/a", "/moved", "/new")} == {
            "/": passes, "/a": passes, "/moved": passes, "/new": passes - 1,
        }  # fmt: skip
    with sqlite3.connect(shell.folder / "n.db") as connection:
        titles = [json.loads(row[0])["title"] for row in connection.execute("SELECT data FROM items")]
    assert sorted(titles) == ["A changed", "M", "New", "Root"]


def test_deleting_a_crawl_frees_its_name(site: Site, shell: Shell) -> None:
    first, second = site.take(2)
    for host in (first, second):
        site.at(host, "/", page(title=host))
    assert shell.crawl(f"http://{first}/", "--name", "n", "--delay", "0", "--out", "1.db").code == 0
    result = shell.crawl(f"http://{second}/", "--name", "n", "--delay", "0", "--out", "2.db")
    assert result.code != 0
    assert shell.run("delete", "n").code == 0
    result = shell.crawl(f"http://{second}/", "--name", "n", "--delay", "0", "--out", "2.db")
    assert result.code == 0, result.err
    assert set(shell.rows("2.db")) == {f"http://{second}/"}
    assert shell.counts("n")["counts"]["stored"] == 1
    assert shell.run("delete", "n").code == 0
    assert shell.run("crawls").out == ""


def test_an_interrupted_crawl_prints_each_record_once(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    tree = site.plant(60, [host])
    running = shell.start("crawl", tree.url(0), "--delay", "0.05", "--out", "-", "--name", "n", *LOCAL)
    while len(site.requests(host)) < 20:
        assert running.process.poll() is None, running.stderr_lines
    first = running.end(signal.SIGINT)
    assert first.code == 130, first.err
    second = shell.crawl("--name", "n")
    assert second.code == 0, second.err
    urls = [json.loads(line)["url"] for line in (first.out + second.out).splitlines()]
    assert sorted(urls) == sorted(tree.walk())


def test_selected_fields_are_the_columns_of_each_file_in_order(shell: Shell, shelf: str) -> None:
    names = ("chosen.csv", "chosen.jsonl", "chosen.parquet", "chosen.db")
    outputs = [part for name in names for part in ("-o", name)]
    result = shell.crawl(
        "--spider", "shelf.py:Shelf", f"{shelf}/", *outputs, "--fields", "pages,none,title", "--delay", 0
    )  # fmt: skip
    assert result.code == 0, result.err
    expected = {f"{shelf}/": (4, "Root"), f"{shelf}/a": (6, "Book a"), f"{shelf}/b": (6, "Book b")}
    own = ["pages", "none", "title"]
    with (shell.folder / "chosen.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head[:3] == own
    assert not {"url"} & {*head}
    assert {row[head.index("_url")]: (int(row[0]), row[2]) for row in rows} == expected
    assert {row[1] for row in rows} == {""}
    lines = [json.loads(line) for line in (shell.folder / "chosen.jsonl").read_text().splitlines()]
    assert all(list(line)[:3] == own for line in lines)
    assert {line["_url"]: (line["pages"], line["title"]) for line in lines} == expected
    table = pytest.importorskip("pyarrow.parquet").read_table(shell.folder / "chosen.parquet").to_pydict()
    # A field that no item has is of no type.
    assert list(table)[:2] == ["pages", "title"]
    assert not {"url", "none"} & {*table}
    assert dict(zip(table["_url"], zip(table["pages"], table["title"], strict=True), strict=True)) == expected
    with sqlite3.connect(shell.folder / "chosen.db") as database:
        data = [json.loads(text) for (text,) in database.execute("SELECT data FROM items")]
    assert [list(each) for each in data] == [own] * 3


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--fields", "title"], "fields needs a spider"),
        (["--spider", "shelf.py:Shelf", "--fields", "title,title"], "an empty or duplicate name"),
    ],
)
def test_fields_that_no_record_can_have_are_refused(
    shell: Shell, shelf: str, flags: list[str], sentence: str
) -> None:  # fmt: skip
    result = shell.crawl(*flags, f"{shelf}/")
    assert result.code == 2
    assert sentence in result.err
