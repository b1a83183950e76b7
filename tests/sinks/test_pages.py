"""Records in pages, from every output of the contract: each record that existed at first is on exactly one page."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import InvalidInput, SinkRefused
from shoal.model.record import Item, Record
from shoal.sinks.reader import Cursor, page
from tests.sinks.outputs import Output
from tests.sinks.test_reading import written

PAGE = 7
HOSTILE: tuple[Any, ...] = (
    [], [0], [-1], [1], [5], [10**9], [2**63], ["x"], [None], [[]], ["x", 1], ["00" * 16, 0], ["00" * 16, -1],
    ["", "", 0], ["https://a.example/", "s", 2**70], [1.5], [{"a": 1}], ["' OR 1=1 --"], ["zz" * 16, 1],
)  # fmt: skip


def records(*numbers: int, crawl: str = "c") -> list[Record]:
    # Cells of several lines, and one that looks like a row.
    return [
        Record(crawl=crawl, url=f"https://a.example/{n}", status=200, text=f'{n}\r\n"x"\nc,https://no.example/,\n')
        for n in numbers
    ]


async def rest(uri: str, behind: Cursor | None = None, **how: Any) -> list[str]:
    """The URLs of all pages from here on. A place goes over the wire as JSON."""
    urls: list[str] = []
    for _ in range(100):
        rows, behind = await page(uri, "c", PAGE, after=behind, **how)
        urls += [row.url for row in rows]
        if behind is None:
            return urls
        assert len(rows) == PAGE
        behind = json.loads(json.dumps(behind))
    raise AssertionError("it has no end")


async def test_every_record_is_on_exactly_one_page_while_others_are_written(output: Output, tmp_path: Path) -> None:
    there = records(*range(10, 40))
    uri = await written(output.uri(tmp_path), *there, *records(*range(20), crawl="d"))
    first, behind = await page(uri, "c", PAGE)
    assert behind is not None
    # Before, between and behind those that are shown already; and one of them again.
    await written(uri, *records(*range(10), *range(50, 60), 11), *records(99, crawl="d"))
    shown = [row.url for row in first] + await rest(uri, json.loads(json.dumps(behind)))
    assert {record.url for record in there} <= set(shown)
    assert "https://a.example/99" not in shown
    # A file keeps what was written before it was written again.
    twice = {url for url in shown if shown.count(url) > 1}
    assert twice <= ({"https://a.example/11"} if output.keeps_refused is False and not output.server else set())


async def test_the_last_page_is_marked_as_the_last(output: Output, tmp_path: Path) -> None:
    uri = await written(output.uri(tmp_path), *records(*range(2 * PAGE)))
    first, behind = await page(uri, "c", PAGE)
    second, end = await page(uri, "c", PAGE, after=behind)
    assert len({row.url for row in [*first, *second]}) == 2 * PAGE
    assert end is None
    rows, end = await page(uri, "c", 2 * PAGE, columns=("crawl", "url"))
    assert (len(rows), end) == (2 * PAGE, None)
    assert {row.text for row in rows if isinstance(row, Record)} == {""}


async def test_items_are_read_in_pages(output: Output, tmp_path: Path) -> None:
    items = [
        Item(crawl="c", url=f"https://a.example/{n % 4}", spider="s", number=n // 4, fetched_at=0.0, data={"n": n})
        for n in range(20)
    ]
    uri = await written(output.uri(tmp_path), *items, spider=True)
    numbers: list[Any] = []
    behind: Cursor | None = None
    while True:
        rows, behind = await page(uri, "c", 3, after=behind, items=True)
        # CSV has no types.
        numbers += [int(row.data["n"]) for row in rows if isinstance(row, Item)]
        if behind is None:
            break
    assert sorted(numbers) == list(range(20))


async def test_a_forged_cursor_is_refused_or_harmless(output: Output, tmp_path: Path) -> None:
    uri = await written(output.uri(tmp_path), *records(*range(3)))
    refused = 0
    for place in HOSTILE:
        for items in (False, True):
            try:
                rows, _ = await page(uri, "c", PAGE, after=place, items=items)
            except (InvalidInput, SinkRefused):
                refused += 1
            else:
                assert {row.url for row in rows} <= {record.url for record in records(*range(3))}, place
    assert refused > len(HOSTILE)


@pytest.mark.parametrize("uri", ["redis://:hush@127.0.0.1:1/0/x", "kafka://u:hush@127.0.0.1:1/x", "warc:/tmp/w"])
async def test_an_output_that_cannot_be_read_back_is_refused(uri: str) -> None:
    with pytest.raises(SinkRefused, match="cannot be read back; name a database") as refused:
        await page(uri, "c", PAGE)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
async def test_a_cursor_of_a_recreated_file_is_refused(tmp_path: Path, name: str) -> None:
    uri = await written(str(tmp_path / name), *records(*range(100, 120)))
    _, behind = await page(uri, "c", PAGE)
    other = await written(str(tmp_path / f"other.{name}"), *records(1))
    with pytest.raises(InvalidInput, match="does not have this cursor"):
        await page(other, "c", PAGE, after=behind)


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(("name", "head"), [("a.jsonl", b""), ("a.csv", b"crawl,url,text\r\n")])
async def test_a_row_that_is_not_complete_yet_is_on_the_next_page(
    tmp_path: Path, name: str, head: bytes, ending: str
) -> None:
    path = tmp_path / (name + ending)
    if head:
        lines = [b'c,u,"one\ntwo"\r\n', b'c,v,"three\n', b'four"\r\n']
    else:
        lines = [b'{"crawl": "c", "url": "u"}\n', b'{"crawl": "c", ', b'"url": "v"}\n']
    pack = gzip.compress if ending else bytes
    path.write_bytes(pack(head + lines[0]) + pack(lines[1]))
    rows, _ = await page(str(path), "c", 5)
    assert [row.url for row in rows] == ["u"]
    (row,), behind = await page(str(path), "c", 1)
    assert behind is None, "what is not all there does not make another page"
    path.write_bytes(pack(head + lines[0]) + pack(lines[1]) + pack(lines[2]))
    _, behind = await page(str(path), "c", 1)
    (row,), behind = await page(str(path), "c", 1, after=behind)
    assert (row.url, behind) == ("v", None)
