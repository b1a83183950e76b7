"""`shoal export`: what a crawl wrote to one output, in another one."""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
import itertools
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from shoal.model.record import Item, Record
from shoal.sinks import open_sink
from shoal.sinks.sql.sqlite import DEFINITIONS
from tests.brokers import Kafka
from tests.servers import Server
from tests.site.responses import Response, page, redirect
from tests.site.site import Site
from tests.system.shell import Shell

COLUMNS = Record.__struct_fields__


def stored(folder: Path, rows: list[dict[str, Any]], columns: tuple[str, ...] = COLUMNS) -> None:
    """An output with these rows, as the sink defines its table."""
    connection = sqlite3.connect(folder / "pages.db")
    defined = ", ".join(f"{name} {DEFINITIONS[name]}" for name in columns)
    connection.execute(f"CREATE TABLE pages ({defined}, PRIMARY KEY (crawl, url))")
    for row in rows:
        names = ", ".join(row)
        connection.execute(f"INSERT INTO pages ({names}) VALUES ({', '.join('?' * len(row))})", list(row.values()))  # noqa: S608
    connection.commit()
    connection.close()


def cells(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_an_export_equals_what_the_crawl_would_have_written(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    site.at(host, "/", page("/a", "/gone"))
    site.at(host, "/a", page())
    result = shell.crawl(f"http://{host}/", "--delay", "0", "--name", "one", "--out", "pages.db", "--out", "own.jsonl")
    assert result.code == 0, result.err
    result = shell.run("export", "--from", "pages.db", "--to", "pages.jsonl")
    assert result.code == 0, result.err
    assert result.out == ""
    assert "Exported 3 rows." in result.err
    exported, own = (
        sorted((shell.folder / name).read_text().splitlines()) for name in ("pages.jsonl", "own.jsonl")
    )  # fmt: skip
    assert exported == own
    assert shell.run("export", "--to", "-").out.splitlines() != []
    result = shell.run("export", "--to", "csv:-")
    rows = {row["url"]: row for row in cells(result.out)}
    assert len(rows) == 3
    assert tuple(rows[f"http://{host}/"]) == COLUMNS
    assert rows[f"http://{host}/gone"]["status"] == "404"
    assert rows[f"http://{host}/a"]["error"] == ""
    assert sorted(path.name for path in shell.folder.iterdir() if "part" in path.name) == []


def test_formulas_become_text_in_csv_and_are_unchanged_in_json(shell: Shell) -> None:
    titles = ["=1+1", "+1", "-1", "@a", "\tx", "\rx", "'=1", "plain = x", 'a "b", c\nd', "'tis", ""]
    rows = [{"crawl": "c", "url": f"http://h/{n}", "title": title} for n, title in enumerate(titles)]
    stored(shell.folder, rows)
    assert shell.run("export", "--to", "p.csv").code == 0
    shown = [row["title"] for row in cells((shell.folder / "p.csv").read_bytes().decode())]
    assert shown == ["'=1+1", "'+1", "'-1", "'@a", "'\tx", "'\rx", "''=1", "plain = x", 'a "b", c\nd', "'tis", ""]
    assert shell.run("export", "--to", "p.jsonl").code == 0
    assert [json.loads(line)["title"] for line in (shell.folder / "p.jsonl").open()] == titles


def test_one_crawl_is_exported_and_an_unknown_one_is_reported(shell: Shell) -> None:
    stored(shell.folder, [{"crawl": name, "url": "http://h/"} for name in ("a", "b")])
    result = shell.run("export", "--to", "-", "--crawl", "b")
    assert [json.loads(line)["crawl"] for line in result.out.splitlines()] == ["b"]
    result = shell.run("export", "--to", "x.csv", "--crawl", "c")
    assert result.code == 1
    assert "has no page of crawl 'c'; it has a, b." in result.err
    assert not (shell.folder / "x.csv").exists()


def test_the_export_of_a_file_of_an_older_shoal_has_every_column(shell: Shell) -> None:
    stored(shell.folder, [{"crawl": "c", "url": "http://h/", "title": "t"}], columns=("crawl", "url", "title"))
    (line,) = shell.run("export", "--to", "-").out.splitlines()
    row = json.loads(line)
    assert tuple(row) == COLUMNS
    assert (row["title"], row["error"], row["redirects"], row["attempt"]) == ("t", None, [], 1)
    assert (row["robots_ignored"], row["status"], row["worker"]) == (False, 0, "")


@pytest.mark.full
def test_a_large_output_takes_little_memory(shell: Shell) -> None:
    """200 MB of text with 100 MB of memory for everything."""
    rows = [{"crawl": "c", "url": f"http://h/{n}", "text": f"{n} " * 20_000} for n in range(1500)]
    stored(shell.folder, rows)
    assert (shell.folder / "pages.db").stat().st_size > 100_000_000
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_DATA, (100_000_000, 100_000_000))\n"
        "from shoal.cli.main import run; run(['export', '--to', 'pages.{}'])"
    )
    for kind in ("csv", "jsonl"):
        result = shell.start(program=("-c", program.format(kind))).end()
        assert result.code == 0, result.err
        assert "Exported 1,500 rows." in result.err
        assert (shell.folder / f"pages.{kind}").stat().st_size > 100_000_000


