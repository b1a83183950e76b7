"""Technologies whose outputs are files or folders of this machine: their paths, checks, and part files."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from abc import abstractmethod
from collections.abc import AsyncGenerator, Collection, Iterator
from pathlib import Path
from typing import ClassVar

from shoal.errors import InvalidInput, SinkRefused
from shoal.sinks.columns import Row
from shoal.sinks.contract import Location, OnTrouble, Replay, Technology
from shoal.sinks.files.compression import ZSTD_MODULE
from shoal.sinks.files.part import has_part, part_names, parts_folder, request_close
from shoal.sinks.files.part_writer import PartsSink
from shoal.sinks.reader import Cursor, ReadRequest, in_batches
from shoal.sinks.uri import local_path, names_server, shown_uri, split_scheme


class LocalTechnology(Technology[Path]):
    """Its address is an absolute path. A technology adds `open`, and `rows` if it can be read back."""

    location: ClassVar[Location] = Location.FILE

    def parse(self, uri: str) -> Path:
        _, path = split_scheme(uri)
        if names_server(path):
            raise SinkRefused(f"The output {shown_uri(uri)} names a server, not a file; write {self.name}:PATH.")
        return local_path(path, f"The output {shown_uri(uri)}")

    def uri(self, address: Path) -> str:
        return f"{self.name}:{address}"

    def check(self, address: Path) -> None:
        folder = address.parent
        try:
            mode = address.stat().st_mode
        except FileNotFoundError:
            mode = 0
        except OSError as error:
            raise SinkRefused(f"The output {address} cannot be reached: {error.strerror}.") from None
        if self.location is Location.FOLDER:
            if mode and not stat.S_ISDIR(mode):
                raise SinkRefused(f"The output {address} is a file, but must be a folder; choose another name.")
        elif stat.S_ISDIR(mode):
            raise SinkRefused(f"The output {address} is a folder; name a file in it.")
        elif mode and not stat.S_ISREG(mode):
            raise SinkRefused(f"The output {address} is a device, pipe or socket; name a file.")
        if not folder.is_dir():
            raise SinkRefused(f"The folder {folder} of the output {address.name} does not exist; create it first.")
        # Files are created beside the output: SQLite's log, the part files of JSON lines.
        if not os.access(folder, os.W_OK | os.X_OK):
            raise SinkRefused(f"The folder {folder} of the output {address.name} is not writable by this user.")
        if mode and not os.access(address, os.R_OK | os.W_OK):
            raise SinkRefused(f"The output {address} is not readable and writable by this user.")

    def remove(self, address: Path) -> None:
        self.check(address)
        files = [address]
        if self.location is Location.FOLDER:
            # Only what Shoal writes: another program's files stay.
            files = [path for pattern in ("*.parquet", "*.warc.gz", ".*.tmp") for path in address.glob(pattern)]
        # SQLite has its log beside it.
        for path in (*files, *(address.with_name(address.name + more) for more in ("-wal", "-shm", "-journal"))):
            path.unlink(missing_ok=True)
        shutil.rmtree(parts_folder(address), ignore_errors=True)

    async def read(self, address: Path, request: ReadRequest) -> AsyncGenerator[list[tuple[Cursor, Row]], None]:
        async with contextlib.aclosing(in_batches(self._existing_rows(address, request), request.limit)) as batches:
            async for rows in batches:
                yield rows

    def _existing_rows(self, path: Path, request: ReadRequest) -> Iterator[tuple[Cursor, Row]]:
        # SinkRefused, if files of this technology cannot be read back.
        rows = self.rows(path, request)
        if not path.exists():
            raise InvalidInput(f"There is no output {path} to read.")
        yield from rows

    @abstractmethod
    def rows(self, path: Path, request: ReadRequest) -> Iterator[tuple[Cursor, Row]]:
        """The requested rows. Called in a thread; it may block."""


class PartsTechnology(LocalTechnology):
    """Workers write part files, which `merge` adds to the output."""

    sink_class: ClassVar[type[PartsSink]]

    def open(self, address: Path, *, worker: str, on_trouble: OnTrouble, spider: bool) -> PartsSink:
        return self.sink_class(address, worker=worker, on_trouble=on_trouble, spider=spider)

    def has_parts(self, address: Path) -> bool:
        return parts_folder(address).exists()

    def part_names(self, address: Path) -> set[str]:
        return part_names(address)

    def unmerged(self, address: Path, names: Collection[str]) -> set[str]:
        request_close(address)
        return {name for name in names if has_part(address, name)}

    @abstractmethod
    async def merge(self, address: Path, *, live: Collection[str], replay: Replay, spider: bool) -> None: ...


class LinesTechnology(PartsTechnology):
    """A file of lines, which may be compressed (.gz, .zst)."""

    def requirement(self, address: Path) -> tuple[str, str]:
        return (ZSTD_MODULE, "zstd") if address.name.lower().endswith(".zst") else ("", "")
