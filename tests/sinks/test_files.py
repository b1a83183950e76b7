"""Compressed lines, CSV and Parquet: what each adds to parts and gathering."""

from __future__ import annotations

import asyncio
import csv
import gzip
import importlib
import subprocess
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from shoal.errors import SinkRefused
from shoal.sinks import Sink, merge, open_sink
from shoal.sinks.files import parquet
from shoal.sinks.files.compression import ZSTD_MODULE
from tests.servers import wait_until
from tests.sinks.outputs import (
    Store,
    page,
    read_csv,
    read_jsonl_gz,
    read_jsonl_zst,
    read_parquet,
    receipt_of,
)
from tests.sinks.test_contract import deaths, in_a_child


async def put(sink: Sink, *numbers: int, refused: tuple[int, ...] = (), **more: Any) -> None:
    records = [page(number, **more) for number in numbers]
    await sink.write(records, receipt_of("", records))
    await sink.commit([page(number).key for number in refused])


async def crawl(path: Path, *numbers: int, **more: Any) -> None:
    sink = open_sink(str(path), worker="worker")
    await sink.open()
    await put(sink, *numbers, **more)
    await sink.close()
    await merge(str(path), live=(), replay=Store().replay)


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["url"].rpartition("/")[2]) for row in rows)


@pytest.mark.parametrize(("ending", "read"), [("gz", read_jsonl_gz), ("zst", read_jsonl_zst)])
async def test_a_compressed_file_is_appended_to(tmp_path: Path, ending: str, read: Any) -> None:
    path = tmp_path / f"pages.jsonl.{ending}"
    await crawl(path, *range(200))
    once = path.stat().st_size
    assert once * 5 < sum(len(row["text"]) for row in read(path))
    await crawl(path, *range(200, 400))
    assert path.stat().st_size > once
    assert numbers(read(path)) == list(range(400))


async def test_compressed_lines_are_readable_by_other_programs(tmp_path: Path) -> None:
    for number in (1, 2):
        await crawl(tmp_path / "pages.jsonl.gz", number)
        await crawl(tmp_path / "pages.jsonl.zst", number)
    subprocess.run(["gzip", "--test", tmp_path / "pages.jsonl.gz"], check=True)
    plain = gzip.decompress((tmp_path / "pages.jsonl.gz").read_bytes())
    zstd = importlib.import_module(ZSTD_MODULE)
    assert zstd.decompress((tmp_path / "pages.jsonl.zst").read_bytes()) == plain


@pytest.mark.chaos
@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "read"), [("pages.jsonl.gz", read_jsonl_gz), ("pages.csv", read_csv), ("pages.parquet", read_parquet)]
)
def test_a_merge_killed_at_any_step_shows_each_page_once(tmp_path: Path, name: str, read: Any) -> None:
    store = Store()

    async def work(path: Path) -> None:
        await crawl(path, 0)
        sink: Any = open_sink(str(path), worker="worker")
        await sink.open()
        await put(sink, 1, 2, 3, refused=(2,))
        # Its process dies here, and its lock with it.
        sink._part.close()
        sink._part = None
        await sink.close()

    def run(at: int) -> bool:
        path = tmp_path / str(at) / name
        path.parent.mkdir()
        asyncio.run(work(path))
        ended = in_a_child(lambda: asyncio.run(merge(str(path), live=(), replay=store.replay)), killed_at_call=at)
        asyncio.run(merge(str(path), live=(), replay=store.replay))
        assert numbers(read(path)) == [0, 1, 3], at
        return ended

    assert deaths(run) >= 8


