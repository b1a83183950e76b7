"""SQLite: its table, its locks, and files that are not what they seem."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import SinkRefused
from shoal.sinks import Sink, open_sink
from shoal.sinks.sql import sqlite
from tests.servers import WAIT_SECONDS, program
from tests.sinks.outputs import page, read_sqlite


@contextlib.asynccontextmanager
async def opened(path: Path, **more: Any) -> AsyncIterator[Sink]:
    sink = open_sink(f"sqlite:{path}", worker="worker", **more)
    try:
        await sink.open()
        yield sink
    finally:
        await sink.close()


@contextlib.contextmanager
def database(path: Path, *statements: str) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
        yield connection


def titles(path: Path) -> dict[str, str]:
    return {row["url"].rpartition("/")[2]: row["title"] for row in read_sqlite(path)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pages.db"


async def test_an_unchanged_page_keeps_its_row(path: Path) -> None:
    async with opened(path) as sink:
        await sink.write([page(1, etag='"a"', last_modified="Mon"), page(2, etag='"a"')], b"")
        await sink.write([page(1, status=304, title="", text="", fetched_at=1800000000.0)], b"")
        await sink.write([page(2, status=304, title="", etag='"b"', fetched_at=1800000000.0)], b"")
        await sink.write([page(3, status=304, title="")], b"")
    first, second, third = read_sqlite(path)
    assert (first["status"], first["title"], first["text"]) == (200, "Page 1", "word " * 200)
    assert (first["etag"], first["last_modified"], first["fetched_at"]) == ('"a"', "Mon", "2027-01-15T08:00:00.000Z")
    assert (second["status"], second["title"], second["etag"]) == (200, "Page 2", '"b"')
    assert third["status"] == 304


async def test_a_batch_of_changed_and_unchanged_pages_is_stored_in_order(path: Path) -> None:
    async with opened(path) as sink:
        await sink.write([page(1, title="a"), page(1, status=304, title="b"), page(2), page(1, title="c")], b"")
        assert titles(path) == {"1": "c", "2": "Page 2"}


async def test_another_program_can_read_while_a_crawl_runs(path: Path) -> None:
    tool = program("sqlite3", "apt-get install sqlite3")
    async with opened(path) as sink:
        await sink.write([page(1), page(2, error="dns")], b"")
        with database(path, "BEGIN", "SELECT * FROM pages") as reader:
            await asyncio.wait_for(sink.write([page(3)], b""), WAIT_SECONDS)
            assert reader.execute("SELECT count(*) FROM pages").fetchone() == (2,), "a reader keeps its view"
        shown = subprocess.run(
            [tool, path, "SELECT title FROM pages WHERE error IS NULL ORDER BY url"], capture_output=True, text=True
        )
        assert shown.stdout == "Page 1\nPage 3\n"


async def test_a_write_is_flushed_to_the_disk_before_it_returns(path: Path) -> None:
    async with opened(path) as sink:
        connection = sink._connection  # type: ignore[attr-defined]
        modes = await sink._thread.run(  # type: ignore[attr-defined]
            lambda: [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
        )
    assert modes == ["wal", 2]


@pytest.fixture
def troubles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(sqlite, "BUSY_MS", 50)
    monkeypatch.setattr(sqlite, "LOCK_QUIET_SECONDS", 1.5)
    return []


async def test_a_sink_waits_for_the_lock_of_another_program_and_reports_it(path: Path, troubles: list[str]) -> None:
    trouble = asyncio.Event()

    def on_trouble(sentence: str) -> None:
        troubles.append(sentence)
        trouble.set()

    async with opened(path, on_trouble=on_trouble) as sink:
        with database(path, "BEGIN IMMEDIATE") as other:
            write = asyncio.create_task(sink.write([page(1)], b""))
            await asyncio.wait_for(trouble.wait(), WAIT_SECONDS)
            assert not write.done()
            other.execute("ROLLBACK")
        await asyncio.wait_for(write, WAIT_SECONDS)
    waiting, works = troubles
    assert waiting.startswith(f"output {path} is locked by another program for ")
    assert waiting.endswith(" s; waiting")
    assert works == ""
    assert titles(path) == {"1": "Page 1"}


async def test_a_sink_waits_for_a_lock_when_it_opens(path: Path, troubles: list[str]) -> None:
    with database(path, "BEGIN EXCLUSIVE") as other:
        sink = open_sink(f"sqlite:{path}", worker="worker")
        opening = asyncio.create_task(sink.open())
        done, _ = await asyncio.wait({opening}, timeout=0.5)
        assert not done
        other.execute("ROLLBACK")
        await asyncio.wait_for(opening, WAIT_SECONDS)
    await sink.write([page(1)], b"")
    await sink.close()
    assert titles(path) == {"1": "Page 1"}


async def test_a_write_cancelled_while_it_waits_for_a_lock_writes_nothing(path: Path, troubles: list[str]) -> None:
    async with opened(path) as sink:
        with database(path, "BEGIN IMMEDIATE") as other:
            write = asyncio.create_task(sink.write([page(1)], b""))
            await asyncio.wait({write}, timeout=0.3)
            write.cancel()
            with pytest.raises(asyncio.CancelledError):
                await write
            other.execute("ROLLBACK")
        await sink.write([page(2)], b"")
    assert titles(path) == {"2": "Page 2"}


async def test_a_file_that_was_moved_is_created_again(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(path) as sink:
        await sink.write([page(1)], b"")
        moved = path.rename(path.with_name("moved.db"))
        for ending in ("-wal", "-shm"):
            Path(f"{path}{ending}").rename(f"{moved}{ending}")
        await sink.write([page(2)], b"")
    assert titles(moved) == {"1": "Page 1"}
    assert titles(path) == {"2": "Page 2"}
    assert [record.getMessage() for record in caplog.records] == [
        f"The output {path} was deleted, moved or replaced while the crawl ran. Pages that were stored before are not "
        "in the file that has its name now."
    ]


@pytest.mark.parametrize("how", ["deleted", "replaced"])
async def test_a_file_that_is_missing_at_the_end_is_reported(
    path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path) as sink:
        await sink.write([page(1)], b"")
        path.unlink()
        if how == "replaced":
            path.touch()
    assert "was deleted, moved or replaced" in caplog.text


async def test_columns_that_an_older_table_lacks_are_added(path: Path) -> None:
    with database(
        path, "CREATE TABLE pages (crawl TEXT, url TEXT, title TEXT, mine TEXT, PRIMARY KEY (crawl, url))"
    ) as old:
        old.execute("INSERT INTO pages VALUES ('crawl', 'https://site.example/0', 'Old', 'kept')")
    async with opened(path) as sink:
        await sink.write([page(1)], b"")
    old_row, new_row = read_sqlite(path)
    assert (old_row["title"], old_row["mine"], old_row["error"], old_row["redirects"]) == ("Old", "kept", None, [])
    assert (new_row["title"], new_row["mine"]) == ("Page 1", None)


async def test_other_tables_in_the_same_file_are_not_changed(path: Path) -> None:
    with database(path, "CREATE TABLE mine (x)", "INSERT INTO mine VALUES (1)"):
        pass
    async with opened(path) as sink:
        await sink.write([page(1)], b"")
    with database(path) as reader:
        assert reader.execute("SELECT x FROM mine").fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("CREATE TABLE pages (id INTEGER PRIMARY KEY, body TEXT)", "has a table `pages` that is not from Shoal"),
        ("CREATE TABLE pages (url TEXT, crawl TEXT)", "has a table `pages` that is not from Shoal"),
        ("CREATE VIEW pages AS SELECT 1 AS crawl, 2 AS url", "has a table `pages` that is not from Shoal"),
        ("PRAGMA user_version = 2", "has schema version 2, but 1 is supported"),
    ],
)
async def test_a_foreign_database_is_refused_and_not_changed(path: Path, statement: str, sentence: str) -> None:
    with database(path, statement) as connection:
        before = list(connection.iterdump())
    with pytest.raises(SinkRefused) as refused:
        async with opened(path):
            pass
    assert str(refused.value).startswith(f"The output {path} {sentence}")
    assert str(refused.value).endswith("; name another file.")
    with database(path) as connection:
        assert list(connection.iterdump()) == before


async def test_a_file_that_is_not_a_database_is_refused_and_not_changed(path: Path) -> None:
    path.write_text("These are my notes.\n" * 100)
    with pytest.raises(SinkRefused, match=r"is not an SQLite database; name another file\.\Z"):
        async with opened(path):
            pass
    assert path.read_text() == "These are my notes.\n" * 100


async def test_a_database_damaged_during_a_crawl_is_refused(path: Path) -> None:
    async with opened(path) as sink:
        await sink.write([page(number) for number in range(200)], b"")
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))
    with pytest.raises(SinkRefused, match="is a damaged SQLite database"):
        async with opened(path) as sink:
            await sink.write([page(number) for number in range(200)], b"")


async def test_a_violated_constraint_of_a_user_is_named(path: Path) -> None:
    async with opened(path):
        pass
    with database(path, "CREATE UNIQUE INDEX one_title ON pages (title)"):
        pass
    async with opened(path) as sink:
        await sink.write([page(1)], b"")
        with pytest.raises(SinkRefused, match=r"cannot be used: UNIQUE constraint failed: pages.title\."):
            await sink.write([page(2, title="Page 1")], b"")
