"""The contract of every sink with the items of spiders. A technology joins in tests/sinks/outputs.py."""

from __future__ import annotations

import asyncio
import csv
import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import pytest

from shoal.errors import SinkRefused
from shoal.model.record import Item
from shoal.sinks import Sink, check_output, merge, open_sink
from shoal.sinks.contract import Stored
from shoal.sinks.reader import read
from tests.sinks.outputs import OUTPUTS, Output, Store, item, items_of, page, receipt_of, urls
from tests.sinks.test_contract import UNLIKE, Fleet


async def opened(output: Output, folder: Path, *, spider: bool = True, worker: str = "worker") -> Sink:
    sink = open_sink(check_output(output.uri(folder)), worker=worker, spider=spider)
    await sink.open()
    return sink


async def seen(output: Output, folder: Path) -> list[dict[str, Any]]:
    await merge(output.uri(folder), live=(), replay=Store().replay, spider=True)
    return sorted(output.read_items(folder), key=lambda row: (row["url"], row["spider"], row["number"]))


async def write_all(output: Output, folder: Path, *batches: list[Stored]) -> list[dict[str, Any]]:
    sink = await opened(output, folder)
    for batch in batches:
        await sink.write(batch, b"receipt")
        await sink.commit(())
    await sink.close()
    return await seen(output, folder)


def visit(number: int, *items: Stored, **more: Any) -> list[Stored]:
    return [page(number, spider="books", **more), *items]


async def test_every_field_of_an_item_is_kept(output: Output, tmp_path: Path) -> None:
    data = {"title": "A", "price": 9.5, "count": 3, "new": True, "none": None, "tags": ["x", {"y": 1}], "Größe": "ü"}
    (row,) = await write_all(output, tmp_path, visit(1, item(1, data=data, fetched_at=1700000000.123)))
    if output.name in ("pages.csv", "pages.parquet"):
        # An empty cell is that of a field without a value, and of one that the item does not have.
        data.pop("none")
    assert row == {
        "crawl": "crawl",
        "url": "https://site.example/1",
        "spider": "books",
        "number": 1,
        "fetched_at": "2023-11-14T22:13:20.123Z",
        "data": data,
    }
    assert output.server is not None or list(row) == ["crawl", "url", "spider", "number", "fetched_at", "data"]


async def test_pages_are_stored_next_to_items_only_in_databases(output: Output, tmp_path: Path) -> None:
    rows = await write_all(output, tmp_path, visit(1, item(1), item(1, 2)), visit(2))
    assert [row["number"] for row in rows] == [1, 2]
    if output.has_pages_too:
        assert output.keys(tmp_path) == dict.fromkeys(urls([1, 2]), 1)
        assert {row["spider"] for row in output.read(tmp_path)} == {"books"}


def deep(levels: int) -> dict[str, Any]:
    data: dict[str, Any] = {"end": 1}
    for _ in range(levels):
        data = {"a": data}
    return data


def floor(data: dict[str, Any], levels: int) -> Any:
    for _ in range(levels):
        data = data["a"]
    return data


HOSTILE = [
    ("a\0b", "a\0b"),
    ("lone \ud800 half", "lone � half"),
    ("joined \ud83d\ude00", "joined 😀"),
    ("four bytes 😀 \U0010ffff", "four bytes 😀 \U0010ffff"),
    ("lines \r\n \u2028 \x85 end", "lines \r\n \u2028 \x85 end"),
    ("'); DROP TABLE items; -- \\' \\\\", "'); DROP TABLE items; -- \\' \\\\"),
    ('"}\n{"crawl":"forged"}\n', '"}\n{"crawl":"forged"}\n'),
    ("=1+1", "=1+1"),
    ("\\u0000", "\\u0000"),
]


async def test_hostile_text_does_not_lose_an_item(output: Output, tmp_path: Path) -> None:
    batch: list[Stored] = []
    for number, (text, _) in enumerate(HOSTILE, 1):
        batch += visit(1, item(1, number, {text: [text], "text": text}), text=text)
    rows = await write_all(output, tmp_path, [*batch, item(2)])
    assert rows.pop()["data"]["price"] == 9.5
    for row, (_, kept) in zip(rows, HOSTILE, strict=True):
        kept = kept.replace("\0", output.nul)
        assert row["data"] == {kept: [kept], "text": kept}