async def test_a_csv_file_has_one_header_and_no_formula(tmp_path: Path) -> None:
    path = tmp_path / "pages.csv"
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "'=1", "''-", "'quoted", "a=1", ' ="x"', ""]
    for number, text in enumerate(texts):
        await crawl(path, number, title=text, text=text)
    lines = path.read_bytes().split(b"\r\n")
    assert lines[0].startswith(b"crawl,url,status,error,title,")
    assert sum(line.startswith(b"crawl,url,") for line in lines) == 1
    with path.open(newline="") as file:
        cells = [row["title"] for row in csv.DictReader(file)]
    assert cells[:5] == ["'=1+1", "'+1", "'-1", "'@SUM(A1)", "'\t=1"]
    assert cells[8:] == ["''=1", "'''-", "'quoted", "a=1", ' ="x"', ""]
    assert [row["title"] for row in read_csv(path)] == texts, "taking the mark away gives back what the page said"
    query = f"SELECT url, title FROM read_csv('{path}', all_varchar=true)"  # noqa: S608
    rows = duckdb.execute(query).fetchall()
    assert [title or "" for _, title in sorted(rows, key=lambda row: int(row[0].rpartition("/")[2]))][8] == "''=1"


@pytest.mark.parametrize("name", ["pages.csv", "pages.csv.gz", "pages.csv.zst"])
async def test_a_csv_file_with_other_columns_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"name,age\r\nAda,36\r\n")
    sink = open_sink(str(path), worker="worker")
    with pytest.raises(SinkRefused, match="is not a CSV file with these columns; name another file"):
        await sink.open()
    await sink.close()
    path.unlink()
    for number in (1, 2):
        await crawl(path, number)


async def test_parquet_files_are_read_by_arrow_and_duckdb(tmp_path: Path) -> None:
    path = tmp_path / "pages.parquet"
    await crawl(path, *range(100), redirects=(("https://a.example/", 301),))
    await crawl(path, *range(100, 150))
    assert len(list(path.iterdir())) == 2
    assert not path.with_name("pages.parquet.parts").exists()
    table = pq.read_table(path)
    assert table.num_rows == 150
    assert str(table.schema.field("fetched_at").type) == "timestamp[ms, tz=UTC]"
    assert {str(column.compression) for column in _chunks(path)} == {"ZSTD"}
    query = f"SELECT count(*), max(redirects[1].url) FROM '{path}/*.parquet' WHERE error IS NULL"  # noqa: S608
    assert duckdb.execute(query).fetchone() == (150, "https://a.example/")


def _chunks(path: Path) -> list[Any]:
    metadata = pq.read_metadata(next(path.glob("*.parquet")))
    return [metadata.row_group(0).column(number) for number in range(metadata.num_columns)]


async def test_refused_rows_are_in_no_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "pages.parquet"
    sink = open_sink(str(path), worker="worker")
    await sink.open()
    await put(sink, 1, 2, 3, refused=(2,))
    await put(sink, 4, 5, refused=(4, 5))
    await sink.close()
    assert numbers(read_parquet(path)) == [1, 3]
    await crawl(path, 6, refused=(6,))
    assert len(list(path.iterdir())) == 1, "nothing makes no file"


async def test_a_parquet_file_is_closed_at_its_size_limit_and_when_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pages.parquet"
    monkeypatch.setattr(parquet.ParquetSink, "part_bytes", 50_000)
    monkeypatch.setattr(parquet.ParquetSink, "idle_seconds", 0.2)
    sink = open_sink(str(path), worker="worker")
    await sink.open()
    await put(sink, *range(100))
    assert len(list(path.glob("*.parquet"))) == 1
    await put(sink, 100)
    assert len(list(path.glob("*.parquet"))) == 1
    await asyncio.to_thread(wait_until, lambda: len(list(path.glob("*.parquet"))) == 2, "the part is closed")
    assert numbers(read_parquet(path)) == list(range(101))
    await sink.close()
    await sink.close()


async def test_a_row_group_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pages.parquet"
    monkeypatch.setattr(parquet, "GROUP_BYTES", 100_000)
    sink = open_sink(str(path), worker="worker")
    await sink.open()
    for start in range(0, 500, 50):
        await put(sink, *range(start, start + 50))
    await sink.close()
    (file,) = path.glob("*.parquet")
    assert pq.read_metadata(file).num_row_groups == 5
    assert numbers(read_parquet(path)) == list(range(500))
