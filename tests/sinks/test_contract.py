"""The contract of every sink. A technology joins in tests/sinks/outputs.py."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shoal.errors import SinkRefused
from shoal.model.record import Record
from shoal.sinks import Sink, check_output, merge, open_sink
from tests import forking
from tests.servers import WAIT_SECONDS
from tests.sinks.outputs import OUTPUTS, Output, Store, mounted, page, receipt_of, urls


async def opened(output: Output, folder: Path, worker: str = "worker", **more: Any) -> Sink:
    sink = open_sink(check_output(output.uri(folder)), worker=worker, **more)
    await sink.open()
    return sink


async def seen(output: Output, folder: Path) -> list[dict[str, Any]]:
    await merge(output.uri(folder), live=(), replay=Store().replay)
    return output.read(folder)


async def write_all(output: Output, folder: Path, *records: Record) -> list[dict[str, Any]]:
    sink = await opened(output, folder)
    await sink.write(records, b"receipt")
    await sink.commit(())
    await sink.close()
    return await seen(output, folder)


async def test_every_field_of_a_record_is_kept(output: Output, tmp_path: Path) -> None:
    record = Record(
        crawl="c", url="https://a.example/", status=404, error="dns", title="t", description="d", text="x",
        language="en", canonical="https://a.example/c", content_type="text/html", charset="utf-8", bytes=7, depth=3,
        found="seed", links=9, robots="noindex", redirects=(("https://b.example/", 301), ("https://c.example/", 0)),
        etag='"e"', last_modified="Mon", fetched_at=1700000000.123, response_seconds=0.25, bytes_received=5,
        address="192.0.2.1", http_version="2", attempt=2, robots_ignored=True, worker="w", spider="s", file="f",
        text_hash="0123456789", first_seen="2023-11-14T22:13:20Z", last_changed="2023-11-15T22:13:20Z", visits=4,
        changes=1,
    )  # fmt: skip
    blank = msgspec.structs.asdict(Record(crawl="", url=""))
    assert [name for name, value in msgspec.structs.asdict(record).items() if value == blank[name]] == []
    (row,) = await write_all(output, tmp_path, record)
    expected = msgspec.to_builtins(record) | {"fetched_at": "2023-11-14T22:13:20.123Z"}
    assert row == json.loads(json.dumps(expected))


async def test_a_record_without_error_and_fetch_time_stores_null(output: Output, tmp_path: Path) -> None:
    (row,) = await write_all(output, tmp_path, Record(crawl="c", url="https://a.example/", status=200))
    assert row["error"] is None
    assert row["fetched_at"] is None
    assert row["redirects"] == []


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a\0b", "a\0b"),
        ("lone \ud800 half", "lone � half"),
        ("\udfff", "�"),
        ("joined \ud83d\ude00", "joined 😀"),
        ("four bytes 😀 𝒳 \U0010ffff", "four bytes 😀 𝒳 \U0010ffff"),
        ("lines \r\n \u2028 \x85 \x0b end", "lines \r\n \u2028 \x85 \x0b end"),
        ("'); DROP TABLE pages; --", "'); DROP TABLE pages; --"),
        ('"}\n{"crawl":"forged"}\n', '"}\n{"crawl":"forged"}\n'),
        ("\ufffe\uffff\u202e\ufeff\x7f\x1b[2J", "\ufffe\uffff\u202e\ufeff\x7f\x1b[2J"),
    ],
)
async def test_hostile_text_does_not_lose_the_page(output: Output, tmp_path: Path, text: str, kept: str) -> None:
    hostile = page(1, title=text, text=text, error=text, robots=text, redirects=((text, 302),))
    first, second = sorted(await write_all(output, tmp_path, hostile, page(2)), key=lambda row: row["url"])
    kept = kept.replace("\0", output.nul)
    assert [first[name] for name in ("title", "text", "error", "robots", "redirects")] == [kept] * 4 + [[[kept, 302]]]
    assert second["title"] == "Page 2"


async def test_a_text_of_ten_megabytes_is_kept(output: Output, tmp_path: Path) -> None:
    text = "0123456789😀\0x" * (10 << 16)
    assert len(text.encode()) >= 10_000_000
    (row,) = await write_all(output, tmp_path, page(1, text=text))
    assert row["text"] == text.replace("\0", output.nul)


async def test_a_batch_keeps_the_last_record_of_a_key(output: Output, tmp_path: Path) -> None:
    rows = await write_all(output, tmp_path, page(1, title="old"), page(2), page(1, title="new"))
    assert sorted((row["url"][-1], row["title"]) for row in rows) == [("1", "new"), ("2", "Page 2")]


async def test_an_empty_batch_and_a_second_close_do_nothing(output: Output, tmp_path: Path) -> None:
    sink = await opened(output, tmp_path)
    await sink.write([], b"receipt")
    await sink.commit(())
    await sink.close()
    await sink.close()
    assert await seen(output, tmp_path) == []


async def test_refused_records_are_not_visible_where_rows_cannot_be_replaced(output: Output, tmp_path: Path) -> None:
    sink = await opened(output, tmp_path)
    for start in (0, 10):
        await sink.write([page(number) for number in range(start, start + 10)], b"receipt")
        await sink.commit(urls([start, start + 4, start + 5, start + 9]))
    await sink.close()
    await seen(output, tmp_path)
    if not output.keeps_refused:
        assert output.keys(tmp_path) == dict.fromkeys(urls([1, 2, 3, 6, 7, 8, 11, 12, 13, 16, 17, 18]), 1)


async def test_existing_content_of_an_output_is_kept(output: Output, tmp_path: Path) -> None:
    await write_all(output, tmp_path, page(1))
    await write_all(output, tmp_path, page(2))
    assert output.keys(tmp_path) == dict.fromkeys(urls([1, 2]), 1)


def start_writer(module: str, *words: str) -> subprocess.Popen[bytes]:
    """A program that leases numbers on its stdout and gets them on its stdin, see writer.py."""
    return forking.start(sys.executable, "-m", module, *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


class Fleet:
    """Hands numbers out to writers, and is their store. A number that was not acknowledged is handed out again."""

    def __init__(self, output: Output, folder: Path, numbers: range, batch: int, spider: str = "") -> None:
        self.output, self.folder, self.batch = output, folder, batch
        self.numbers = numbers
        self.spider = [spider] if spider else []
        self.store = Store()
        self.random = random.Random(1)
        self.workers = 0
        self.kills = 0

    def waiting(self) -> list[int]:
        return [number for number in self.numbers if page(number).key not in self.store.taken]

    async def worker(self, *, kill_after_seconds: float | None = None) -> None:
        self.workers += 1
        name = f"worker{self.workers}"
        process = start_writer("tests.sinks.writer", self.output.uri(self.folder), name, *self.spider)
        assert process.stdin
        assert process.stdout
        killer = None
        try:
            while line := await asyncio.to_thread(process.stdout.readline):
                kind, *more = json.loads(line)
                if kind == "lease":
                    waiting = self.waiting()
                    batch_numbers = self.random.sample(waiting, min(self.batch, len(waiting)))
                    # Some that others have written, or write now.
                    reply: Any = batch_numbers and batch_numbers + self.random.sample(self.numbers, self.batch // 10)
                    if killer is None and kill_after_seconds is not None:
                        killer = asyncio.get_running_loop().call_later(kill_after_seconds, process.kill)
                else:
                    reply = self.store.acknowledge(more[0].encode())
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(json.dumps(reply).encode() + b"\n")
                    process.stdin.flush()
        finally:
            if killer is not None:
                killer.cancel()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            code = await asyncio.to_thread(process.wait)
            process.stdout.close()
        self.kills += code == -signal.SIGKILL
        assert code in (0, -signal.SIGKILL)

    async def merge(self) -> None:
        await merge(self.output.uri(self.folder), live=(), replay=self.store.replay, spider=bool(self.spider))


@pytest.mark.full
async def test_four_processes_write_ten_thousand_records_with_repeated_keys(output: Output, tmp_path: Path) -> None:
    fleet = Fleet(output, tmp_path, range(10_000), batch=200)
    await asyncio.gather(*(fleet.worker() for _ in range(4)))
    await fleet.merge()
    assert output.keys(tmp_path) == dict.fromkeys(urls(range(10_000)), 1)
    assert sum(len(refused) for refused in fleet.store.replies.values()) > 100, "keys were repeated"


# Compressed lines are written as plain ones are.
UNLIKE = [output for output in OUTPUTS if not output.name.endswith((".gz", ".zst"))]


@pytest.mark.chaos
@pytest.mark.full
@pytest.mark.parametrize("output", UNLIKE, indirect=True, ids=lambda output: output.name)
async def test_killed_writers_leave_each_acknowledged_page_once(output: Output, tmp_path: Path) -> None:
    fleet = Fleet(output, tmp_path, range(6000), batch=20)
    for _ in range(8):
        lives = [fleet.random.uniform(0.0, 0.06) for _ in range(2)]
        await asyncio.gather(*(fleet.worker(kill_after_seconds=life) for life in lives))
        await fleet.merge()
        keys = output.keys(tmp_path)
        assert set(keys.values()) <= {1}
        if output.keeps_refused:
            assert fleet.store.taken.keys() <= keys.keys()
        else:
            assert fleet.store.taken == keys
    assert fleet.kills >= 8
    fleet.numbers = range(len(fleet.store.taken) + 500)
    await fleet.worker()
    await fleet.merge()
    if not output.keeps_refused:
        assert fleet.store.taken == output.keys(tmp_path)
    assert fleet.store.taken.keys() <= output.keys(tmp_path).keys()


def in_a_child(function: Callable[[], Any], *, killed_at_call: int) -> bool:
    """Run it in a forked process that kills itself before the n-th call to disk of its threads; whether it ended."""
    child = os.fork()
    if child == 0:
        left = killed_at_call

        def count(frame: object, event: str, called: Any) -> None:
            nonlocal left
            if event == "c_call":
                owner = called.__module__ or type(called.__self__).__module__
                left -= owner in ("posix", "fcntl", "_io", "sqlite3")
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            threading.setprofile(count)
            function()
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), code
    return code == 0


def deaths(run: Callable[[int], bool]) -> int:
    """How often a run dies when it is killed at its first call, its second, and so on."""
    at = 1
    while not run(at):
        at += 1
    return at - 1


@pytest.mark.chaos
@pytest.mark.full
def test_a_writer_killed_at_any_step_leaves_each_acknowledged_page_once(file: Output, tmp_path: Path) -> None:
    journal = tmp_path / "acknowledged"

    def life(start: int) -> None:
        async def work() -> None:
            sink = await opened(file, tmp_path, f"worker{start}")
            for first in (start, start + 3, start + 6):
                records = [page(number) for number in range(first, first + 3)]
                receipt = receipt_of("", records)
                await sink.write(records, receipt)
                # The fake store of this process: one line is one reply. Pages that end in 7 belong to another worker.
                with journal.open("ab", buffering=0) as acknowledged:
                    acknowledged.write(receipt + b"\n")
                await sink.commit([key for key in urls(range(first, first + 3)) if key[1].endswith("7")])
            await sink.close()

        asyncio.run(work())

    def run(at: int) -> bool:
        return in_a_child(lambda: life(at * 1000), killed_at_call=at)

    open_sink(file.uri(tmp_path), worker="nobody")  # what it imports, every child has
    died = deaths(run)
    assert died >= 9, "each write, flush and end of a batch was met"
    foreign = urls(number for number in range((died + 2) * 1000) if number % 10 == 7)
    store = Store(taken=Counter(foreign))
    for receipt in journal.read_bytes().splitlines():
        store.acknowledge(receipt)
    asyncio.run(merge(file.uri(tmp_path), live=(), replay=store.replay))
    keys = file.keys(tmp_path)
    assert set(keys.values()) == {1}
    if file.keeps_refused:
        assert keys.keys() >= store.taken.keys() - foreign
    else:
        assert keys.keys() == store.taken.keys() - foreign


async def test_a_sink_can_be_used_after_a_cancelled_write(output: Output, tmp_path: Path) -> None:
    sink = await opened(output, tmp_path)
    for turns in range(30):
        write = asyncio.create_task(sink.write([page(number) for number in range(100, 300)], b"cancelled"))
        for _ in range(turns):
            await asyncio.sleep(0)
        write.cancel()
        await asyncio.wait({write})
        if not write.cancelled():
            await sink.commit(urls(range(100, 300)))
        await sink.write([page(turns)], receipt_of("", [page(turns)]))
        await sink.commit(())
    await sink.close()
    rows = await seen(output, tmp_path)
    assert {(row["crawl"], row["url"]) for row in rows} >= urls(range(30))
    if not output.keeps_refused:
        assert output.keys(tmp_path) == dict.fromkeys(urls(range(30)), 1)


def fill(ballast: Path) -> None:
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.mark.full
async def test_a_sink_waits_for_a_full_disk_and_loses_nothing(file: Output, tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "-o", "size=4m") as folder:
        troubles: list[str] = []
        trouble = asyncio.Event()

        def on_trouble(sentence: str) -> None:
            troubles.append(sentence)
            trouble.set()

        sink = await opened(file, folder, on_trouble=on_trouble)
        await sink.write([page(1)], b"receipt")
        await sink.commit(())
        ballast = folder / "ballast"
        fill(ballast)
        write = asyncio.create_task(sink.write([page(n, text="x" * 20_000) for n in range(2, 30)], b"receipt"))
        await asyncio.wait_for(trouble.wait(), WAIT_SECONDS)
        assert troubles == [f"output {folder / file.name} has no space left on its disk; waiting"]
        assert not write.done()
        ballast.unlink()
        await asyncio.wait_for(write, WAIT_SECONDS)
        assert troubles[1:] == [""]
        await sink.commit(())
        await sink.close()
        await seen(file, folder)
        assert file.keys(folder) == dict.fromkeys(urls(range(1, 30)), 1)


def test_an_unwritable_folder_is_refused_in_one_sentence(file: Output, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        with mounted(tmp_path / "read only", "-o", "ro") as folder, pytest.raises(SinkRefused) as refused:
            check_output(file.uri(folder))
    else:
        folder = tmp_path / "read only"
        folder.mkdir(mode=0o555)
        with pytest.raises(SinkRefused) as refused:
            check_output(file.uri(folder))
    assert str(refused.value) == f"The folder {folder} of the output {file.name} is not writable by this user."


async def test_a_folder_that_vanished_is_refused_when_it_is_opened(file: Output, tmp_path: Path) -> None:
    sink = open_sink(str(tmp_path / "gone" / file.name), worker="worker")
    with pytest.raises(SinkRefused, match=r"\AThe output .* cannot be [^.]*(\.\w+[^.]*)?\.\Z"):
        await sink.open()
    await sink.close()


async def test_a_path_that_is_something_else_is_refused(file: Output, tmp_path: Path) -> None:
    path = tmp_path / file.name
    if file.name.endswith(".parquet"):
        path.write_text("no folder")
        sentence = "is a file, but must be a folder"
    else:
        path.mkdir()
        sentence = "is a folder; name a file in it"
    with pytest.raises(SinkRefused, match=sentence):
        check_output(str(path))
    sink = open_sink(str(path), worker="worker")
    with pytest.raises(SinkRefused):
        await sink.open()
    await sink.close()