def test_a_file_that_exists_is_kept_unless_forced(shell: Shell) -> None:
    stored(shell.folder, [{"crawl": "c", "url": "http://h/"}])
    (shell.folder / "p.csv").write_text("mine")
    result = shell.run("export", "--to", "p.csv")
    assert result.code == 2
    assert "p.csv already exists; choose another one, or pass --force" in result.err
    assert (shell.folder / "p.csv").read_text() == "mine"
    assert shell.run("export", "--to", "p.csv", "--force").code == 0
    assert len(cells((shell.folder / "p.csv").read_text())) == 1
    assert {path.name for path in shell.folder.iterdir()} == {"pages.db", "p.csv"}


def test_a_broken_row_leaves_the_old_file_and_no_partial_one(shell: Shell) -> None:
    stored(shell.folder, [{"crawl": "c", "url": "http://h/", "redirects": "no json"}])
    (shell.folder / "p.jsonl").write_text("old")
    result = shell.run("export", "--to", "p.jsonl", "--force")
    assert result.code == 1
    assert "has invalid JSON in redirects" in result.err
    assert (shell.folder / "p.jsonl").read_text() == "old"
    assert {path.name for path in shell.folder.iterdir()} == {"pages.db", "p.jsonl"}


def test_a_reader_that_closes_the_pipe_causes_no_internal_error(shell: Shell) -> None:
    stored(shell.folder, [{"crawl": "c", "url": f"http://h/{n}", "text": "x" * 10_000} for n in range(500)])
    program = (
        "import subprocess, sys\n"
        "command = subprocess.Popen([sys.executable, '-m', 'shoal', 'export', '--to', '-'], stdout=-1, stderr=-1)\n"
        "command.stdout.readline(); command.stdout.close()\n"
        "sys.stderr.buffer.write(command.stderr.read()); sys.exit(command.wait())"
    )
    result = shell.start(program=("-c", program)).end()
    assert result.code == 1
    assert result.err == ""


