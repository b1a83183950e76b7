"""WARC: what other programs read in an archive, when a record is a revisit, and writers that die."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import warcio
from fastwarc.warc import ArchiveIterator

from shoal.errors import SinkRefused, SinkUnavailable
from shoal.model.record import Capture
from shoal.model.response import Response, Timings
from shoal.sinks import Sink, check_output, merge, open_sink
from shoal.sinks.files import warc
from shoal.sinks.files.warc_writer import records_of
from tests.sinks.archiver import capture_of
from tests.sinks.outputs import Store, mounted
from tests.sinks.test_contract import deaths, in_a_child, start_writer

BIN = Path(sys.executable).parent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "archive"


class WarcRecord(NamedTuple):
    """A record as FastWARC reads it. `status` is its HTTP status line, `http` its HTTP headers, `body` what follows."""

    type: str
    id: str
    url: str
    headers: dict[str, str]
    status: str
    http: list[tuple[str, str]]
    body: bytes


def read(folder: Path) -> list[WarcRecord]:
    """All records of an archive whose files two other programs find no fault with."""
    files = sorted(folder.glob("*.warc.gz"))
    records: list[WarcRecord] = []
    for file in files:
        no_fault("fastwarc", "check", "--quiet", file)
        with file.open("rb") as stream:
            for record in ArchiveIterator(stream, parse_http=True):
                assert record.reader is not None
                records.append(
                    WarcRecord(
                        record.headers["WARC-Type"],
                        record.record_id or "",
                        record.headers.get("WARC-Target-URI") or "",
                        dict(record.headers.items()),
                        (record.http_headers and record.http_headers.status_line) or "",
                        list(record.http_headers.items()) if record.http_headers else [],
                        record.reader.read(),
                    )
                )
        again = list(by_warcio(file))
        assert again == [(record.type, record.id, record.body) for record in records[-len(again) :]], (
            "two readers read the same"
        )
    if files:
        no_fault("warcio", "check", *files)
    assert [path.name for path in folder.iterdir() if path not in files] == [], "nothing else is left"
    assert len({record.id for record in records}) == len(records), "no id is used twice"
    return records


def no_fault(program: str, *arguments: str | Path) -> None:
    done = subprocess.run([BIN / program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def by_warcio(file: Path) -> list[tuple[str, str, bytes]]:
    with file.open("rb") as stream:
        return [
            (record.rec_type, record.rec_headers["WARC-Record-ID"], record.raw_stream.read())
            for record in warcio.ArchiveIterator(stream)
        ]


async def opened(folder: Path, worker: str = "worker") -> Sink:
    sink = open_sink(check_output(f"warc:{folder}"), worker=worker)
    await sink.open()
    return sink


async def put(sink: Sink, *captures: Capture, refused: tuple[Capture, ...] = ()) -> None:
    await sink.write(captures, b"receipt")
    await sink.commit([capture.key for capture in refused])


async def archived(folder: Path, *captures: Capture) -> list[WarcRecord]:
    sink = await opened(folder)
    await put(sink, *captures)
    await sink.close()
    return read(folder)


def of_type(kind: str, records: list[WarcRecord]) -> list[WarcRecord]:
    return [record for record in records if record.type == kind]


async def test_a_response_is_archived_with_its_request_and_metadata(folder: Path) -> None:
    page = Response(
        url="https://site.example/a/b?c=d", status=404, body=b"\0\xff body\r\n\r\n", http_version="1.1",
        headers=(("content-type", "text/css"), ("set-cookie", "a=1"), ("set-cookie", "b=2"), ("content-length", "11")),
        address="::1", bytes_received=123, started_at=1_700_000_000.123456, timings=Timings(total=0.5),
    )  # fmt: skip
    headers = (("User-Agent", "Shoal"), ("Host", "site.example"))
    info, response, request, metadata = await archived(folder, Capture(crawl="c", page=page, request_headers=headers))
    (file,) = folder.iterdir()
    assert file.name.startswith("c-worker-")
    assert (info.type, info.headers["WARC-Filename"]) == ("warcinfo", file.name)
    assert b"isPartOf: c\r\n" in info.body
    assert (response.type, response.status, response.body) == ("response", "HTTP/1.1 404 Not Found", page.body)
    assert response.http == list(page.headers)
    assert response.headers["WARC-Date"] == "2023-11-14T22:13:20.123456Z"
    assert response.headers["WARC-IP-Address"] == "::1"
    assert (request.type, request.status) == ("request", "GET /a/b?c=d HTTP/1.1")
    assert request.http == list(headers)
    assert metadata.body == b"fetchTimeMs: 500\r\nbytesReceived: 123\r\n"
    assert request.headers["WARC-Concurrent-To"] == metadata.headers["WARC-Concurrent-To"] == response.id
    assert {record.url for record in (response, request, metadata)} == {page.url}
    no_fault("fastwarc", "check", "--quiet", "--verify-payloads", file)


async def test_a_compressed_body_is_archived_decoded(folder: Path) -> None:
    headers = (("content-encoding", "gzip"), ("transfer-encoding", "chunked"), ("content-length", "7"))
    _, response, _, _ = await archived(folder, capture_of(1, headers=headers, body=b"plain text", http_version="2"))
    assert response.http == [
        ("x-archive-orig-content-encoding", "gzip"),
        ("x-archive-orig-transfer-encoding", "chunked"),
        ("x-archive-orig-content-length", "7"),
        ("content-length", "10"),
    ]
    assert response.body == b"plain text"
    assert (response.status, response.headers["WARC-Protocol"]) == ("HTTP/1.1 200 OK", "h2")


@pytest.mark.parametrize(
    "value",
    [
        "a\r\nx-forged: 1",
        "a\n\nbody",
        "a\0b",
        "é\xff",
        "日本",
        "\ud800",
        "x" * 30_000,
        "",
        " : ",
        "\r\n\r\nWARC/1.1\r\n",
    ],
)
async def test_a_hostile_value_stays_in_its_header(folder: Path, value: str) -> None:
    page = Response(
        url=f"https://site.example/{value[:99]}", status=299, body=b"body", headers=(("a", value), ("z", "last")),
        started_at=1.0,
    )  # fmt: skip
    capture = Capture(crawl="crawl", page=page, request_headers=(("referer", value),), request_body=b"asked")
    records = await archived(folder, capture, capture_of(1, body=b"other"))
    assert [record.type for record in records] == ["warcinfo"] + ["response", "request", "metadata"] * 2
    _, response, request, _, other, _, _ = records
    assert [name for name, _ in response.http] == ["a", "z", "content-length"]
    assert [name for name, _ in request.http] == ["host", "referer", "content-length"]
    assert (response.body, request.body, other.body) == (b"body", b"asked", b"other")


async def test_responses_without_a_body_are_archived(folder: Path) -> None:
    records = await archived(
        folder, capture_of(1, body=b""), capture_of(2, body=b"", status=204), capture_of(3, body=b"")
    )
    assert [(record.type, record.body) for record in of_type("response", records)] == [("response", b"")] * 3
    assert dict(of_type("response", records)[0].http)["content-length"] == "0"


async def test_credentials_of_requests_are_masked_in_the_archive(folder: Path) -> None:
    secret = (
        ("Authorization", "Basic c2VjcmV0"), ("cookie", "session=secret"), ("Proxy-Authorization", "secret"),
        ("X-Api-Key", "secret"),
    )  # fmt: skip
    public = (("Accept-Language", "de"), ("User-Agent", "Shoal"))
    capture = Capture(crawl="c", page=capture_of(1).page, request_headers=(*secret, *public))
    request = (await archived(folder, capture))[2]
    assert request.http == [("host", "site.example"), *((name, "***") for name, _ in secret), *public]


async def test_an_unchanged_page_is_a_revisit_record(folder: Path) -> None:
    sink = await opened(folder)
    await put(sink, capture_of(1, status=304, body=b"", headers=(("etag", "e"), ("content-length", "99"))))
    await put(sink, capture_of(1, body=b"body", started_at=5.0))
    await put(sink, capture_of(1, status=304, body=b"", started_at=6.0))
    await sink.close()
    records = read(folder)
    unknown, known = of_type("revisit", records)
    (response,) = of_type("response", records)
    profile = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
    assert unknown.headers["WARC-Profile"] == known.headers["WARC-Profile"] == profile
    assert unknown.status == "HTTP/1.1 304 Not Modified"
    assert unknown.http == [("etag", "e"), ("content-length", "99")]
    assert "WARC-Refers-To" not in unknown.headers
    assert known.headers["WARC-Refers-To"] == response.id
    assert known.headers["WARC-Refers-To-Date"] == response.headers["WARC-Date"] == "1970-01-01T00:00:05.000000Z"


async def test_a_body_that_is_already_archived_is_a_revisit_record(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warc.WarcSink, "part_bytes", 1)
    sink = await opened(folder)
    for moment, body in enumerate((b"one", b"one", b"two", b"two", b"one", b"", b"")):
        await put(sink, capture_of(1, body=body, started_at=float(moment)))
    await put(sink, capture_of(2, body=b"one"))
    await sink.close()
    records = [record for record in read(folder) if record.type in ("response", "revisit")]
    assert [(record.type, record.body) for record in records if record.url.endswith("/1")] == [
        ("response", b"one"), ("revisit", b""), ("response", b"two"), ("revisit", b""), ("response", b"one"),
        ("response", b""), ("response", b""),
    ]  # fmt: skip
    assert records[-1].type == "response", "of another URL"
    first, again = records[:2]
    assert again.headers["WARC-Profile"] == "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
    assert again.headers["WARC-Payload-Digest"] == first.headers["WARC-Payload-Digest"]
    assert again.headers["WARC-Refers-To"] == first.id
    assert again.headers["WARC-Refers-To-Target-URI"] == first.url
    assert again.headers["WARC-Refers-To-Date"] == first.headers["WARC-Date"]
    assert (again.status, dict(again.http)["content-length"]) == ("HTTP/1.1 200 OK", "3")


async def test_no_revisit_record_refers_to_a_rejected_response(folder: Path) -> None:
    sink = await opened(folder)
    await put(sink, capture_of(1, body=b"one"), refused=(capture_of(1),))
    await put(sink, capture_of(1, body=b"one", started_at=9.0))
    await sink.close()
    (response,) = [record for record in read(folder) if record.type in ("response", "revisit")]
    assert (response.type, response.headers["WARC-Date"]) == ("response", "1970-01-01T00:00:09.000000Z")


async def test_the_memory_for_revisit_records_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warc, "REMEMBERED", 10)
    sink: Any = await opened(folder)
    for moment in (0.0, 1000.0):
        await put(sink, *(capture_of(number, body=b"body", started_at=moment + number) for number in range(30)))
    assert len(sink._archived) == 10
    await put(sink, capture_of(29, body=b"body", started_at=5000.0), capture_of(0, body=b"body", started_at=5000.0))
    await sink.close()
    last = [record.type for record in read(folder) if record.headers.get("WARC-Date") == "1970-01-01T01:23:20.000000Z"]
    assert last == ["revisit", "request", "metadata", "response", "request", "metadata"]


async def test_a_file_of_an_ftp_server_is_a_resource_record(folder: Path) -> None:
    page = Response(url="ftp://site.example/a.txt", status=226, body=b"file", started_at=1.0)
    info, resource, metadata = await archived(folder, Capture(crawl="c", page=page))
    assert (info.type, resource.type, metadata.type) == ("warcinfo", "resource", "metadata")
    assert (resource.body, resource.headers["Content-Type"]) == (b"file", "application/octet-stream")
    assert metadata.headers["WARC-Concurrent-To"] == resource.id


def test_a_response_that_is_written_again_has_the_same_ids() -> None:
    assert records_of(capture_of(1), None) == records_of(capture_of(1), None)
    assert records_of(capture_of(1), None) != records_of(capture_of(1, started_at=1.000001), None)


async def test_rejected_responses_are_left_out_and_every_crawl_has_its_own_files(folder: Path) -> None:
    sink = await opened(folder, "worker@host/1")
    others = [Capture(crawl="other: 1", page=capture_of(number).page) for number in (3, 4)]
    await put(
        sink, capture_of(1), capture_of(2), others[0], capture_of(5), others[1], refused=(capture_of(2), others[1])
    )
    await put(sink, capture_of(6), refused=(capture_of(6),))
    await sink.close()
    responses = of_type("response", read(folder))
    assert sorted(record.url for record in responses) == [f"https://site.example/{number}" for number in (1, 3, 5)]
    names = sorted(path.name for path in folder.iterdir())
    assert [name.rpartition("-")[0] for name in names] == ["crawl-worker%40host%2F1", "other%3A%201-worker%40host%2F1"]
    sink = await opened(folder)
    await put(sink, capture_of(7), refused=(capture_of(7),))
    await sink.close()
    assert sorted(path.name for path in folder.iterdir()) == names, "nothing makes no file"


async def test_a_file_is_full_at_its_size(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warc.WarcSink, "part_bytes", 100_000)
    sink = await opened(folder)
    for number in range(40):
        await put(sink, capture_of(number))
    await sink.close()
    sizes = [path.stat().st_size for path in sorted(folder.iterdir())]
    assert len(sizes) > 2
    assert all(90_000 < size < 160_000 for size in sizes[:-1])
    assert Counter(record.url for record in of_type("response", read(folder))) == Counter(
        capture_of(number).url for number in range(40)
    )


async def test_the_part_of_a_dead_worker_is_archived_by_the_merge(folder: Path) -> None:
    sink: Any = await opened(folder)
    captures = [capture_of(number) for number in (1, 2, 3)]
    await sink.write(captures, json.dumps(["", [capture.key for capture in captures]]).encode())
    sink._part.close()
    sink._part = None
    await sink.close()
    store = Store(taken=Counter([capture_of(2).key]))
    await merge(f"warc:{folder}", live=(), replay=store.replay)
    assert [record.url[-1] for record in of_type("response", read(folder))] == ["1", "3"]
    assert not folder.with_name("archive.parts").exists()


@pytest.mark.full
async def test_a_disk_too_full_for_the_file_keeps_the_part(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "-o", "size=4m") as small:
        sink = await opened(small / "archive")
        await put(sink, capture_of(1, body=random.Random(1).randbytes(1_500_000)))
        ballast = small / "ballast"
        ballast.write_bytes(bytes(1_500_000))
        await sink.close()
        with pytest.raises(SinkUnavailable, match=r"No space left on device\.\Z"):
            await merge(f"warc:{small}/archive", live=(), replay=Store().replay)
        assert list((small / "archive").iterdir()) == []
        ballast.unlink()
        await merge(f"warc:{small}/archive", live=(), replay=Store().replay)
        assert [len(record.body) for record in of_type("response", read(small / "archive"))] == [1_500_000]


async def test_a_file_at_the_path_of_the_folder_is_refused(folder: Path) -> None:
    folder.write_text("")
    with pytest.raises(SinkRefused, match="is a file, but must be a folder"):
        check_output(f"warc:{folder}")
    sink = open_sink(f"warc:{folder}", worker="worker")
    with pytest.raises(SinkRefused, match=r"\AThe output .* is a file, but must be a folder\.\Z"):
        await sink.open()
    await sink.close()


class Fleet:
    """Hands numbers out to archivers, and is their store. A number that was not acknowledged is handed out again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = Store()
        self.random = random.Random(1)
        self.workers = self.kills = 0

    async def worker(self, last: int, kill_after: int | None = None) -> None:
        """Killed some moments after it was handed its numbers for this time."""
        self.workers += 1
        process = start_writer("tests.sinks.archiver", f"warc:{self.folder}", f"worker{self.workers}")
        assert process.stdin
        assert process.stdout
        try:
            while line := await asyncio.to_thread(process.stdout.readline):
                kind, *more = json.loads(line)
                if kind == "lease":
                    waiting = [n for n in range(last) if capture_of(n).key not in self.store.taken]
                    batch = self.random.sample(waiting, min(20, len(waiting)))
                    reply: Any = batch and batch + self.random.sample(range(last), 3)
                    if kill_after is not None:
                        kill_after -= 1
                        if kill_after < 0:
                            asyncio.get_running_loop().call_later(self.random.uniform(0, 0.02), process.kill)
                            kill_after = None
                else:
                    reply = self.store.acknowledge(more[0].encode())
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(json.dumps(reply).encode() + b"\n")
                    process.stdin.flush()
        finally:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            code = await asyncio.to_thread(process.wait)
            process.stdout.close()
        assert code in (0, -signal.SIGKILL)
        self.kills += code != 0