async def test_a_hostile_spider_name_is_stored_as_text(output: Output, tmp_path: Path) -> None:
    names = ["'); DROP TABLE items; --", "=spider", "two\nlines", "a\ud800", "", "x" * 300, '%s ` " \\']
    rows = await write_all(output, tmp_path, [item(1, spider=name) for name in names])
    assert {row["spider"] for row in rows} == {name.replace("\ud800", "�") for name in names}


async def test_values_that_are_not_json_do_not_lose_their_item(output: Output, tmp_path: Path) -> None:
    data = {"nan": float("nan"), "inf": [float("-inf")], "small": 5e-324, "large": 1.7e308, "n": 2**63, "m": -(2**200)}
    strange: dict[Any, Any] = {"digits": 10**5000, "set": {1}, "object": Path("x"), 5: "five", "half": "\ud800"}
    rows = await write_all(
        output, tmp_path, [item(1, 1, data), item(1, 2, strange), item(1, 3, deep(60)), item(1, 4, deep(100_000))]
    )
    first, second, third, fourth = (row["data"] for row in rows)
    assert (first.get("nan"), first["inf"], first["small"], float(first["large"])) == (None, [None], 5e-324, 1.7e308)
    assert (first["n"], first["m"]) == (2**63, -(2**200))
    assert second == {"digits": hex(10**5000), "set": [1], "object": "x", "5": "five", "half": "�"}
    assert floor(third, 60) == {"end": 1}
    assert floor(fourth, 200) is None


async def test_an_item_of_ten_megabytes_is_kept(output: Output, tmp_path: Path) -> None:
    text = "0123456789é'" * 800_000
    rows = await write_all(output, tmp_path, visit(1, item(1, data={"text": text, "n": 1}), item(1, 2)))
    assert rows[0]["data"] == {"text": text, "n": 1}
    assert rows[1]["data"]["price"] == 9.5


async def test_a_batch_keeps_the_last_item_of_a_key(output: Output, tmp_path: Path) -> None:
    rows = await write_all(output, tmp_path, visit(1, item(1, data={"a": 1}), item(2), item(1, data={"a": 2})))
    assert [row["data"].get("a") for row in rows] == [2, None]


DATABASES = [output for output in OUTPUTS if output.keeps_refused]


@pytest.mark.parametrize("output", DATABASES, indirect=True, ids=lambda output: output.name)
async def test_a_revisited_page_has_the_items_of_the_last_visit(output: Output, tmp_path: Path) -> None:
    other = item(1, spider="other")
    rows = await write_all(
        output,
        tmp_path,
        [*visit(1, *(item(1, number) for number in (1, 2, 3, 4))), *visit(2, item(2)), other],
        visit(1, item(1, 1, {"new": 1}), item(1, 3, {"new": 3})),
        visit(2, status=304),
        visit(3, item(3)),
        visit(3, status=0, error="timeout"),
    )
    items = [(row["url"][-1], row["spider"], row["number"], row["data"].get("new")) for row in rows]
    assert items == [("1", "books", 1, 1), ("1", "books", 3, 3), ("1", "other", 1, None), ("2", "books", 1, None)]


@pytest.mark.parametrize("output", DATABASES, indirect=True, ids=lambda output: output.name)
async def test_without_a_spider_there_is_no_table_of_items(output: Output, tmp_path: Path) -> None:
    sink = await opened(output, tmp_path, spider=False)
    await sink.write([page(1)], b"")
    with pytest.raises(Exception, match=r"(?i)no such table|returned non-zero"):
        output.read_items(tmp_path)
    await sink.write(visit(1, item(1)), b"")
    await sink.close()
    assert len(output.read_items(tmp_path)) == 1, "who needs it makes it"


async def test_refused_items_are_not_visible_where_rows_cannot_be_replaced(output: Output, tmp_path: Path) -> None:
    sink = await opened(output, tmp_path)
    for first in (1, 11):
        records = [item(first, number) for number in range(1, 6)]
        await sink.write([page(first, spider="books"), *records], b"receipt")
        await sink.commit([records[0].key, records[3].key])
    await sink.write([*visit(2, item(2), item(2, 2)), *visit(3, item(3))], b"receipt")
    await sink.commit([page(2).key])
    await sink.close()
    rows = await seen(output, tmp_path)
    if not output.keeps_refused:
        assert [(row["url"][21:], row["number"]) for row in rows] == [
            ("1", 2), ("1", 3), ("1", 5), ("11", 2), ("11", 3), ("11", 5), ("3", 1),
        ], "the items of a refused page are refused"  # fmt: skip


