"""JSON lines: parts, what becomes visible of them and when, and merges that are killed."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import SinkUnavailable, StoreUnavailable
from shoal.model.record import Item, Record, RecordKey
from shoal.sinks import Sink, merge, open_sink, part_names, unmerged
from shoal.sinks.files import jsonl, part
from tests.servers import wait_until
from tests.sinks.outputs import Store, mounted, page, read_jsonl, receipt_of
from tests.sinks.test_contract import deaths, in_a_child


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pages.jsonl"


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    return tmp_path / "pages.jsonl.parts"


async def opened(path: Path, worker: str = "worker") -> Sink:
    sink = open_sink(str(path), worker=worker)
    await sink.open()
    return sink


async def put(sink: Sink, *numbers: int, refused: tuple[int, ...] = ()) -> None:
    records = [page(number) for number in numbers]
    await sink.write(records, receipt_of("", records))
    await sink.commit([page(number).key for number in refused])


async def no_replay(receipt: bytes) -> list[RecordKey]:
    raise AssertionError(f"the store must not get a call about {receipt!r}")


def shown(path: Path) -> list[int]:
    return [int(row["url"].rpartition("/")[2]) for row in read_jsonl(path)]


def crash(sink: Any) -> None:
    """Do to a part what the end of a process does: the lock is released, the file stays."""
    sink._part._path = Path("/nonexistent/closed.open")
    sink._part.close()
    sink._part = None


async def test_a_part_is_visible_only_after_it_is_closed(path: Path, parts: Path) -> None:
    sink = await opened(path)
    await put(sink, 1, 2)
    await merge(str(path), live={"worker"}, replay=no_replay)
    assert shown(path) == []
    await sink.close()
    await merge(str(path), live={"worker"}, replay=no_replay)
    assert shown(path) == [1, 2]
    assert not parts.exists()


async def test_an_old_part_is_closed_even_if_no_page_follows(
    path: Path, parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl.JsonLinesSink, "part_seconds", 0.2)
    monkeypatch.setattr(jsonl.JsonLinesSink, "idle_seconds", 0.2)
    sink = await opened(path)
    await put(sink, 1)
    await asyncio.to_thread(wait_until, lambda: list(parts.glob("*.done")), "the part is closed")
    await merge(str(path), live={"worker"}, replay=no_replay)
    assert shown(path) == [1]
    await put(sink, 2)
    await sink.close()
    await merge(str(path), live=(), replay=no_replay)
    assert shown(path) == [1, 2]


async def test_a_large_part_is_closed_when_its_batch_is_acknowledged(
    path: Path, parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl.JsonLinesSink, "part_bytes", 1000)
    sink = await opened(path)
    await sink.write([page(1)], b"")
    assert [part.suffix for part in parts.iterdir()] == [".open"]
    await sink.commit(())
    assert [part.suffix for part in parts.iterdir()] == [".done"]
    await sink.close()


async def test_a_part_is_closed_when_an_ending_command_requests_it(path: Path, parts: Path) -> None:
    sink = await opened(path)
    await put(sink, 1)
    names = part_names(str(path))
    assert unmerged(str(path), names) == names

    def merged() -> bool:
        asyncio.run(merge(str(path), live=(), replay=no_replay))
        return not unmerged(str(path), names)

    assert await asyncio.to_thread(wait_until, merged, "the part is closed and merged", 4.0)
    assert shown(path) == [1]
    assert not parts.exists()
    # The request is for parts that were open when it was made.
    await put(sink, 2)
    assert not unmerged(str(path), names)
    await sink.close()


async def test_a_part_that_its_worker_still_holds_is_not_merged(path: Path) -> None:
    """Another supervisor does not know the names of these workers. It sees the lock."""
    sink = await opened(path)
    await put(sink, 1)
    await merge(str(path), live=(), replay=no_replay)
    assert shown(path) == []
    await put(sink, 2)
    await sink.close()
    await merge(str(path), live=(), replay=no_replay)
    assert shown(path) == [1, 2]


async def test_the_part_of_a_dead_worker_is_merged_once_the_worker_is_not_live(path: Path) -> None:
    sink = await opened(path)
    await put(sink, 1)
    crash(sink)
    await merge(str(path), live={"worker"}, replay=no_replay)
    assert shown(path) == []
    await merge(str(path), live={"other"}, replay=no_replay)
    assert shown(path) == [1]
    await sink.close()


@pytest.mark.parametrize("closed", [False, True], ids=["killed", "closed"])
async def test_the_store_decides_about_an_unacknowledged_batch(path: Path, closed: bool) -> None:
    sink = await opened(path, "worker@host/1")
    await put(sink, 1, 2, refused=(2,))
    records = [page(number) for number in (3, 4, 5)]
    await sink.write(records, receipt_of("", records))
    if not closed:
        crash(sink)
    await sink.close()
    store = Store()
    store.acknowledge(receipt_of("of another worker", [page(4)]))
    await merge(str(path), live=(), replay=store.replay)
    assert shown(path) == [1, 3, 5]


async def test_a_batch_whose_write_was_cancelled_is_not_merged(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = await opened(path)
    await put(sink, 1)
    flushing, go_on = threading.Event(), threading.Event()

    def flush(file: int) -> None:
        flushing.set()
        assert go_on.wait(10)

    monkeypatch.setattr(part, "flush", flush)
    write = asyncio.create_task(sink.write([page(2)], receipt_of("", [page(2)])))
    assert await asyncio.to_thread(flushing.wait, 10)
    write.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await write
    await sink.close()
    await merge(str(path), live=(), replay=Store().replay)
    assert shown(path) == [1]


@pytest.mark.parametrize("cut", range(1, 600, 23))
async def test_a_torn_last_line_never_becomes_visible(path: Path, parts: Path, cut: int) -> None:
    sink = await opened(path)
    await put(sink, 1)
    records = [page(2, text="short"), page(3, text="short")]
    await sink.write(records, receipt_of("", records))
    crash(sink)
    await sink.close()
    (left,) = parts.iterdir()
    left.write_bytes(left.read_bytes()[:-cut])
    await merge(str(path), live=(), replay=no_replay)
    assert shown(path) == [1]


async def test_zeros_after_a_power_failure_never_become_visible(path: Path, parts: Path) -> None:
    sink = await opened(path)
    await put(sink, 1)
    records = [page(2, text="x" * 9000)]
    await sink.write(records, receipt_of("", records))
    crash(sink)
    await sink.close()
    (left,) = parts.iterdir()
    data = left.read_bytes()
    left.write_bytes(data[:-4096] + bytes(4096))
    await merge(str(path), live=(), replay=no_replay)
    assert shown(path) == [1]


async def test_existing_lines_of_other_programs_are_kept_and_stay_separate(path: Path) -> None:
    path.write_bytes(b'{"url":"https://site.example/90"}\n{"url":"https://site.example/91"}')
    sink = await opened(path)
    await put(sink, 1)
    await sink.close()
    await merge(str(path), live=(), replay=no_replay)
    assert shown(path) == [90, 91, 1]


async def test_parts_that_need_no_decision_are_merged_while_the_store_is_unavailable(path: Path) -> None:
    for worker, number in (("a", 1), ("b", 2)):
        sink = await opened(path, worker)
        await put(sink, number)
        if worker == "a":
            await sink.write([page(3)], receipt_of("", [page(3)]))
        await sink.close()

    async def away(receipt: bytes) -> list[RecordKey]:
        raise StoreUnavailable("The store does not answer.")

    with pytest.raises(StoreUnavailable):
        await merge(str(path), live=(), replay=away)
    assert shown(path) == [2]
    await merge(str(path), live=(), replay=Store().replay)
    assert shown(path) == [2, 1, 3]


async def test_merging_processes_take_turns(path: Path) -> None:
    sinks = [await opened(path, f"worker{number}") for number in range(8)]
    for number, sink in enumerate(sinks):
        await put(sink, number * 2)
        await sink.write([page(number * 2 + 1)], receipt_of("", [page(number * 2 + 1)]))
        await sink.close()
    store = Store()

    async def slow(receipt: bytes) -> list[RecordKey]:
        await asyncio.sleep(0.01)
        return store.acknowledge(receipt)

    await asyncio.gather(*(merge(str(path), live=(), replay=slow) for _ in range(4)))
    assert sorted(shown(path)) == list(range(16))


async def test_merging_while_a_worker_opens_and_closes_parts_loses_none(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl.JsonLinesSink, "part_bytes", 1)
    sink = await opened(path)

    async def write() -> None:
        for number in range(200):
            await put(sink, number)
        await sink.close()

    writing = asyncio.create_task(write())
    while not writing.done():
        await merge(str(path), live=(), replay=no_replay)
        read_jsonl(path)
        # A merge that finds no part returns without giving way.
        await asyncio.sleep(0)
    await writing
    await merge(str(path), live=(), replay=no_replay)
    assert shown(path) == list(range(200))


@pytest.mark.chaos
@pytest.mark.full
def test_a_merge_killed_at_any_step_shows_each_line_once(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()

    async def prepare() -> None:
        sink = await opened(model / "pages.jsonl", "closed")
        await put(sink, 1, 2, 3, refused=(2,))
        await sink.close()
        sink = await opened(model / "pages.jsonl", "killed")
        await put(sink, 4)
        await sink.write([page(5), page(6)], receipt_of("", [page(5), page(6)]))
        crash(sink)
        await sink.close()

    asyncio.run(prepare())
    (model / "pages.jsonl").write_text('{"url":"https://site.example/90"}\n')

    def gather_in(folder: Path) -> None:
        store = Store()
        store.acknowledge(receipt_of("of another worker", [page(6)]))
        asyncio.run(merge(str(folder / "pages.jsonl"), live=(), replay=store.replay))

    def run(at: int) -> bool:
        """Die at this step, die again at another step of the next merge, then merge undisturbed."""
        folder = tmp_path / str(at)
        shutil.copytree(model, folder)
        ended = in_a_child(lambda: gather_in(folder), killed_at_call=at)
        in_a_child(lambda: gather_in(folder), killed_at_call=at // 2 + 1)
        gather_in(folder)
        assert shown(folder / "pages.jsonl") == [90, 1, 3, 4, 5]
        assert not (folder / "pages.jsonl.parts").exists()
        return ended

    assert deaths(run) > 30, "every step of a merge was reached"


async def test_an_unfinished_merge_is_undone_only_in_the_file_it_was_written_to(path: Path, parts: Path) -> None:
    """A merge died while it appended; then the output was replaced by another file."""
    sink = await opened(path)
    await put(sink, 1)
    await sink.close()
    stat = path.stat()
    (parts / "state").write_text(json.dumps({"length": 0, "file": [stat.st_dev, stat.st_ino]}))
    path.rename(path.with_name("taken away"))
    path.write_text('{"url":"https://site.example/90"}\n')
    await merge(str(path), live=(), replay=no_replay)
    assert shown(path) == [90, 1]


@pytest.mark.full
async def test_a_full_disk_leaves_no_torn_line_and_the_merge_succeeds_later(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "-o", "size=4m") as folder:
        path = folder / "pages.jsonl"
        sink = await opened(path)
        for number in range(5):
            await sink.write([page(number, text="x" * 300_000)], b"")
            await sink.commit(())
        await sink.close()
        ballast = folder / "ballast"
        ballast.write_bytes(bytes(1_600_000))
        with pytest.raises(SinkUnavailable, match=r"cannot be appended to now: No space left on device\.\Z"):
            await merge(str(path), live=(), replay=no_replay)
        assert shown(path) == []
        ballast.unlink()
        await merge(str(path), live=(), replay=no_replay)
        assert shown(path) == list(range(5))


async def test_merging_without_parts_does_nothing(path: Path) -> None:
    await merge(str(path), live=(), replay=no_replay)
    assert list(path.parent.iterdir()) == []


async def test_an_unchanged_page_keeps_its_line(path: Path) -> None:
    sink = await opened(path)
    await put(sink, 1)
    await sink.write([page(1, status=304, text="")], b"")
    await sink.commit(())
    await sink.close()
    await merge(str(path), live=(), replay=no_replay)
    (row,) = read_jsonl(path)
    assert (row["status"], row["title"]) == (200, "Page 1")


def test_a_record_is_one_line_for_every_reader() -> None:
    text = "a\u2028b\u2029c\x85d\ne\x0b\x0c\x1c\x1d\x1e\r"
    item = Item(crawl="c", url="u", spider="s", number=1, fetched_at=0.0, data={"t": text})
    for record in (Record(crawl="c", url="u", title=text), item):
        line = jsonl.json_line(record).decode()
        assert line.splitlines() == [line.removesuffix("\n")]
        parsed = json.loads(line)
        assert text in (parsed.get("title"), (parsed.get("data") or {}).get("t"))