@pytest.mark.chaos
@pytest.mark.full
async def test_killed_archivers_leave_every_acknowledged_response_once(folder: Path) -> None:
    fleet = Fleet(folder)
    for turn in range(3):
        await asyncio.gather(*(fleet.worker(2000, kill_after=turn + 1) for _ in range(2)))
        await merge(f"warc:{folder}", live=(), replay=fleet.store.replay)
        urls = Counter(record.url for record in of_type("response", read(folder)))
        assert urls == Counter(url for _, url in fleet.store.taken)
    assert fleet.kills == 6
    await fleet.worker(len(fleet.store.taken) + 100)
    responses = of_type("response", read(folder))
    assert {record.url: record.body for record in responses} == {
        url: capture_of(int(url.rpartition("/")[2])).page.body for _, url in fleet.store.taken
    }


@pytest.mark.chaos
@pytest.mark.full
def test_a_merge_killed_at_any_step_shows_each_response_once(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()

    async def work() -> None:
        sink: Any = await opened(model / "archive")
        await put(
            sink,
            capture_of(1),
            capture_of(2),
            Capture(crawl="other", page=capture_of(3).page),
            refused=(capture_of(2),),
        )
        sink._part.close()
        sink._part = None
        await sink.close()

    asyncio.run(work())

    def run(at: int) -> bool:
        shutil.copytree(model, tmp_path / str(at))
        folder = tmp_path / str(at) / "archive"
        turn = lambda: asyncio.run(merge(f"warc:{folder}", live=(), replay=Store().replay))  # noqa: E731
        ended = in_a_child(turn, killed_at_call=at)
        turn()
        shown = [gzip.decompress(path.read_bytes()).count(b"WARC-Type: response") for path in folder.glob("*.warc.gz")]
        assert shown == [1, 1], at
        assert not list(folder.glob(".*")), at
        return ended

    assert deaths(run) >= 8