async def test_a_batch_without_records_writes_nothing(output: Output, tmp_path: Path) -> None:
    sink = await opened(output, tmp_path)
    await sink.write([], b"receipt")
    await sink.commit(())
    await sink.write(visit(1), b"receipt")
    await sink.commit(())
    await sink.write(visit(2, item(2)), b"receipt")
    await sink.commit(())
    await sink.close()
    assert [row["url"][-1] for row in await seen(output, tmp_path)] == ["2"]


async def test_a_sink_can_be_used_after_a_cancelled_write_of_items(output: Output, tmp_path: Path) -> None:
    sink = await opened(output, tmp_path)
    for turns in range(20):
        batch = [record for number in range(100, 200) for record in visit(number, item(number))]
        write = asyncio.create_task(sink.write(batch, b"cancelled"))
        for _ in range(turns):
            await asyncio.sleep(0)
        write.cancel()
        await asyncio.wait({write})
        if not write.cancelled():
            await sink.commit([record.key for record in batch])
        await sink.write(visit(turns, item(turns)), receipt_of("", visit(turns, item(turns))))
        await sink.commit(())
    await sink.close()
    await seen(output, tmp_path)
    keys = output.item_keys(tmp_path)
    expected = {item(number).key for number in range(20)}
    assert set(keys.values()) == {1}
    assert keys.keys() >= expected if output.keeps_refused else keys.keys() == expected


def expected_items(numbers: Any) -> set[tuple[str, str]]:
    return {item.key for number in numbers for item in items_of(number)}


def check_whole(output: Output, folder: Path) -> None:
    """In a database, a page that is there is there with its items, and no item is without its page."""
    pages = [int(url.rpartition("/")[2]) for _, url in output.keys(folder)]
    assert output.item_keys(folder) == dict.fromkeys(expected_items(pages), 1)


@pytest.mark.full
@pytest.mark.parametrize("output", UNLIKE, indirect=True, ids=lambda output: output.name)
async def test_four_processes_write_items_with_repeated_keys(output: Output, tmp_path: Path) -> None:
    fleet = Fleet(output, tmp_path, range(1500), batch=100, spider="books")
    await asyncio.gather(*(fleet.worker() for _ in range(4)))
    await fleet.merge()
    assert output.item_keys(tmp_path) == dict.fromkeys(expected_items(range(1500)), 1)
    assert sum(len(refused) for refused in fleet.store.replies.values()) > 100, "keys were repeated"
    if output.has_pages_too:
        check_whole(output, tmp_path)


@pytest.mark.chaos
@pytest.mark.full
@pytest.mark.parametrize("output", UNLIKE, indirect=True, ids=lambda output: output.name)
async def test_killed_writers_leave_each_acknowledged_item_once(output: Output, tmp_path: Path) -> None:
    fleet = Fleet(output, tmp_path, range(6000), batch=20, spider="books")
    sink = await opened(output, tmp_path)
    await sink.close()

    async def check() -> None:
        await fleet.merge()
        acknowledged = {key for key in fleet.store.taken if "#" in key[1]}
        keys = output.item_keys(tmp_path)
        assert set(keys.values()) <= {1}
        if output.has_pages_too:
            check_whole(output, tmp_path)
            assert acknowledged <= keys.keys()
        else:
            assert acknowledged == keys.keys()

    for _ in range(3):
        lives = [fleet.random.uniform(0.0, 0.12) for _ in range(2)]
        await asyncio.gather(*(fleet.worker(kill_after_seconds=life) for life in lives))
        await check()
    assert fleet.kills >= 3
    fleet.numbers = range(200)
    await fleet.worker()
    await check()
    assert output.item_keys(tmp_path).keys() >= expected_items(range(200))


async def test_a_file_of_items_is_refused_as_a_file_of_pages(tmp_path: Path) -> None:
    for name in ("a.csv", "a.csv.gz", "a.parquet"):
        for spider in (True, False):
            path = tmp_path / f"{spider}-{name}"
            sink = open_sink(str(path), worker="worker", spider=spider)
            await sink.open()
            await sink.write(visit(1, item(1)), b"receipt")
            await sink.commit(())
            await sink.close()
            await merge(str(path), live=(), replay=Store().replay, spider=spider)
            other = open_sink(str(path), worker="worker", spider=not spider)
            with pytest.raises(SinkRefused, match=r"with (these|other) columns; name another"):
                await other.open()
            await other.close()


