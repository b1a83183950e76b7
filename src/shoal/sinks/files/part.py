"""A part: the file in which one worker writes its lines until they are gathered into the output.

    pages.jsonl.parts/<worker>-<number>.open     its worker writes it and holds a lock on it for as long as it lives
    pages.jsonl.parts/<worker>-<number>.done     closed

A part is a row of entries. An entry is a line `checksum JSON`; lines of records follow the entry of their batch:

    batch    the receipt, the key and length of every line, and a checksum of the lines
    settled  the keys of a batch that were refused; a page's key stands for its items, too

What a crash or a full disk leaves at the end is no entry, or one whose lines do not match, and does not count. One
write and one fdatasync keep a batch with its receipt. What follows a batch was written after that: only a batch that
is not settled is read again for its checksum.
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

from shoal.sinks.contract import Key

CHUNK = 1 << 20
# macOS has no fdatasync.
flush = getattr(os, "fdatasync", os.fsync)


class Batch(msgspec.Struct, frozen=True, tag="batch"):
    receipt: bytes
    lines: list[tuple[str, str, int]]
    check: str

    @property
    def length(self) -> int:
        return sum(length for _, _, length in self.lines)


class Settled(msgspec.Struct, frozen=True, tag="settled"):
    """`at` is where the entry of the batch begins."""

    at: int
    refused: list[Key]


class Piece(NamedTuple):
    """A batch of a part: where its lines begin, and which were refused, None when it is not settled."""

    start: int
    batch: Batch
    refused: Collection[Key] | None


def folder_of(output: Path) -> Path:
    return output.with_name(output.name + ".parts")


def batch_entry(lines: dict[Key, bytes], receipt: bytes) -> bytes:
    check = _checksum(lines.values())
    batch = Batch(receipt, [(*key, len(line)) for key, line in lines.items()], check)
    return b"".join((_entry(batch), *lines.values()))


def settled_entry(at: int, refused: Collection[Key]) -> bytes:
    return _entry(Settled(at, list(refused)))


def _entry(told: Batch | Settled) -> bytes:
    line = msgspec.json.encode(told)
    return f"{_checksum([line])} ".encode() + line + b"\n"


def _checksum(data: Iterable[bytes]) -> str:
    check = xxhash.xxh3_64()
    for some in data:
        check.update(some)
    return check.hexdigest()


def scan(part: BinaryIO) -> tuple[dict[int, Piece], int]:
    """The batches of a part by the place of their entries, and the length up to which it is whole."""
    pieces: dict[int, Piece] = {}
    at = 0
    while told := _read_entry(part, at):
        entry, start = told
        if isinstance(entry, Batch):
            pieces[at] = Piece(start, entry, None)
            at = start + entry.length
        else:
            pieces[entry.at] = pieces[entry.at]._replace(refused=entry.refused)
            at = start
    for place, (start, batch, refused) in pieces.items():
        if refused is None and _checksum(chunks(part, start, batch.length)) != batch.check:
            return {at: piece for at, piece in pieces.items() if at < place}, place
    return pieces, at


def _read_entry(part: BinaryIO, at: int) -> tuple[Batch | Settled, int] | None:
    """The entry at this place, and where it ends; None where there is none."""
    part.seek(at)
    line = part.readline()
    check, _, told = line.removesuffix(b"\n").partition(b" ")
    if not told or _checksum([told]).encode() != check:
        return None
    return msgspec.json.decode(told, type=Batch | Settled), at + len(line)


def visible(piece: Piece) -> Iterator[tuple[int, int]]:
    """Where the lines are that were not refused, as start and length; neighbours are one."""
    refused = set(piece.refused or ())
    start = end = piece.start
    for crawl, url, length in piece.batch.lines:
        if refused and is_refused((crawl, url), refused):
            if end > start:
                yield start, end - start
            start = end + length
        end += length
    if end > start:
        yield start, end - start


def is_refused(key: Key, refused: Collection[Key]) -> bool:
    """Items go with their page: what is before `#` in an item's key is its page, and no URL of a visit has one."""
    crawl, url = key
    return key in refused or (crawl, url.partition("#")[0]) in refused


def chunks(file: BinaryIO, start: int, length: int) -> Iterator[bytes]:
    file.seek(start)
    while length and (chunk := file.read(min(length, CHUNK))):
        length -= len(chunk)
        yield chunk


class OpenPart:
    """The end of a part at which its worker writes. Every call blocks; an OSError leaves the part as it was before."""

    def __init__(self, folder: Path, worker: str) -> None:
        self.opened_mono = time.monotonic()
        self.length = 0
        self.settled = True
        self._torn = False
        self._batch_at = 0
        while True:
            # A name is never used twice: the gatherer remembers names over a crash. Numbers sort by age.
            self._path = folder / f"{quote(worker, safe='')}-{time.time_ns()}.open"
            folder.mkdir(exist_ok=True)
            try:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            except (FileExistsError, FileNotFoundError):
                continue  # the gatherer has just removed the empty folder
            if locked(self._file, self._path):
                break
            os.close(self._file)  # the gatherer was faster, and took it for one that somebody left behind
        try:
            sync_folder(folder)
            sync_folder(folder.parent)
        except OSError:
            os.close(self._file)
            raise

    def append(self, lines: dict[Key, bytes], receipt: bytes) -> None:
        """Keep a batch: durable when this returns."""
        before = self.length
        self._write(batch_entry(lines, receipt))
        try:
            flush(self._file)
        except OSError:
            # After a failed flush nobody knows which pages are on the disk: all of them are written again.
            self.length, self._torn = before, True
            raise
        self.settled, self._batch_at = False, before

    def settle(self, refused: Collection[Key]) -> None:
        """Not flushed: after a power cut the receipt is replayed."""
        if not self.settled:
            self._write(settled_entry(self._batch_at, refused))
            self.settled = True

    def take_back(self, length: int) -> None:
        """Forget what was written after `length`, where a batch began."""
        self.length, self._torn, self.settled = length, True, True
        self._cut()

    @property
    def path(self) -> Path:
        return self._path

    def remove(self) -> None:
        """All of it is elsewhere."""
        self._path.unlink()
        os.close(self._file)

    def close(self) -> None:
        """No more will be written. What is not settled is for the gatherer to find out."""
        # Without its new name the part is one that nobody holds, and is gathered as such later.
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
    """Lock it without waiting; False when somebody else has it or the path has come to mean another file."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file), path.stat())
    except (BlockingIOError, FileNotFoundError):
        return False


def sync_folder(folder: Path) -> None:
    """Make names durable that were made, changed or removed in it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
