"""Outputs that only `shoal export` reads back: streams, tables of spiders, archives."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import InvalidInput, SinkRefused, SinkUnavailable, UnknownCrawl
from shoal.model.record import Capture, Record
from shoal.model.response import Response
from shoal.operations.export import into_output, records
from shoal.sinks import check_output, merge, open_sink
from shoal.sinks.columns import encodable
from shoal.sinks.files.jsonl import json_line
from shoal.sinks.reader import ReadRequest
from shoal.sinks.streams import reader, redis
from tests.brokers import Kafka
from tests.servers import Server, free_port
from tests.sinks.databases import Database
from tests.sinks.outputs import Store, item, page
from tests.sinks.test_reading import FULL

HOSTILE = ["'); DROP TABLE x; --", "a\0b", "half \ud83d", "😀", "=1+1", "\r\n", '"', "\\u0000", "</script>", "\u2028"]


async def read_all(uri: str, **how: Any) -> list[Any]:
    async with aclosing(records(uri, **how)) as batches:
        return [record async for batch in batches for record in batch]


async def send(uri: str, *batches: list[Any], spider: bool = False) -> str:
    sink = open_sink(check_output(uri), worker="w", spider=spider)
    await sink.open()
    for batch in batches:
        await sink.write(batch, b"receipt")
        await sink.commit(())
    await sink.close()
    await merge(uri, live=(), replay=Store().replay, spider=spider)
    return uri


def lines(rows: list[Any]) -> list[Any]:
    """Rows as JSON lines have them."""
    return sorted(
        (json.loads(json_line(encodable(row))) for row in rows), key=lambda row: json.dumps(row, sort_keys=True)
    )


@pytest.fixture(params=["list", "stream", "kafka"])
def stream(request: pytest.FixtureRequest) -> str:
    name = f"back-{abs(hash(request.node.name)):x}"
    if request.param == "kafka":
        cluster: Kafka = request.getfixturevalue("brokers")
        return cluster.uri(name)
    store: Server = request.getfixturevalue("valkey")
    return f"{store.url}/0/{name}" + ("?stream" if request.param == "stream" else "")


async def test_a_stream_can_be_read_repeatedly_and_gives_each_record_once(stream: str) -> None:
    texts = [page(number, title=title) for number, title in enumerate(HOSTILE)]
    await send(
        stream, [FULL, *texts], [page(1, title="older"), page(1, title="newer")], [page(1, title="newest"), FULL]
    )
    expected = lines([FULL, texts[0], page(1, title="newest"), *texts[2:]])
    for _ in range(2):
        assert lines(await read_all(stream)) == expected
    assert lines(await read_all(stream, crawl="crawl")) == [row for row in expected if row["crawl"] == "crawl"]
    with pytest.raises(UnknownCrawl, match="has no record of crawl 'x'") as error:
        await read_all(stream, crawl="x")
    assert "hunter2" not in str(error.value)


async def test_an_unchanged_page_keeps_its_message(stream: str) -> None:
    await send(stream, [page(1, etag='"a"')], [page(1, status=304, text="", title="", fetched_at=1700000009.0)])
    (record,) = await read_all(stream)
    assert (record.title, record.status, record.etag) == ("Page 1", 200, '"a"')
    assert int(record.fetched_at) < 1700000009


async def test_a_long_stream_is_read_in_pages(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_BYTES", 30_000)
    await send(stream, [page(number) for number in range(300)], [page(number) for number in range(200, 400)])
    assert len({record.key for record in await read_all(stream)}) == len(await read_all(stream)) == 400


async def test_items_of_a_stream_are_read_back(stream: str) -> None:
    items = [item(1, number, {"text": text, "n": [number]}) for number, text in enumerate(HOSTILE, 1)]
    await send(stream, items, items[:3], spider=True)
    assert lines(await read_all(stream)) == lines(await read_all(stream, items=True)) == lines(items)


async def test_an_empty_stream_gives_nothing(valkey: Server) -> None:
    assert await read_all(f"{valkey.url}/0/nothing-here") == await read_all(f"{valkey.url}/0/nothing-here?stream") == []


async def test_a_list_that_others_consume_is_not_read_with_gaps(valkey: Server) -> None:
    uri = f"{valkey.url}/0/taken-from"
    await send(uri, [page(number) for number in range(100)])
    async with aclosing(redis.TECHNOLOGY.read(uri, ReadRequest(None, items=False, columns=()))) as batches:
        await anext(batches)
        valkey.ask("LPOP", "taken-from")
        with pytest.raises(SinkRefused, match="loses entries to another program"):
            await anext(batches)


async def test_a_foreign_stream_is_reported_in_one_sentence(valkey: Server, brokers: Kafka) -> None:
    valkey.ask("RPUSH", "strange", "no json")
    valkey.ask("XADD", "strange-stream", "*", "a", "b")
    with pytest.raises(SinkRefused, match=r"A message of redis://.*/0/strange is not a record of Shoal"):
        await read_all(f"{valkey.url}/0/strange")
    with pytest.raises(SinkRefused, match="is not a record of Shoal"):
        await read_all(f"{valkey.url}/0/strange-stream?stream")
    with pytest.raises(SinkRefused, match="WRONGTYPE"):
        await read_all(f"{valkey.url}/0/strange-stream")
    with pytest.raises(SinkRefused, match="check user and password"):
        await read_all(f"redis://:wrong@127.0.0.1:{valkey.port}/0/x")
    with pytest.raises(SinkUnavailable, match="cannot be reached"):
        await read_all(f"redis://127.0.0.1:{free_port()}/0/x")
    with pytest.raises(InvalidInput, match="cannot be read back: an exchange does not store messages"):
        await read_all("amqp://u:secret@127.0.0.1:1/x")


# Tables of spiders


async def test_items_of_a_table_per_spider_are_read_back(database: Database) -> None:
    uri = f"{database.uri(table='back')}&table_per_spider"
    data = {"title": "A", "price": 9.5, "count": 3, "new": True, "old": False, "tags": ["x", {"y": None}], "url": "u"}
    items = [
        item(1, data=data),
        item(1, 2, {"price": "on request", "big": 2**60 + 1}),
        item(2, data={}, spider="other"),
    ]
    items += [item(3, number, {"title": text}) for number, text in enumerate(HOSTILE, 1)]
    await send(uri, [page(1, spider="books"), *items], spider=True)
    # Of another program, and of another output: their names begin the same.
    database.sql("CREATE TABLE back_items_strange (id INT)")
    await send(f"{database.uri(table='back_items')}&table_per_spider", [item(9)], spider=True)
    nul = "\ufffd" if database.scheme == "postgresql" else "\0"
    assert lines(await read_all(uri, items=True)) == lines([encodable(item, nul=nul) for item in items])
    assert [item.url for item in await read_all(uri, items=True, crawl="crawl") if item.spider == "other"] == [
        items[2].url
    ]
    with pytest.raises(UnknownCrawl):
        await read_all(uri, items=True, crawl="x")
    with pytest.raises(SinkRefused, match=r"has no table none_items_\.\.\. of Shoal"):
        await read_all(f"{database.uri(table='none')}&table_per_spider", items=True)


async def test_a_field_with_a_reserved_or_duplicate_name_is_not_lost(database: Database) -> None:
    uri = f"{database.uri(table='doubled')}&table_per_spider"
    await send(uri, [item(1, data={"Price": 1, "price": "x", "id": "i", "extra": [1], "none": None})], spider=True)
    (back,) = await read_all(uri, items=True)
    assert back.data == {"price_": 1, "price": "x", "id": "i", "extra": [1]}


async def test_a_spider_with_a_long_name_is_read_too(database: Database) -> None:
    uri = f"{database.uri(table='long')}&table_per_spider"
    items = [item(number, spider="s" * 90 + str(number)) for number in range(3)]
    await send(uri, items, spider=True)
    assert lines(await read_all(uri, items=True)) == lines(items)


# Archives

HOST = "https://a.example"
HTML = "<title>{}</title><p>Text of {} <a href=/b>b</a>"


def capture_of(path: str, at: float = 1.0, **more: Any) -> Capture:
    headers = {"content-type": "text/html; charset=utf-8"} | more.pop("headers", {})
    body = more.pop("body", HTML.format(path, path).encode())
    values: dict[str, Any] = {"status": 200, "address": "127.0.0.1", "http_version": "1.1", "bytes_received": 99} | more
    return Capture(
        crawl="crawl", page=Response(url=HOST + path, headers=(*headers.items(),), body=body, started_at=at, **values)
    )  # fmt: skip


async def archived(folder: Path, *batches: list[Capture]) -> dict[str, Record]:
    uri = await send(f"warc:{folder}", *batches)
    return {record.url.removeprefix(HOST): record for record in await read_all(uri)}


async def test_archived_responses_become_the_rows_of_their_pages(tmp_path: Path) -> None:
    pdf = {"content-type": "application/pdf", "etag": '"e"', "x-robots-tag": "noindex"}
    responses = [
        capture_of("/", 1700000000.657, http_version="2"),
        capture_of("/gone", status=404),
        capture_of("/empty", body=b""),
    ]
    responses.append(capture_of("/x", body=b"%PDF", headers=pdf))
    for number, text in enumerate(HOSTILE):
        responses.append(capture_of(f"/{number}", body=f"<title>{text}</title>".encode(errors="replace")))
    pages = await archived(tmp_path / "w", responses)
    first = pages["/"]
    assert (first.crawl, first.title, first.text, first.links) == ("crawl", "/", "Text of / b", 1)
    assert (first.status, first.http_version, first.address, first.bytes_received) == (200, "2", "127.0.0.1", 99)
    assert (round(first.fetched_at, 3), first.charset) == (1700000000.657, "utf-8")
    assert (pages["/gone"].status, pages["/gone"].error, pages["/gone"].title) == (404, "status 404", "")
    assert (pages["/x"].bytes, pages["/x"].etag, pages["/x"].robots) == (4, '"e"', "noindex")
    assert len(pages) == 4 + len(HOSTILE)
    assert pages["/3"].title == "😀"


async def test_the_last_response_of_a_url_counts_wherever_it_is(tmp_path: Path) -> None:
    """A part is named by when it was begun, and holds what came long after."""
    folder = tmp_path / "w"
    sink = open_sink(f"warc:{folder}", worker="z")
    await sink.open()
    await sink.write([capture_of("/other")], b"")
    await sink.commit(())
    await send(f"warc:{folder}", [capture_of("/", 10.0, body=b"<title>old</title>")])
    await sink.write([capture_of("/", 20.0, body=b"<title>new</title>")], b"")
    await sink.commit(())
    await sink.close()
    assert {record.title for record in await read_all(f"warc:{folder}")} == {"/other", "new"}


async def test_a_revisit_record_has_the_body_that_it_refers_to(tmp_path: Path) -> None:
    pages = await archived(
        tmp_path / "w",
        [capture_of("/", 10.0), capture_of("/b", 10.0, headers={"etag": '"b"'})],
        [capture_of("/", 20.0, headers={"etag": '"new"'})],
        [
            capture_of("/b", 30.0, status=304, body=b"", headers={"last-modified": "Mon"}),
            capture_of("/c", status=304, body=b""),
        ],
    )
    assert len(pages) == 3
    assert (pages["/"].title, pages["/"].etag, pages["/"].fetched_at, pages["/"].bytes) == ("/", '"new"', 20.0, 45)
    known = pages["/b"]
    assert (known.title, known.status, known.etag, known.last_modified) == ("/b", 200, '"b"', "Mon")
    assert known.fetched_at == 30.0
    assert pages["/c"].status == 304


async def test_redirects_are_not_rows_unless_they_lead_nowhere(tmp_path: Path) -> None:
    def leads(path: str, there: str, at: float, status: int = 301) -> Capture:
        return capture_of(path, at, status=status, headers={"location": there})

    pages = await archived(
        tmp_path / "w",
        [
            leads("/1", "/2", 1.0), leads("/2", "/3", 2.0, 302), capture_of("/3", 3.0), leads("/self", "/self", 1.0),
            leads("/a", "/b", 1.0), leads("/b", "/a", 2.0), leads("/mail", "mailto:x", 1.0),
            capture_of("/none", status=301), capture_of("/before", 1.0), leads("/after", "/before", 2.0),
        ],
    )  # fmt: skip
    assert pages["/3"].redirects == (("https://a.example/1", 301), ("https://a.example/2", 302))
    assert (pages["/3"].found, pages["/before"].found, pages["/before"].redirects) == ("redirect", "link", ())
    errors = {path: record.error for path, record in pages.items() if record.error}
    assert errors == {
        "/self": "redirect loop", "/b": "redirect loop", "/mail": "invalid redirect target",
        "/none": "redirect without location",
    }  # fmt: skip
    assert len(pages) == 6


async def test_a_single_file_is_an_archive_and_may_be_uncompressed(tmp_path: Path) -> None:
    folder = tmp_path / "w"
    pages = await archived(folder, [capture_of(f"/{n}") for n in range(5)])
    (file,) = folder.glob("*.warc.gz")
    plain, whole = tmp_path / "one.warc", tmp_path / "whole.warc.gz"
    plain.write_bytes(gzip.decompress(file.read_bytes()))
    whole.write_bytes(gzip.compress(plain.read_bytes()))
    for archive in (file, plain):
        assert {record.url: record for record in await read_all(f"warc:{archive}")} == {
            record.url: record for record in pages.values()
        }
    with pytest.raises(SinkRefused, match="is not a gzip member of its own: decompress the file with gunzip"):
        await read_all(f"warc:{whole}")


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda data: data[:-40], "is incomplete"),
        (lambda data: data[:600] + b"no gzip" + data[607:], "cannot be decompressed|is incomplete"),
        (lambda data: b"plain text", "is not a WARC record"),
        (lambda data: gzip.compress(b"HTTP/1.1 200 OK\r\n\r\n"), "is not a WARC record"),
    ],
)
async def test_a_broken_archive_is_reported_in_one_sentence(
    tmp_path: Path, spoil: Callable[[bytes], bytes], sentence: str
) -> None:
    await archived(tmp_path / "w", [capture_of("/")])
    (file,) = (tmp_path / "w").glob("*.warc.gz")
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(SinkRefused, match=rf"The record at byte [\d,]+ of .*({sentence})"):
        await read_all(f"warc:{tmp_path / 'w'}")


async def test_a_crawl_or_items_that_an_archive_lacks_are_reported(tmp_path: Path) -> None:
    folder = tmp_path / "w"
    for at in (10.0, 20.0):
        await archived(folder, [capture_of("/", at)])
    with pytest.raises(UnknownCrawl, match="has no page of crawl 'x'; it has crawl"):
        await read_all(f"warc:{folder}", crawl="x")
    assert len(await read_all(f"warc:{folder}", crawl="crawl")) == 1
    with pytest.raises(InvalidInput, match="contains responses, not items"):
        await read_all(f"warc:{folder}", items=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="There is no archive"):
        await read_all(f"warc:{tmp_path / 'empty'}")
    sink = open_sink(f"warc:{tmp_path / 'v'}", worker="w")
    await sink.open()
    await sink.write([capture_of("/", 1.0)], b"")
    await sink.commit(())
    await sink.write([capture_of("/", 2.0)], b"")
    await sink.commit(())
    await sink.close()
    (file,) = (tmp_path / "v").glob("*.warc.gz")
    raw = gzip.decompress(file.read_bytes())
    # Without its first response, as if a file of the archive was deleted.
    begin, end = raw.index(b"WARC/1.1\r\nWARC-Type: response"), raw.index(b"WARC/1.1\r\nWARC-Type: revisit")
    file.unlink()
    (tmp_path / "v" / "crawl-w-1.warc").write_bytes(raw[:begin] + raw[end:])
    with pytest.raises(SinkRefused, match="but not the earlier response"):
        await read_all(f"warc:{tmp_path / 'v'}")


# All of them


async def test_an_archive_or_stream_is_exported_to_any_output(
    tmp_path: Path, valkey: Server, mariadb_server: Database
) -> None:
    uri = f"{valkey.url}/0/any?stream"
    pages = await archived(tmp_path / "w", [capture_of(f"/{n}") for n in range(20)])
    way = [
        f"warc:{tmp_path / 'w'}",
        uri,
        str(tmp_path / "a.parquet"),
        mariadb_server.uri(table="any_output"),
        f"{valkey.url}/0/any-2",
    ]
    for source, target in itertools.pairwise(way):
        assert await into_output(source, target, print) == 20
    assert lines(await read_all(way[-1])) == lines(list(pages.values()))


async def test_reading_a_database_leaves_no_extra_files(tmp_path: Path) -> None:
    uri = str(tmp_path / "a.db")
    await send(uri, [page(1)])
    assert [path.name for path in tmp_path.iterdir()] == ["a.db"]
    assert len(await read_all(uri)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.db"]
    # While another program writes, its write-ahead log is not touched.
    sink = open_sink(uri, worker="w")
    await sink.open()
    await sink.write([page(2)], b"")
    assert len(await read_all(uri)) == 2
    await sink.write([page(3)], b"")
    assert len(await asyncio.to_thread(lambda: asyncio.run(read_all(uri)))) == 3
    await sink.close()
    assert [path.name for path in tmp_path.iterdir()] == ["a.db"]
