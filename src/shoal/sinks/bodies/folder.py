"""Bodies in a folder on this machine or a mount: write under a temporary name, flush, rename."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shoal.errors import SinkRefused
from shoal.sinks.bodies.body_store import PUTS, BodyStore
from shoal.sinks.files.part import sync_folder
from shoal.sinks.retry import TransientError, disk_error, may_pass

# Temporary files of killed workers are removed after this time.
LEFT_SECONDS = 86_400.0


class FolderBodyStore(BodyStore):
    def __init__(self, folder: Path, on_trouble: Callable[[str], None]) -> None:
        super().__init__(str(folder), on_trouble)
        self._folder = folder
        self._pool = ThreadPoolExecutor(PUTS, thread_name_prefix="files")
        self._made: set[str] = set()
        self._inode = 0

    async def close(self) -> None:
        await super().close()
        await asyncio.to_thread(self._pool.shutdown)

    async def _prepare(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._pool, self._make)

    async def _put(self, name: str, body: bytes, content_type: str) -> None:
        # A cancelled caller does not wait for the thread: any other worker would write the same bytes.
        await asyncio.get_running_loop().run_in_executor(self._pool, self._write, name, body)

    def _location(self, name: str) -> str:
        return str(self._folder / name)

    # The methods below run in threads.

    def _make(self) -> None:
        try:
            self._folder.mkdir(exist_ok=True)
            new = self._folder / ".new"
            new.mkdir(exist_ok=True)
            sync_folder(self._folder.parent)
            for leftover in new.iterdir():
                with contextlib.suppress(FileNotFoundError):
                    if leftover.stat().st_mtime < time.time() - LEFT_SECONDS:
                        leftover.unlink()
            self._inode = self._folder.stat().st_ino
        except FileExistsError:
            raise SinkRefused(f"Files cannot be stored in {self._folder}: it is a file, not a folder.") from None
        except OSError as error:
            if may_pass(error):
                raise disk_error(error) from error
            raise SinkRefused(f"Files cannot be stored in {self._folder}: {error.strerror}.") from error

    def _write(self, name: str, body: bytes) -> None:
        try:
            # An unmounted file system leaves an empty folder: bodies stored in it would be hidden after the next mount.
            if self._folder.stat().st_ino != self._inode:
                raise TransientError("has been replaced since the start; is it still mounted?")
            path = self._folder / name
            try:
                exists = path.stat().st_size == len(body)
            except FileNotFoundError:
                exists = False
                self._make_folders(name)
            if not exists:
                self._write_new(path, body)
            # Also for an existing file: its writer may have been killed before this step.
            sync_folder(path.parent)
        except OSError as error:
            raise disk_error(error) from error

    def _make_folders(self, name: str) -> None:
        outer, inner, _ = name.split("/")
        for folder in (outer, f"{outer}/{inner}"):
            (self._folder / folder).mkdir(exist_ok=True)
            if folder not in self._made:
                sync_folder((self._folder / folder).parent)
                self._made.add(folder)

    def _write_new(self, path: Path, body: bytes) -> None:
        new = self._folder / ".new" / uuid.uuid4().hex
        try:
            with new.open("wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            new.rename(path)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            raise
