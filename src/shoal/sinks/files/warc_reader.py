"""The records of WARC files: their headers one after the other, and any of them again by its place.

Each is a member of gzip, as archive.py writes them, or follows the one before in a file that is not packed.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from shoal.errors import SinkRefused

_CHUNK = 1 << 16
# Of headers, those of a record and those of an answer.
_MOST_HEADERS = 1 << 20


class Found(NamedTuple):
    """A record: where it begins, its headers by names in lower case, and what reads its block."""

    place: int
    headers: dict[str, str]
    block: Block


def files_of(path: Path) -> list[Path]:
    """The files of an archive; one file is an archive, too."""
    return [path] if path.is_file() else sorted([*path.glob("*.warc.gz"), *path.glob("*.warc")])


def records(path: Path) -> Iterator[Found]:
    with _opened(path) as (file, packed):
        place, size = 0, path.stat().st_size
        while place < size:
            found = _record(file, path, place, packed=packed)
            yield found
            place = found.block.end()


@contextlib.contextmanager
def record_at(path: Path, place: int) -> Iterator[Found]:
    """One record, for as long as its block is read."""
    with _opened(path) as (file, packed):
        yield _record(file, path, place, packed=packed)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, bool]]:
    try:
        with path.open("rb") as file:
            yield file, file.read(2) == b"\x1f\x8b"
    except OSError as error:
        raise SinkRefused(f"The file {path} cannot be read: {error.strerror}.") from error


def _record(file: BinaryIO, path: Path, place: int, *, packed: bool) -> Found:
    block = Block(file, path, place, packed=packed)
    version, *lines = block.head().split("\r\n")
    headers = dict(fields(lines))
    length = headers.get("content-length", "")
    if not version.startswith("WARC/1.") or not length.isdecimal():
        raise block.broken("is no record of an archive")
    block.left = int(length)
    return Found(place, headers, block)


def fields(lines: list[str]) -> list[tuple[str, str]]:
    """Lines of headers as pairs, names in lower case."""
    pairs = (line.partition(":") for line in lines)
    return [(name.strip().lower(), value.strip()) for name, colon, value in pairs if colon]


class Block:
    """The bytes of a record from where it begins; `left` are those of its block that were not read."""

    def __init__(self, file: BinaryIO, path: Path, place: int, *, packed: bool) -> None:
        self._file, self._path, self._place = file, path, place
        self._unpack = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS) if packed else None
        self._data = b""
        self._read = 0
        self.left = 0
        file.seek(place)

    def head(self) -> str:
        """What comes before an empty line. Headers are Latin-1 text."""
        while (at := self._data.find(b"\r\n\r\n")) < 0:
            more = self._more()
            if not more or len(self._data) > _MOST_HEADERS:
                raise self.broken("has no end, or is none of an archive")
            self._data += more
        head = self._data[:at]
        self._take(at + 4)
        self.left = max(self.left - at - 4, 0)
        return head.decode("latin-1")

    def rest(self) -> bytes:
        """What is left of the block."""
        pieces = [self._take(self.left)]
        self.left -= len(pieces[0])
        while self.left:
            self._data = self._more()
            if not self._data:
                raise self.broken("has no end")
            pieces.append(self._take(self.left))
            self.left -= len(pieces[-1])
        return b"".join(pieces)

    def end(self) -> int:
        """Where the next record begins; what is left of this one is passed over."""
        if self._unpack is None:
            return self._place + self._read + self.left + 4
        behind = len(self._data)
        while not self._unpack.eof:
            more = self._more()
            if not more and not self._unpack.eof:
                raise self.broken("has no end")
            behind += len(more)
        if behind > self.left + 4:
            raise self.broken("is not packed by itself: unpack the file with gunzip, and name what comes out")
        return self._file.tell() - len(self._unpack.unused_data)

    def broken(self, what: str) -> SinkRefused:
        return SinkRefused(f"The record at byte {self._place:,} of {self._path} {what}.")

    def _take(self, most: int) -> bytes:
        taken, self._data = self._data[:most], self._data[most:]
        self._read += len(taken)
        return taken

    def _more(self) -> bytes:
        """The next bytes; none at the end of the file, or of a member."""
        if self._unpack is None:
            return self._file.read(_CHUNK)
        while not self._unpack.eof:
            # What a member has above this waits in it: a little may be packed very well.
            raw = self._unpack.unconsumed_tail or self._file.read(_CHUNK)
            if not raw:
                return b""
            try:
                if out := self._unpack.decompress(raw, 1 << 20):
                    return out
            except zlib.error as error:
                raise self.broken(f"cannot be unpacked: {error}") from None
        return b""
