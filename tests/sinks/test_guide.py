"""The queries of docs/guides/results.md, run on what each output holds after the same three pages."""

from __future__ import annotations

import re
import sqlite3
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import pytest

from shoal.model.record import Capture
from shoal.model.response import Response
from shoal.sinks import merge, open_sink
from shoal.sinks.contract import Stored
from tests.sinks.databases import Database
from tests.sinks.outputs import Store, item, page

GUIDE = Path(__file__).parents[2] / "docs/guides/results.md"
RECORDS = [page(1), page(2), page(3, status=0, error="timeout")]
PAGES = [("https://site.example/1", "Page 1"), ("https://site.example/2", "Page 2")]


def statements(section: str) -> list[str]:
    text = GUIDE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```sql\n(.*?)```", text, re.S)
    return [statement.strip() for block in blocks for statement in block.split(";") if statement.strip()]


async def filled(uri: str, records: Sequence[Stored] = RECORDS, *, spider: bool = False) -> None:
    sink = open_sink(uri, worker="worker", spider=spider)
    await sink.open()
    await sink.write(records, b"receipt")
    await sink.commit(())
    await sink.close()
    await merge(uri, live=(), replay=Store().replay, spider=spider)


def by_sqlite(statement: str) -> list[tuple[object, ...]]:
    return sqlite3.connect("pages.db").execute(statement).fetchall()


def by_duckdb(statement: str) -> list[tuple[object, ...]]:
    return duckdb.execute(statement).fetchall()


@pytest.mark.parametrize(
    ("section", "output", "ask"),
    [
        ("SQLite", "pages.db", by_sqlite),
        ("JSON lines", "pages.jsonl", by_duckdb),
        ("CSV", "pages.csv", by_duckdb),
        ("Parquet", "pages.parquet", by_duckdb),
    ],
)
async def test_the_documented_queries_on_files_work(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    section: str,
    output: str,
    ask: Callable[[str], list[tuple[object, ...]]],
) -> None:
    monkeypatch.chdir(tmp_path)
    await filled(output)
    stored, failed = statements(section)
    assert ask(stored) == PAGES
    assert ask(failed) == [("timeout", 1)]


@pytest.mark.parametrize(
    ("section", "service", "separator"),
    [("PostgreSQL", "postgresql_server", "|"), ("MySQL and MariaDB", "mariadb_server", "\t")],
)
async def test_the_documented_queries_on_servers_work(
    request: pytest.FixtureRequest, section: str, service: str, separator: str
) -> None:
    server: Database = request.getfixturevalue(service)
    server.sql("DROP TABLE IF EXISTS pages")
    await filled(server.uri())
    stored, failed, index = statements(section)
    assert server.sql(stored).decode().splitlines() == [separator.join(row) for row in PAGES]
    assert server.sql(failed).decode().splitlines() == [f"timeout{separator}1"]
    server.sql(index)
    with pytest.raises(subprocess.CalledProcessError):
        server.sql(index)
    await filled(server.uri())


async def test_the_documented_queries_on_items_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    records: list[Stored] = [page(1, spider="books"), item(1), item(1, 2)]
    for output in ("pages.db", "items.jsonl", "items.parquet"):
        await filled(output, records, spider=True)
    listed, view, lines, columns = statements("Items of spiders")
    url = "https://site.example/1"
    assert by_sqlite(listed) == [(url, "Book 1/1", 9.5), (url, "Book 1/2", 9.5)]
    by_sqlite(view)
    assert by_sqlite("SELECT title FROM books ORDER BY title") == [("Book 1/1",), ("Book 1/2",)]
    for query in (lines, columns):
        assert sorted(by_duckdb(query)) == [("Book 1/1", 9.5), ("Book 1/2", 9.5)]


async def test_the_archive_is_read_as_the_guide_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    response = Response(
        url="https://site.example/1", status=200, headers=(("content-type", "text/html"),), body=b"<p>one"
    )
    await filled("warc:archive", [Capture(crawl="crawl", page=response)])
    (program,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text().split("\n## Archives\n")[1], re.S)
    exec(compile(program, "guide", "exec"), {})  # noqa: S102 - it is what the page says
    assert capsys.readouterr().out == "https://site.example/1 6\n"


async def test_the_documented_query_for_bodies_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    await filled("pages.db", [page(1), page(2, content_type="application/pdf; v=1", file="/files/ab/cd/abcd.pdf")])
    (query,) = statements("Bodies and downloads")
    assert by_sqlite(query) == [("/files/ab/cd/abcd.pdf", "https://site.example/2")]
