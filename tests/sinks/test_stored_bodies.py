"""Stored bodies: a name has one content, even if a writer dies; full disks, unavailable buckets."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from shoal.errors import SinkRefused, SinkUnavailable
from shoal.sinks.bodies import are_local, check_files, open_files, s3
from shoal.sinks.bodies import folder as folder_module
from shoal.sinks.bodies.body_store import ENDINGS, PUTS
from tests.servers import WAIT_SECONDS, wait_until
from tests.sinks.outputs import mounted
from tests.sinks.test_contract import deaths, fill, in_a_child

KEYS = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "very-secret-key"}


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def kept(folder: Path, body: bytes, content_type: str) -> str:
    files = open_files(str(folder))
    where = await files.keep(body, content_type)
    await files.close()
    return where


async def test_a_body_is_found_under_its_hash(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"body").hexdigest()
    where = await kept(tmp_path / "files", b"body", "Text/HTML; charset=utf-8")
    assert where == f"{tmp_path}/files/{digest[:2]}/{digest[2:4]}/{digest}.html"
    assert everything(tmp_path / "files") == {where.removeprefix(f"{tmp_path}/files/"): b"body"}


@pytest.mark.parametrize("body", [b"", b"\0" * 3_000_000])
async def test_a_body_of_any_size_is_stored_completely(tmp_path: Path, body: bytes) -> None:
    assert Path(await kept(tmp_path, body, "application/pdf")).read_bytes() == body


@pytest.mark.parametrize("content_type", ["", "x/y", "../../etc", "text/html\0", "a/b.exe", "\ud800", "/" * 10_000])
async def test_an_unknown_media_type_gives_no_file_extension(tmp_path: Path, content_type: str) -> None:
    where = await kept(tmp_path, b"body", content_type)
    assert where.endswith(f"/{hashlib.sha256(b'body').hexdigest()}.bin")


def test_file_extensions_are_harmless() -> None:
    for content_type, ending in ENDINGS.items():
        assert content_type == content_type.lower()
        assert ending[0] == "."
        assert ending[1:].isalnum()


async def test_many_writers_can_store_the_same_body_at_the_same_time(tmp_path: Path) -> None:
    places = [open_files(str(tmp_path / "files")) for _ in range(4)]
    bodies = [b"%d" % (number % 7) * 1000 for number in range(100)]
    names = await asyncio.gather(*(files.keep(body, "text/plain") for body in bodies for files in places))
    for files in places:
        await files.close()
    assert len(set(names)) == 7
    stored = everything(tmp_path / "files")
    assert sorted(stored.values()) == sorted(set(bodies)), "no temporary name is left"


async def test_an_existing_body_is_not_written_again_unless_it_is_torn(tmp_path: Path) -> None:
    where = Path(await kept(tmp_path, b"body", "text/plain"))
    before = where.stat().st_ino
    await kept(tmp_path, b"body", "text/plain")
    assert where.stat().st_ino == before
    where.write_bytes(b"bo")
    await kept(tmp_path, b"body", "text/plain")
    assert where.read_bytes() == b"body"


async def test_old_temporary_files_of_killed_writers_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".new").mkdir()
    for name, age in (("old", folder_module.LEFT_SECONDS + 60), ("young", 60)):
        (tmp_path / ".new" / name).write_bytes(b"half")
        os.utime(tmp_path / ".new" / name, (time.time() - age,) * 2)
    await kept(tmp_path, b"body", "text/plain")
    assert [path.name for path in (tmp_path / ".new").iterdir()] == ["young"]


async def test_closed_files_store_nothing(tmp_path: Path) -> None:
    files = open_files(str(tmp_path))
    await files.open()
    await files.close()
    await files.close()
    with pytest.raises(SinkUnavailable):
        await files.keep(b"body", "")


@pytest.mark.chaos
@pytest.mark.full
def test_a_writer_killed_at_any_step_leaves_no_partial_body(tmp_path: Path) -> None:
    def run(at: int) -> bool:
        folder = tmp_path / str(at)
        ended = in_a_child(lambda: print(asyncio.run(kept(folder, b"body" * 100, "text/plain"))), killed_at_call=at)
        for path in folder.rglob("*.txt"):
            assert path.read_bytes() == b"body" * 100
        assert Path(asyncio.run(kept(folder, b"body" * 100, "text/plain"))).read_bytes() == b"body" * 100
        return ended

    assert deaths(run) >= 8


class Trouble:
    """The messages passed to `on_trouble`, and an event to wait for."""

    def __init__(self) -> None:
        self.troubles: list[str] = []
        self.came = asyncio.Event()

    def __call__(self, sentence: str) -> None:
        self.troubles.append(sentence)
        self.came.set()

    async def wait(self) -> None:
        await asyncio.wait_for(self.came.wait(), WAIT_SECONDS)


@pytest.mark.full
async def test_files_wait_for_a_full_disk_and_report_it_once(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "-o", "size=4m") as folder:
        trouble = Trouble()
        files = open_files(str(folder), on_trouble=trouble)
        await files.keep(b"first", "text/plain")
        fill(folder / "ballast")
        bodies = [b"%d" % number * 20_000 for number in range(PUTS + 5)]
        keeping = [asyncio.create_task(files.keep(body, "text/plain")) for body in bodies]
        await trouble.wait()
        assert trouble.troubles == [f"output {folder} has no space left on its disk; waiting"]
        (folder / "ballast").unlink()
        names = await asyncio.wait_for(asyncio.gather(*keeping), WAIT_SECONDS)
        assert [Path(name).read_bytes() for name in names] == bodies
        assert trouble.troubles[1:] == [""]
        await files.close()


async def test_files_wait_for_a_lost_mount(tmp_path: Path) -> None:
    place, away, trouble = tmp_path / "files", tmp_path / "away", Trouble()
    files = open_files(str(place), on_trouble=trouble)
    await files.keep(b"first", "text/plain")
    place.rename(away)
    place.mkdir()
    keeping = asyncio.create_task(files.keep(b"second", "text/plain"))
    await trouble.wait()
    assert trouble.troubles == [f"output {place} has been replaced since the start; is it still mounted?; waiting"]
    assert everything(place) == {}
    place.rmdir()
    away.rename(place)
    assert Path(await asyncio.wait_for(keeping, WAIT_SECONDS)).read_bytes() == b"second"
    assert trouble.troubles[1:] == [""]
    await files.close()


async def test_a_cancelled_wait_clears_its_message(tmp_path: Path) -> None:
    trouble = Trouble()
    files = open_files(str(tmp_path / "files"), on_trouble=trouble)
    await files.open()
    (tmp_path / "files").rename(tmp_path / "away")
    keeping = asyncio.create_task(files.keep(b"body", ""))
    await trouble.wait()
    keeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await keeping
    assert trouble.troubles == [
        f"output {tmp_path}/files cannot be written (No such file or directory); waiting",
        "",
    ]
    await files.close()


@pytest.mark.parametrize(
    ("typed", "full"),
    [
        ("files", "file:{}/files"),
        ("file:files/", "file:{}/files"),
        ("FILE:link", "file:{}/real"),
        ("s3://bucket", "s3://bucket"),
        ("S3://bucket/a%20b//?region=&endpoint=http://127.0.0.1:9000",
         "s3://bucket/a%20b?endpoint=http%3A%2F%2F127.0.0.1%3A9000"),
        ("s3://bucket/a?region=eu-1&endpoint=https://h", "s3://bucket/a?endpoint=https%3A%2F%2Fh&region=eu-1"),
    ],
)  # fmt: skip
def test_a_location_of_files_has_one_canonical_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, full: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert check_files(typed) == full.format(tmp_path)
    assert check_files(check_files(typed)) == check_files(typed)
    assert are_local(typed) == full.startswith("file:")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"], "checking makes nothing"


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("", "Files cannot be stored in ''; name a folder or s3://BUCKET/PREFIX."),
        ("gs://name:secret@bucket", "Files cannot be stored in 'gs://***@bucket'; "),
        ("file://server/x", "Files cannot be stored in 'file://server/x'; "),
        ("a\nb", "Files cannot be stored in 'a\\nb'; "),
        ("a file", "it is a file, not a folder."),
        ("nowhere/files", "does not exist; create it first."),
        ("loop/x", "its path is a loop of symbolic links."),
        ("s3://", "does not name a bucket; write s3://BUCKET/PREFIX?endpoint=URL&region=NAME."),
        ("s3:bucket", "does not name a bucket; "),
        ("s3://key:secret@bucket/x", "'s3://***@bucket/x' contains keys; give them to the workers as AWS_ACCESS_"),
        ("s3://bucket?endpoint=http://a:secret@h", "contains keys; "),
        ("s3://bucket?aws_secret_access_key=secret", "has the unknown option 'aws_secret_access_key'; "),
        ("s3://bucket?endpoint=ftp://secret", "is not an http or https URL; "),
        ("s3://bucket?endpoint=http://h:secret", "is not a valid URI; "),
        ("s3://bucket?region=secret!", "is invalid; write s3://"),
        ("s3://bucket/a/../b", "has empty segments or dots; "),
        ("s3://bucket/a%0Ab", "has empty segments or dots; "),
    ],
)
def test_an_invalid_location_of_files_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "a file").write_text("")
    with pytest.raises(SinkRefused) as refused:
        check_files(typed)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    if "secret" not in sentence:
        assert "secret" not in str(refused.value)


def test_a_missing_package_is_reported_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(SinkRefused, match=r"run: pip install 'shoal\[s3\]'\.\Z"):
        check_files("s3://bucket")


class Moto:
    """A server that speaks S3, in its own process; its objects are gone when it ends."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.port = taken.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | KEYS,
        )  # fmt: skip
        wait_until(self.responds, "moto answers")
        self.client = boto3.client(
            "s3", endpoint_url=self.endpoint, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
        )

    def responds(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def ask_for_keys(self, *, after: str) -> None:
        """Check keys after so many requests. moto has users of its own, so every key is wrong then."""
        url, headers = f"{self.endpoint}/moto-api/reset-auth", {"Content-Type": "text/plain"}
        request = urllib.request.Request(url, data=after.encode(), headers=headers, method="POST")  # noqa: S310
        urllib.request.urlopen(request, timeout=10).close()  # noqa: S310

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def uri(self, bucket: str = "bucket", prefix: str = "/a b") -> str:
        return f"s3://{bucket}{prefix}?endpoint={self.endpoint}"


@pytest.fixture(scope="module")
def moto() -> Iterator[Moto]:
    server = Moto()
    server.start()
    server.client.create_bucket(Bucket="bucket")
    yield server
    server.end()


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


@pytest.mark.full
async def test_bodies_are_stored_in_a_bucket(moto: Moto) -> None:
    files = open_files(moto.uri())
    small, large = b"body", os.urandom(s3.PIECE_BYTES * 2 + 5)
    for body in (small, large, small):
        where = await files.keep(body, "text/html; charset=utf-8")
        digest = hashlib.sha256(body).hexdigest()
        assert where == f"s3://bucket/a b/{digest[:2]}/{digest[2:4]}/{digest}.html"
        stored: Any = moto.client.get_object(Bucket="bucket", Key=where.removeprefix("s3://bucket/"))
        assert (stored["Body"].read(), stored["ContentType"]) == (body, "text/html")
        assert stored["ETag"].strip('"').endswith("-3") == (body is large), "sent in pieces"
    await files.close()
    listed = moto.client.list_objects_v2(Bucket="bucket")["Contents"]
    assert [entry["Key"] for entry in listed if entry["Key"].startswith("a b/.")] == ["a b/.shoal"]
    assert moto.client.list_multipart_uploads(Bucket="bucket").get("Uploads", []) == []


async def test_the_number_of_concurrent_uploads_is_bounded(moto: Moto, monkeypatch: pytest.MonkeyPatch) -> None:
    files: Any = open_files(moto.uri(prefix=""))
    send, now, most = files._send, 0, 0

    async def counted(*arguments: Any, **more: Any) -> Any:
        nonlocal now, most
        now += 1
        most = max(most, now)
        try:
            return await send(*arguments, **more)
        finally:
            now -= 1

    files._send = counted
    names = await asyncio.gather(*(files.keep(b"%d" % number, "") for number in range(40)))
    assert (len(set(names)), most) == (40, PUTS)
    await files.close()


async def refusal(uri: str) -> str:
    files = open_files(uri)
    with pytest.raises(SinkRefused) as refused:
        await asyncio.wait_for(files.open(), WAIT_SECONDS)
    await files.close()
    sentence = str(refused.value)
    assert "\n" not in sentence
    assert not any(secret in sentence for secret in KEYS.values())
    return sentence


async def test_a_missing_bucket_is_refused(moto: Moto) -> None:
    endpoint = f"?endpoint=http%3A%2F%2F127.0.0.1%3A{moto.port}"
    assert await refusal(moto.uri("nowhere")) == (
        f"Files cannot be stored in s3://nowhere/a%20b{endpoint}: it does not exist."
    )


async def test_wrong_keys_are_refused_at_the_start_and_retried_later(moto: Moto) -> None:
    moto.ask_for_keys(after="0")
    try:
        assert (await refusal(moto.uri())).endswith(
            ": it does not let these keys write (403 InvalidAccessKeyId); check their permissions."
        )
        moto.ask_for_keys(after="1")
        trouble = Trouble()
        files = open_files(moto.uri(), on_trouble=trouble)
        await files.open()
        keeping = asyncio.create_task(files.keep(b"late", "text/plain"))
        await trouble.wait()
        assert "does not let these keys write (403 InvalidAccessKeyId)" in trouble.troubles[0]
    finally:
        moto.ask_for_keys(after="inf")
    where = await asyncio.wait_for(keeping, WAIT_SECONDS)
    assert moto.client.get_object(Bucket="bucket", Key=where.removeprefix("s3://bucket/"))["Body"].read() == b"late"
    assert trouble.troubles[1:] == [""]
    await files.close()


async def test_missing_keys_are_refused(moto: Moto, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name)
    # In place of the one that machines of Amazon have.
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    assert "has no keys; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in await refusal(moto.uri())


@pytest.mark.full
async def test_files_wait_for_an_unavailable_or_frozen_endpoint() -> None:
    server, trouble = Moto(), Trouble()
    files = open_files(server.uri(), on_trouble=trouble)
    opening = asyncio.create_task(files.open())
    await trouble.wait()
    assert trouble.troubles[0].endswith(" cannot be reached; waiting")
    assert not any(secret in trouble.troubles[0] for secret in KEYS.values())
    opening.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await opening
    try:
        await asyncio.to_thread(server.start)
        server.client.create_bucket(Bucket="bucket")
        await files.open()
        assert server.process
        server.process.send_signal(signal.SIGSTOP)
        keeping = asyncio.create_task(files.keep(b"body", "text/plain"))
        await asyncio.sleep(0.1)
        server.process.send_signal(signal.SIGCONT)
        await asyncio.wait_for(keeping, WAIT_SECONDS)
        trouble.came.clear()
        server.process.kill()
        server.process.wait()
        keeping = asyncio.create_task(files.keep(b"more", "text/plain"))
        await trouble.wait()
        await asyncio.to_thread(server.start)
        server.client.create_bucket(Bucket="bucket")
        where = await asyncio.wait_for(keeping, WAIT_SECONDS)
        stored = server.client.get_object(Bucket="bucket", Key=where.removeprefix("s3://bucket/"))
        assert stored["Body"].read() == b"more"
        assert trouble.troubles[-1] == ""
    finally:
        server.end()
        await files.close()
