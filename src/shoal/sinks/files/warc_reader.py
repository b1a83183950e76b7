"""The records of WARC files: all records in their order, or one record at its position.

Each record is a gzip member, as warc_writer.py writes it; in an uncompressed file it follows the record before it. Why
this is not FastWARC: docs/decisions/0017-archives-and-bodies.md.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from shoal.errors import SinkRefused

_CHUNK = 1 << 16
# The longest headers of a record or a response.
_MAX_HEADER_BYTES = 1 << 20


class WarcRecord(NamedTuple):
    """A record of a WARC file."""

    # The byte of the file where it starts.
    position: int
    # The names are in lower case.
    headers: dict[str, str]
    block: Block


def files_of(path: Path) -> list[Path]:
    """The files of an archive. A single file is an archive, too."""
    return [path] if path.is_file() else sorted([*path.glob("*.warc.gz"), *path.glob("*.warc")])


def records(path: Path) -> Iterator[WarcRecord]:
    with _opened(path) as (file, compressed):
        position, size = 0, path.stat().st_size
        while position < size:
            record = _record(file, path, position, compressed=compressed)
            yield record
            position = record.block.end()


@contextlib.contextmanager
def record_at(path: Path, position: int) -> Iterator[WarcRecord]:
    """One record. The file is open while the context lasts."""
    with _opened(path) as (file, compressed):
        yield _record(file, path, position, compressed=compressed)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, bool]]:
    try:
        with path.open("rb") as file:
            yield file, file.read(2) == b"\x1f\x8b"
    except OSError as error:
        raise SinkRefused(f"The file {path} cannot be read: {error.strerror}.") from error


def _record(file: BinaryIO, path: Path, position: int, *, compressed: bool) -> WarcRecord:
    block = Block(file, path, position, compressed=compressed)
    version, *lines = block.head().split("\r\n")
    headers = dict(fields(lines))
    length = headers.get("content-length", "")
    if not version.startswith("WARC/1.") or not re.fullmatch("[0-9]{1,18}", length):
        raise block.invalid("is not a WARC record")
    block.left = int(length)
    return WarcRecord(position, headers, block)


def fields(lines: list[str]) -> list[tuple[str, str]]:
    """Header lines as pairs, with names in lower case."""
    pairs = (line.partition(":") for line in lines)
    return [(name.strip().lower(), value.strip()) for name, colon, value in pairs if colon]


class Block:
    """The bytes of a record. `left` is the number of bytes of its block that were not read yet."""

    def __init__(self, file: BinaryIO, path: Path, position: int, *, compressed: bool) -> None:
        self._file, self._path, self._position = file, path, position
        self._gzip = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS) if compressed else None
        self._data = b""
        self._read = 0
        self.left = 0
        file.seek(position)

    def head(self) -> str:
        """The text before the next empty line. Headers are Latin-1."""
        while (at := self._data.find(b"\r\n\r\n")) < 0:
            more = self._more()
            if not more or len(self._data) > _MAX_HEADER_BYTES:
                raise self.invalid("is incomplete, or is not a WARC record")
            self._data += more
        head = self._data[:at]
        self._take(at + 4)
        self.left = max(self.left - at - 4, 0)
        return head.decode("latin-1")

    def rest(self) -> bytes:
        """The rest of the block."""
        pieces = [self._take(self.left)]
        self.left -= len(pieces[0])
        while self.left:
            self._data = self._more()
            if not self._data:
                raise self.invalid("is incomplete")
            pieces.append(self._take(self.left))
            self.left -= len(pieces[-1])
        return b"".join(pieces)

    def end(self) -> int:
        """Where the next record starts. The rest of this one is skipped."""
        if self._gzip is None:
            return self._position + self._read + self.left + 4
        behind = len(self._data)
        while not self._gzip.eof:
            more = self._more()
            if not more and not self._gzip.eof:
                raise self.invalid("is incomplete")
            behind += len(more)
        if behind > self.left + 4:
            raise self.invalid("is not a gzip member of its own: decompress the file with gunzip, and name the result")
        return self._file.tell() - len(self._gzip.unused_data)

    def invalid(self, problem: str) -> SinkRefused:
        return SinkRefused(f"The record at byte {self._position:,} of {self._path} {problem}.")

    def _take(self, most: int) -> bytes:
        taken, self._data = self._data[:most], self._data[most:]
        self._read += len(taken)
        return taken

    def _more(self) -> bytes:
        """The next bytes; b'' at the end of the file or of the gzip member."""
        if self._gzip is None:
            return self._file.read(_CHUNK)
        while not self._gzip.eof:
            # At most 1 MB at a time: a small member may decompress to very many bytes.
            raw = self._gzip.unconsumed_tail or self._file.read(_CHUNK)
            if not raw:
                return b""
            try:
                if out := self._gzip.decompress(raw, 1 << 20):
                    return out
            except zlib.error as error:
                raise self.invalid(f"cannot be decompressed: {error}") from None
        return b""
