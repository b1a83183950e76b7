"""Written records are read back unchanged, from every output of the contract."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shoal.errors import InvalidInput, SinkRefused, SinkUnavailable, UnknownCrawl
from shoal.model.record import Item, Record
from shoal.operations.export import into_output
from shoal.sinks import check_output, is_database, merge, open_sink
from shoal.sinks.columns import moment
from shoal.sinks.files.flat_items import cell_text
from shoal.sinks.reader import items_of_page, read
from tests.servers import free_port
from tests.sinks.databases import Database
from tests.sinks.outputs import Output, Store, read_sqlite

FULL = Record(
    crawl="c", url="https://a.example/", status=404, error="dns", title="=1+1", description="'=2", text="x\r\n\"y\", z",
    language="en", canonical="https://a.example/c", content_type="text/html", charset="utf-8", bytes=7, depth=3,
    found="seed", links=9, robots="noindex", redirects=(("https://b.example/", 301), ("https://c.example/", 0)),
    etag='"e"', last_modified="Mon", fetched_at=1700000000.657, response_seconds=0.25, bytes_received=5,
    address="192.0.2.1", http_version="2", attempt=2, robots_ignored=True, worker="w", spider="", file="f",
)  # fmt: skip
ITEM = Item(
    crawl="c", url="https://a.example/", spider="s", number=2, fetched_at=1700000000.657,
    data={"a": [1, 2.5, None, True], "b": {"c": "ä"}},
)  # fmt: skip


async def written(uri: str, *records: Record | Item, spider: bool = False) -> str:
    sink = open_sink(check_output(uri), worker="w", spider=spider)
    await sink.open()
    await sink.write(records, b"receipt")
    await sink.commit(())
    await sink.close()
    await merge(uri, live=(), replay=Store().replay, spider=spider)
    return uri


async def read_all(uri: str, **how: Any) -> list[Record | Item]:
    return [record async for batch in read(uri, **how) for record in batch]


async def test_every_field_of_a_record_is_read_back(output: Output, tmp_path: Path) -> None:
    plain = Record(crawl="c", url="https://a.example/b", status=200)
    uri = await written(output.uri(tmp_path), FULL, plain)
    back = {record.url: record for record in await read_all(uri)}
    assert len(back) == 2
    assert back[plain.url] == plain
    # Milliseconds are what an output has of a moment.
    full = back[FULL.url]
    assert moment(full) == moment(FULL)
    assert msgspec.structs.replace(full, fetched_at=FULL.fetched_at) == FULL


async def test_records_that_were_read_are_written_again_unchanged(output: Output, tmp_path: Path) -> None:
    uri = await written(output.uri(tmp_path), FULL)
    before = output.read(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    await written(output.uri(other), *await read_all(uri))
    assert output.read(other) == before


async def test_one_crawl_is_read_and_a_crawl_without_rows_is_reported(output: Output, tmp_path: Path) -> None:
    records = [Record(crawl=crawl, url=f"https://a.example/{n}") for crawl in ("c", "d") for n in range(3)]
    uri = await written(output.uri(tmp_path), *records)
    assert {record.key for record in await read_all(uri, crawl="d")} == {record.key for record in records[3:]}
    with pytest.raises(UnknownCrawl, match="has no page of crawl 'x'"):
        await read_all(uri, crawl="x")


async def test_only_some_columns_are_read(output: Output, tmp_path: Path) -> None:
    uri = await written(output.uri(tmp_path), FULL)
    (record,) = await read_all(uri, crawl="c", columns=("crawl", "url", "depth", "redirects"))
    assert record == Record(crawl="c", url=FULL.url, depth=3, redirects=FULL.redirects)


async def test_items_are_read_back(output: Output, tmp_path: Path) -> None:
    uri = await written(output.uri(tmp_path), ITEM, spider=True)
    (item,) = await read_all(uri, items=True)
    assert isinstance(item, Item)
    assert moment(item) == moment(ITEM)
    expected = ITEM
    if output.name == "pages.csv":
        # Cells are text, and an empty one is null.
        expected = msgspec.structs.replace(
            ITEM, data={name: cell_text(value) for name, value in ITEM.data.items() if cell_text(value)}
        )
    assert msgspec.structs.replace(item, fetched_at=ITEM.fetched_at) == expected


async def test_an_export_and_its_reverse_give_the_same_rows_and_are_repeatable(output: Output, tmp_path: Path) -> None:
    records = [msgspec.structs.replace(FULL, url=f"https://a.example/{n}", crawl=f"c{n % 2}") for n in range(10)]
    first, last = str(tmp_path / "first.db"), str(tmp_path / "last.db")
    await written(first, *records)
    assert await into_output(first, output.uri(tmp_path), print, crawl="c1") == 5
    for _ in range(2):
        assert await into_output(output.uri(tmp_path), last, print) == 5
    rows = [
        sorted(read_sqlite(Path(path)), key=lambda row: row["url"]) for path in (first, last)
    ]  # fmt: skip
    assert rows[1] == [row for row in rows[0] if row["crawl"] == "c1"]


async def test_an_export_into_files_needs_a_new_folder_and_an_output_of_pages(tmp_path: Path) -> None:
    source, target = str(tmp_path / "a.db"), str(tmp_path / "b.parquet")
    await written(source, FULL)
    await into_output(source, target, print)
    with pytest.raises(InvalidInput, match="already exists; choose another one"):
        await into_output(source, target, print)
    with pytest.raises(InvalidInput, match="is a WARC archive: other outputs do not have the responses it needs"):
        await into_output(source, f"warc:{tmp_path / 'w'}", print)


async def test_many_rows_are_read_in_batches(output: Output, tmp_path: Path) -> None:
    records = [Record(crawl="c", url=f"https://a.example/{n}", text="x" * 10_000) for n in range(1100)]
    uri = await written(output.uri(tmp_path), *records)
    sizes = [len(batch) async for batch in read(uri)]
    assert sum(sizes) == 1100
    assert max(sizes) <= 500
    # Nothing is left open by who has had enough.
    async with aclosing(read(uri)) as batches:
        assert len(await anext(batches)) > 0


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.jsonl", b'{"crawl": "c", "url": "u"}\nno json\n', "Line 2 of .* is not a record of Shoal"),
        ("a.jsonl", b'{"crawl": "c"}\n', "Line 1 of .* is not a record of Shoal.*url"),
        ("a.jsonl", b'{"crawl": "c", "url": "u", "status": "x"}\n', "Line 1 of .* is not a record"),
        ("a.jsonl", b'{"crawl": "c", "url": "u", "fetched_at": "soon"}\n', "has an invalid fetched_at"),
        ("a.jsonl.gz", b"plain", "a.jsonl.gz cannot be read"),
        ("a.jsonl.zst", b"plain text", "a.jsonl.zst cannot be read"),
        ("a.csv", b"name,price\r\na,1\r\n", "not a CSV file of Shoal"),
        ("a.csv", b"crawl,url,status\r\nc,u,x\r\n", "Line 2 of .* is not a record"),
        ("a.csv", b"crawl,url\r\nc,\xff\r\n", "a.csv cannot be read"),
        ("a.db", b"no database at all", "cannot be read as an SQLite output"),
        ("a.parquet/1.parquet", b"no parquet", "cannot be read as Parquet"),
    ],
)
async def test_an_invalid_output_is_reported_in_one_sentence(
    tmp_path: Path, name: str, content: bytes, sentence: str
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SinkRefused, match=sentence):
        await read_all(str(tmp_path / name.partition("/")[0]))


async def test_a_line_without_a_line_break_is_not_read_yet(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"crawl": "c", "url": "u"}\n{"crawl": "c", "url": "v"}')
    assert [record.url for record in await read_all(str(path))] == ["u"]


async def test_a_missing_output_is_reported_and_not_created(tmp_path: Path) -> None:
    for name in ("a.db", "a.jsonl", "a.parquet"):
        with pytest.raises(InvalidInput, match="There is no output"):
            await read_all(str(tmp_path / name))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("service", ["postgresql_server", "mariadb_server"])
async def test_a_missing_or_foreign_table_is_reported_and_not_created(
    service: str, request: pytest.FixtureRequest
) -> None:
    server: Database = request.getfixturevalue(service)
    with pytest.raises(SinkRefused, match="has no table nothing_here of Shoal"):
        await read_all(server.uri(table="nothing_here"))
    with pytest.raises(SinkRefused, match="has no table nothing_here_items"):
        await read_all(server.uri(table="nothing_here"), items=True)
    with pytest.raises(SinkRefused, match="check user and password"):
        await read_all(server.uri(login="shoal:s3cret"))
    with pytest.raises(SinkUnavailable, match="cannot be reached") as raised:
        await read_all(server.uri(port=free_port()))
    assert "pass" not in str(raised.value)


async def test_the_items_of_one_page_are_found_in_a_database(output: Output, tmp_path: Path) -> None:
    uri = output.uri(tmp_path)
    if not is_database(uri):
        pytest.skip("only databases find rows by their key")
    replace = msgspec.structs.replace
    others = [replace(ITEM, spider="t"), replace(ITEM, url="https://a.example/b"), replace(ITEM, crawl="d")]
    await written(uri, ITEM, replace(ITEM, number=1), *others, spider=True)
    back = await items_of_page(uri, "c", ITEM.url, "s")
    assert {(item.number, moment(item)) for item in back} == {(1, moment(ITEM)), (2, moment(ITEM))}
    assert all(item.data == ITEM.data for item in back)
    assert await items_of_page(uri, "c", "https://a.example/none", "s") == []
    assert await items_of_page(uri, "none", ITEM.url, "s") == []
