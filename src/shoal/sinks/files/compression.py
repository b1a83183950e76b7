"""Compressed files. Each append to a .gz or .zst file is a complete gzip member or zstd frame; readers join them."""

from __future__ import annotations

import gzip
import importlib
import sys
import zlib
from pathlib import Path
from typing import BinaryIO, Protocol, cast

# In Python's own library from 3.14 on.
ZSTD_MODULE = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
# The merge is one process for all workers. A page of 5 KB takes 87 us at gzip's level 1, 342 us at level 6 (which
# compresses to 84 % of the size), and 37 us with zstd.
GZIP_LEVEL, ZSTD_LEVEL = 1, 3


class Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


def with_compressed(*endings: str) -> tuple[str, ...]:
    """The endings, plain and compressed."""
    return tuple(ending + more for ending in endings for more in ("", ".gz", ".zst"))


def compressor_of(output: Path) -> Compressor | None:
    """A compressor for the next append to this file; None if the file is not compressed."""
    if output.name.lower().endswith(".gz"):
        return zlib.compressobj(GZIP_LEVEL, wbits=16 + zlib.MAX_WBITS)
    if output.name.lower().endswith(".zst"):
        compressor: Compressor = importlib.import_module(ZSTD_MODULE).ZstdCompressor(level=ZSTD_LEVEL)
        return compressor
    return None


def open_decompressed(file: Path) -> BinaryIO:
    """A file to read, decompressed as its ending says. Each library has its own error for a file of another format."""
    name = file.name.lower()
    if name.endswith(".gz"):
        return cast(BinaryIO, gzip.open(file))
    if name.endswith(".zst"):
        return cast(BinaryIO, importlib.import_module(ZSTD_MODULE).open(file, "rb"))
    return file.open("rb")


def beginning(output: Path, length: int) -> bytes:
    """The first bytes of a file, decompressed; fewer if its content does not match its ending."""
    try:
        with open_decompressed(output) as file:
            return file.read(length)
    except Exception as error:
        # Errors of the disk have an errno, those of another format do not.
        if isinstance(error, OSError) and error.errno:
            raise
        return b""