async def test_items_are_read_by_other_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("items.csv", "items.parquet", "items.jsonl"):
        sink = open_sink(name, worker="worker", spider=True)
        await sink.open()
        await sink.write([item(1, data={"title": '=HYPERLINK("x")', "price": 1}), item(2)], b"receipt")
        await sink.commit(())
        await sink.close()
        await merge(name, live=(), replay=Store().replay, spider=True)
    query = "SELECT title, price, _number FROM 'items.parquet/*.parquet' ORDER BY _url LIMIT 1"
    assert duckdb.execute(query).fetchall() == [('=HYPERLINK("x")', 1.0, 1)]
    query = "SELECT title, price FROM 'items.jsonl' ORDER BY _url LIMIT 1"
    assert duckdb.execute(query).fetchall() == [('=HYPERLINK("x")', 1.0)]
    query = "SELECT title, price, _number FROM read_csv('items.csv') ORDER BY _url LIMIT 1"
    assert duckdb.execute(query).fetchall() == [('\'=HYPERLINK("x")', 1.0, 1)]
    with Path("items.csv").open(newline="") as file:
        head, *_ = csv.reader(file)
    assert head == ["title", "price", "tags", "_crawl", "_url", "_spider", "_number", "_fetched_at", "_more"]


@pytest.mark.parametrize("name", ["items.csv", "items.csv.gz", "items.jsonl", "items.parquet"])
async def test_flat_files_of_items_are_read_back_as_items(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    written = [
        item(1, 1, {"title": "A", "_url": "own", "__more": "x"}),
        # Fields that the first item of the file did not have, and names that are not valid for columns.
        item(1, 2, {"title": "B", "color": "red", "two\nlines": "y", "x" * 300: "z"}),
        item(2, 1, {"=1+1": "text"}),
    ]
    for number, record in enumerate(written):
        # Each by a worker of its own: the first one decides about the columns.
        sink = open_sink(str(path), worker=f"w{number}", spider=True)
        await sink.open()
        await sink.write([record], b"receipt")
        await sink.commit(())
        await sink.close()
        await merge(str(path), live=(), replay=Store().replay, spider=True)
    if name == "items.parquet":
        written.append(item(3, 1, {"n": 1, "list": [1, {"a": None}], "yes": True, "big": 2**70, "text": "[1]"}))
        written.append(item(3, 2, {"n": "one", "list": "text", "yes": 3.5}))
        sink = open_sink(str(path), worker="w9", spider=True)
        await sink.open()
        await sink.write(written[-2:], b"receipt")
        await sink.commit(())
        await sink.close()
        await merge(str(path), live=(), replay=Store().replay, spider=True)
    read_back = [record async for batch in read(str(path), crawl="crawl") for record in batch]
    assert {row.key: row.data for row in read_back if isinstance(row, Item)} == {
        record.key: record.data for record in written
    }


async def test_a_csv_file_with_other_columns_is_refused_for_items(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text("title,price\r\nA,1\r\n")
    with pytest.raises(SinkRefused, match="is not a CSV file of items with these columns"):
        await open_sink(str(path), worker="w", spider=True).open()


async def test_sqlite_can_extract_fields_of_items(tmp_path: Path) -> None:
    path = tmp_path / "pages.db"
    sink = open_sink(str(path), worker="worker", spider=True)
    await sink.open()
    await sink.write(visit(1, item(1)), b"")
    await sink.close()
    with sqlite3.connect(path) as connection:
        selected = connection.execute("SELECT data->>'$.title', data->>'$.price', number FROM items").fetchall()
    assert selected == [("Book 1/1", 9.5, 1)]


async def test_a_table_of_items_of_another_program_is_refused_before_the_crawl(tmp_path: Path) -> None:
    path = tmp_path / "pages.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE items (name TEXT)")
    sink = open_sink(str(path), worker="worker", spider=True)
    with pytest.raises(SinkRefused, match="has a table `items` that is not from Shoal; name another file"):
        await sink.open()
    await sink.close()
