"""Part files: where one worker writes its records until they are merged into the output.

A line cannot be removed from a file once a reader has seen it. So a worker does not append to the output itself. It
appends to a part file, and only records that the store has acknowledged move from there to the output (merge.py):

    pages.jsonl                                  the output
    pages.jsonl.parts/worker-1-1700000000.open   a part that its worker still writes; the worker holds a lock on it
    pages.jsonl.parts/worker-2-1700000050.done   a part that is closed and waits for the merge
    pages.jsonl.parts/close                      newer than an open part: a request to close it

A part is a journal. Two kinds of entries alternate, each a line of `checksum JSON`; the records of a batch follow its
entry:

    8f2c... {"type":"batch","receipt":...,"lines":[[crawl,url,length],...],"check":...}
    {"crawl":"docs","url":"https://site.example/1",...}          the records, in the format of the output
    {"crawl":"docs","url":"https://site.example/2",...}
    91ab... {"type":"settled","at":0,"refused":[[crawl,url]]}    the batch at byte 0 is committed, except these keys
    77d0... {"type":"batch",...}

The key of a page in `refused` rejects its items, too.

One write and one fdatasync make a batch durable together with its receipt. A crash or a full disk can leave an
incomplete entry, or a batch whose records do not match its checksum, at the end of the file: `scan` ignores it. A batch
that has a commit after it was complete before, so `scan` verifies only the batches without one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.parse import quote

import msgspec
import xxhash

from shoal.model.record import RecordKey

CHUNK = 1 << 20
CLOSE_REQUEST = "close"
# macOS has no fdatasync.
flush = getattr(os, "fdatasync", os.fsync)


class Batch(msgspec.Struct, frozen=True, tag="batch"):
    # The receipt that the worker shows to the store to acknowledge this batch.
    receipt: bytes
    # The crawl, the URL (of an item, the key) and the length in bytes of each record.
    lines: list[tuple[str, str, int]]
    # The checksum of all records.
    check: str

    @property
    def length(self) -> int:
        return sum(length for _, _, length in self.lines)


class BatchCommit(msgspec.Struct, frozen=True, tag="settled", rename={"rejected": "refused"}):
    # Where the entry of the batch starts.
    at: int
    rejected: list[RecordKey]


class PartBatch(NamedTuple):
    """A batch of a part."""

    # Where its records start.
    start: int
    batch: Batch
    # The keys that the store rejected; None if the batch is not committed.
    rejected: Collection[RecordKey] | None


def parts_folder(output: Path) -> Path:
    return output.with_name(output.name + ".parts")


def part_names(output: Path) -> set[str]:
    """The names, without suffix, of the parts that are not in the output yet."""
    return {path.stem for path in parts_folder(output).glob("*") if path.suffix in (".open", ".done")}


def has_part(output: Path, name: str) -> bool:
    """Whether the part is not in the output yet."""
    # In this order: a worker may close the part in between.
    folder = parts_folder(output)
    return (folder / f"{name}.open").exists() or (folder / f"{name}.done").exists()


def request_close(output: Path) -> None:
    """Request that live workers close the parts that are open now."""
    with contextlib.suppress(OSError):
        (parts_folder(output) / CLOSE_REQUEST).touch()


def batch_entry(lines: dict[RecordKey, bytes], receipt: bytes) -> bytes:
    check = _checksum(lines.values())
    batch = Batch(receipt, [(*key, len(line)) for key, line in lines.items()], check)
    return b"".join((_entry(batch), *lines.values()))


def commit_entry(at: int, rejected: Collection[RecordKey]) -> bytes:
    return _entry(BatchCommit(at, list(rejected)))


def _entry(entry: Batch | BatchCommit) -> bytes:
    line = msgspec.json.encode(entry)
    return f"{_checksum([line])} ".encode() + line + b"\n"


def _checksum(pieces: Iterable[bytes]) -> str:
    check = xxhash.xxh3_64()
    for piece in pieces:
        check.update(piece)
    return check.hexdigest()


def scan(part: BinaryIO) -> tuple[dict[int, PartBatch], int]:
    """The batches of a part by the position of their entries, and the length up to which the part is complete."""
    batches: dict[int, PartBatch] = {}
    at = 0
    while read := _read_entry(part, at):
        entry, end = read
        if isinstance(entry, Batch):
            batches[at] = PartBatch(end, entry, None)
            at = end + entry.length
        else:
            batches[entry.at] = batches[entry.at]._replace(rejected=entry.rejected)
            at = end
    for position, (start, batch, rejected) in batches.items():
        if rejected is None and _checksum(chunks(part, start, batch.length)) != batch.check:
            return {before: complete for before, complete in batches.items() if before < position}, position
    return batches, at


def _read_entry(part: BinaryIO, at: int) -> tuple[Batch | BatchCommit, int] | None:
    """The entry at this position, and where it ends; None if there is no complete entry."""
    part.seek(at)
    line = part.readline()
    check, _, encoded = line.removesuffix(b"\n").partition(b" ")
    if not encoded or _checksum([encoded]).encode() != check:
        return None
    return msgspec.json.decode(encoded, type=Batch | BatchCommit), at + len(line)


def visible(batch: PartBatch) -> Iterator[tuple[int, int]]:
    """The start and length of the records that were not rejected; adjacent records are one range."""
    rejected = set(batch.rejected or ())
    start = end = batch.start
    for crawl, url, length in batch.batch.lines:
        if rejected and is_rejected((crawl, url), rejected):
            if end > start:
                yield start, end - start
            start = end + length
        end += length
    if end > start:
        yield start, end - start


def is_rejected(key: RecordKey, rejected: Collection[RecordKey]) -> bool:
    """An item is rejected with its page. An item's key is its page's, `#`, and a number that may follow a slash.

    A page may have a fragment of its own, its method, in which there is neither (`record_url`).
    """
    crawl, url = key
    page, _, number = url.rpartition("#")
    return key in rejected or ((crawl, page) in rejected and number.rpartition("/")[2].isdigit())


def chunks(file: BinaryIO, start: int, length: int) -> Iterator[bytes]:
    file.seek(start)
    while length and (chunk := file.read(min(length, CHUNK))):
        length -= len(chunk)
        yield chunk


class OpenPart:
    """A part that its worker writes. Every call blocks; an OSError leaves the part as it was before the call."""

    def __init__(self, folder: Path, worker: str) -> None:
        self.opened_mono = time.monotonic()
        self.length = 0
        self.committed = True
        self._torn = False
        self._batch_at = 0
        while True:
            # A name is never used twice: the merge remembers names across a crash. Names sort by age.
            self._opened_ns = time.time_ns()
            self._path = folder / f"{quote(worker, safe='')}-{self._opened_ns}.open"
            folder.mkdir(exist_ok=True)
            try:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            except (FileExistsError, FileNotFoundError):
                continue  # a merge has just removed the empty folder
            if locked(self._file, self._path):
                break
            os.close(self._file)  # a merge locked it first, and treated it as the part of a dead worker
        try:
            sync_folder(folder)
            sync_folder(folder.parent)
        except OSError:
            os.close(self._file)
            raise

    def append(self, lines: dict[RecordKey, bytes], receipt: bytes) -> None:
        """Write a batch; it is durable when this returns."""
        before = self.length
        self._write(batch_entry(lines, receipt))
        try:
            flush(self._file)
        except OSError:
            # After a failed flush it is unknown which bytes are on the disk: all are written again.
            self.length, self._torn = before, True
            raise
        self.committed, self._batch_at = False, before

    def commit(self, rejected: Collection[RecordKey]) -> None:
        """Write the commit of the last batch. It is not flushed: after a power cut the receipt is replayed."""
        if not self.committed:
            self._write(commit_entry(self._batch_at, rejected))
            self.committed = True

    def truncate(self, length: int) -> None:
        """Drop everything after `length`, where a batch started."""
        self.length, self._torn, self.committed = length, True, True
        self._cut()

    @property
    def path(self) -> Path:
        return self._path

    @property
    def close_requested(self) -> bool:
        try:
            return (self._path.parent / CLOSE_REQUEST).stat().st_mtime_ns > self._opened_ns
        except OSError:
            return False

    def remove(self) -> None:
        """Delete the part, whose records are all in the output."""
        self._path.unlink()
        os.close(self._file)

    def close(self) -> None:
        """Hand the part over to the merge, which replays the receipt of a batch that is not committed."""
        # If the part cannot be renamed now, a merge finds it later without a lock.
        with contextlib.suppress(OSError):
            self._cut()
            self._path.rename(self._path.with_suffix(".done"))
        os.close(self._file)

    def _write(self, entry: bytes) -> None:
        self._cut()
        self._torn = True
        rest = memoryview(entry)
        at = self.length
        while rest:
            count = os.pwrite(self._file, rest, at)
            at, rest = at + count, rest[count:]
        self.length, self._torn = at, False

    def _cut(self) -> None:
        if self._torn:
            os.ftruncate(self._file, self.length)
            self._torn = False


def locked(file: int, path: Path) -> bool:
    """Lock a file without waiting; False if another process holds it, or the path names another file by now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file), path.stat())
    except (BlockingIOError, FileNotFoundError):
        return False


def sync_folder(folder: Path) -> None:
    """Make new, changed and removed names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