@pytest.mark.full
def test_any_output_can_be_exported_to_any_other(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    site.at(host, "/", page("/a", "/gone", title="=1"))
    site.at(host, "/a", page())
    result = shell.crawl(f"http://{host}/", "--delay", "0", "--name", "one", "--out", "own.db", "--out", "own.jsonl")
    assert result.code == 0, result.err
    way = ["own.db", "a.parquet", "b.csv.gz", "c.jsonl.zst", "d.sqlite", "e.csv", "f.jsonl.gz", "g.db", "h.jsonl"]
    for source, target in itertools.pairwise(way):
        result = shell.run("export", "--from", source, "--to", target)
        assert result.code == 0, result.err
        assert (result.out, result.err) == ("", "Exported 3 rows.\n")
    assert shell.rows("g.db") == shell.rows("own.db")
    assert sorted((shell.folder / "h.jsonl").open()) == sorted((shell.folder / "own.jsonl").open())
    # A database has one row per key, however often it is exported.
    assert shell.run("export", "--from", "h.jsonl", "--to", "g.db").code == 0
    assert shell.rows("g.db") == shell.rows("own.db")
    result = shell.run("export", "--from", "own.jsonl", "--to", "a.parquet")
    assert result.code == 2
    assert "a.parquet already exists; choose another one" in result.err


HOSTILE = '\'); DROP TABLE pages; -- \U0001f600 =1 \u2028 &lt;b&gt; "q" \\\\u0000'
# An archive has no values that are not in a response, and the response time only in milliseconds.
NOT_ARCHIVED = ("depth", "found", "worker", "response_seconds")


@pytest.mark.full
def test_streams_and_archives_are_exported_as_the_crawl_would_have_written_them(
    site: Site, shell: Shell, valkey: Server, brokers: Kafka
) -> None:
    (host,) = site.take()
    site.at(host, "/", page("/a", "/gone", "/moved", "/file", title=HOSTILE, body=HOSTILE))
    site.at(host, "/a", page("/", head='<meta name="robots" content="noindex">'))
    site.at(host, "/moved", redirect("/there", 301))
    site.at(host, "/there", page(title="There"))
    site.at(host, "/file", Response(body="x" * 100, type="application/pdf", etag='"e"'))
    streams = [f"{valkey.url}/0/list", f"{valkey.url}/0/stream?stream", brokers.uri("exported")]
    outputs = [word for uri in (*streams, "warc:own", "own.jsonl") for word in ("--out", uri)]
    result = shell.crawl(f"http://{host}/", "--delay", "0", "--name", "one", *outputs)
    assert result.code == 0, result.err
    # Not by splitlines: there are more ends of lines in Unicode than in JSON lines.
    own = sorted((shell.folder / "own.jsonl").read_text().split("\n"))
    assert len(own) == 6
    for uri in streams:
        result = shell.run("export", "--from", uri, "--to", "-")
        assert (result.code, result.err) == (0, "Exported 5 rows.\n")
        assert sorted(result.out.split("\n")) == own
    result = shell.run("export", "--from", "warc:own", "--to", "-")
    assert result.code == 0, result.err
    rows, expected = (
        {row["url"]: row for row in map(json.loads, filter(None, text))} for text in (result.out.split("\n"), own)
    )  # fmt: skip
    assert rows.keys() == expected.keys()
    for url, row in rows.items():
        assert row["response_seconds"] == pytest.approx(expected[url]["response_seconds"], abs=0.001)
        row |= {name: expected[url][name] for name in NOT_ARCHIVED}
    assert rows == expected
    assert rows[f"http://{host}/there"]["redirects"] == [[f"http://{host}/moved", 301]]
    result = shell.run("export", "--from", next((shell.folder / "own").iterdir()), "--to", "part.jsonl")
    assert result.code == 0, result.err
    assert set(shell.lines("part.jsonl")) <= rows.keys()


def test_outputs_in_the_settings_are_selected_by_name(shell: Shell) -> None:
    stored(shell.folder, [{"crawl": "c", "url": "http://h/"}])
    (shell.folder / "shoal.toml").write_text('[outputs]\nhouse = "sqlite:pages.db"\nlines = "there.jsonl"\n')
    result = shell.run("export", "--from", "house", "--to", "lines")
    assert (result.code, result.err) == (0, "Exported 1 row.\n")
    assert shell.lines("there.jsonl") == ["http://h/"]
    result = shell.run("export", "--from", "nobody", "--to", "x.csv")
    assert result.code == 2
    assert "Unsupported output 'nobody'" in result.err


def test_exporting_a_database_leaves_no_extra_files(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    site.at(host, "/", page())
    assert shell.crawl(f"http://{host}/", "--delay", "0", "--name", "one").code == 0
    assert shell.run("export", "--to", "-").code == 0
    assert sorted(path.name for path in shell.folder.iterdir() if path.is_file()) == ["pages.db"]


def test_items_of_a_database_are_exported_on_request(shell: Shell) -> None:
    item = Item(crawl="c", url="http://h/", spider="s", number=1, fetched_at=1.5, data={"price": 3})

    async def write() -> None:
        sink = open_sink(str(shell.folder / "pages.db"), worker="w", spider=True)
        await sink.open()
        await sink.write([Record(crawl="c", url="http://h/", spider="s"), item], b"")
        await sink.close()

    asyncio.run(write())
    assert [json.loads(line)["url"] for line in shell.run("export", "--to", "-").out.splitlines()] == ["http://h/"]
    assert shell.run("export", "--to", "items.csv", "--items").code == 0
    result = shell.run("export", "--from", "items.csv", "--to", "-")
    # The cells of CSV are text.
    assert json.loads(result.out) == {
        "price": "3", "_crawl": "c", "_url": "http://h/", "_spider": "s", "_number": 1,
        "_fetched_at": "1970-01-01T00:00:01.500Z",
    }  # fmt: skip


def _with_items(shell: Shell) -> None:
    shelf = [{"title": "A, b", "price": 9.5, "tags": ["x"]}, {"title": "=1+1", "new": True, "url": "o\u2028wn"}]

    async def write() -> None:
        sink = open_sink(str(shell.folder / "pages.db"), worker="w", spider=True)
        await sink.open()
        items = [
            Item(crawl="c", url="http://h/", spider="s", number=number, fetched_at=1.5, data=data)
            for number, data in enumerate(shelf, 1)
        ]
        await sink.write([Record(crawl="c", url="http://h/", spider="s", status=200, title="H"), *items], b"")
        await sink.close()

    asyncio.run(write())


def test_flat_items_have_their_own_fields_as_columns(shell: Shell) -> None:
    _with_items(shell)
    assert shell.run("export", "--items", "--flat", "--to", "items.csv").code == 0
    with (shell.folder / "items.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["title", "price", "tags", "new", "url"]
    assert rows == [["A, b", "9.5", '["x"]', "", ""], ["'=1+1", "", "", "true", "o\u2028wn"]]
    result = shell.run("export", "--items", "--flat", "--to", "-")
    assert [json.loads(line) for line in result.out.splitlines()] == [
        {"title": "A, b", "price": 9.5, "tags": ["x"], "new": None, "url": None},
        {"title": "=1+1", "price": None, "tags": None, "new": True, "url": "o\u2028wn"},
    ]


def test_fields_choose_the_columns_of_items_and_pages_and_their_order(shell: Shell) -> None:
    _with_items(shell)
    result = shell.run("export", "--items", "--fields", "price, number,title", "--to", "csv:-")
    assert result.out.splitlines() == ["price,number,title", '9.5,1,"A, b"', ",2,'=1+1"]
    result = shell.run("export", "--fields", "url,status,redirects", "--to", "-")
    assert json.loads(result.out) == {"url": "http://h/", "status": 200, "redirects": []}


def test_a_json_file_is_one_array(shell: Shell) -> None:
    _with_items(shell)
    assert shell.run("export", "--items", "--fields", "title", "--to", "items.json").code == 0
    assert json.loads((shell.folder / "items.json").read_text()) == [{"title": "A, b"}, {"title": "=1+1"}]
    assert [row["title"] for row in json.loads(shell.run("export", "--to", "json:-").out)] == ["H"]
    assert shell.run("export", "--items", "--to", "all.json.gz").code == 0
    assert len(json.loads(gzip.decompress((shell.folder / "all.json.gz").read_bytes()))) == 2


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (["--fields", "titel", "--to", "-"], "pages have no such column; did you mean title?"),
        (["--fields", "a,,b", "--to", "-"], "must be different names with commas between them"),
        (["--items", "--flat", "--fields", "a", "--to", "-"], "so omit --flat"),
        (["--flat", "--to", "-"], "--flat is for items"),
        (["--fields", "url", "--to", "x.parquet"], "work with CSV, JSON lines and JSON"),
    ],
)
def test_columns_that_cannot_be_chosen_are_refused(shell: Shell, typed: list[str], sentence: str) -> None:
    _with_items(shell)
    result = shell.run("export", *typed)
    assert result.code == 2
    assert sentence in " ".join(result.err.split())


@pytest.mark.parametrize(
    ("typed", "code", "sentence"),
    [
        (["--to", "x.csv", "--from", "missing.db"], 2, "There is no file missing.db to export"),
        (["--to", "x.csv", "--from", "text.db"], 1, "cannot be read as an SQLite output"),
        (["--to", "x.csv", "--from", "other.db"], 1, "has no table `pages` of Shoal"),
        (
            ["--to", "x.xlsx"],
            2,
            "kind of output: use .db, .jsonl, .csv, .parquet, postgresql://, mysql://, redis://, kafka://, amqp://",
        ),
        (["--to", "caller://x"], 2, "--to 'caller://x' is not a known kind of output"),
        (["--to", "warc:w"], 2, "is a WARC archive: other outputs do not have the responses it needs"),
        (["--to", "mysql://u:p@h:notaport/db"], 2, "is not a valid address of a database"),
        (["--to", "nowhere/x.parquet"], 2, "The folder"),
        (["--to", "x.csv", "--from", "foo://u:secret@h"], 2, "Unsupported output 'foo://***@h'"),
        (["--to", "x.csv", "--from", "kafka:///"], 2, "is not a valid address"),
        (
            ["--to", "x.csv", "--from", "amqp://u:secret@h/x"],
            2,
            "cannot be read back: an exchange does not store messages",
        ),
        (["--to", "x.csv", "--from", "warc:."], 2, "There is no archive"),
        (["--to", "redis://h/0/x", "--from", "redis://h/0/x"], 2, "--from and --to are the same output"),
        (["--to", "nowhere/x.csv"], 1, "Cannot write the file nowhere/x.csv: No such file or directory"),
        (["--to", "csv:pages.db", "--force"], 2, "--from and --to are the same file"),
        (["--to", "csv:."], 2, ". is a folder; pass a file"),
        ([], 2, "Missing option '--to'"),
    ],
)
def test_an_impossible_export_is_reported_in_one_sentence(
    shell: Shell, typed: list[str], code: int, sentence: str
) -> None:
    stored(shell.folder, [{"crawl": "c", "url": "http://h/"}])
    before = (shell.folder / "pages.db").read_bytes()
    (shell.folder / "text.db").write_text("no database " * 100)
    with sqlite3.connect(shell.folder / "other.db") as connection:
        connection.execute("CREATE TABLE pages (name TEXT)")
    connection.close()
    result = shell.call("export", *typed)
    assert result.code == code, result.err
    assert len(result.err.splitlines()) == 1, result.err
    assert sentence in result.err
    assert (shell.folder / "pages.db").read_bytes() == before
    assert not (shell.folder / "x.csv").exists()
