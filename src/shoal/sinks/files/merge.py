"""The merge: add finished part files to the output, each record exactly once, whichever process is killed when.

    1  close every part that no worker writes any more: cut its incomplete end; for a batch without a commit, ask the
       store by its receipt which records it acknowledged, and write that commit
    2  write the length of the output to the file `state`
    3  append the records that were not rejected, and flush
    4  write the names of these parts to `state`
    5  remove the parts, then `state`

A format may start an output with a head, and compress the appended records. A format that makes its own files replaces
steps 2 to 5. If a merge dies, the next one finds its `state`: it truncates the output (after step 2) or removes the
parts (after step 4). One process merges at a time; its lock ends with the process. A program that reads the output
meanwhile may see the start of a line whose end follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from functools import partial
from io import FileIO
from pathlib import Path
from urllib.parse import quote

import msgspec

from shoal.errors import SinkUnavailable
from shoal.sinks.contract import Replay
from shoal.sinks.executor import SinkThread
from shoal.sinks.files.compression import compressor_of
from shoal.sinks.files.part import (
    CLOSE_REQUEST,
    chunks,
    commit_entry,
    flush,
    locked,
    parts_folder,
    scan,
    sync_folder,
    visible,
)

LOCK_PAUSE_SECONDS = 0.05


class MergeState(msgspec.Struct, frozen=True):
    """What to do if this merge dies: truncate the output, or remove the parts that are in it."""

    # The length of the output before the merge.
    length: int = 0
    # The device and inode of the output: another file of this name is not truncated.
    file: tuple[int, int] = (0, 0)
    # The names of the parts to remove.
    remove: tuple[str, ...] = ()


async def merge_parts(
    output: Path,
    *,
    live: Collection[str],
    replay: Replay,
    head: bytes = b"",
    merger: Callable[..., Merger] | None = None,
) -> None:
    """Append finished parts to the output. SinkUnavailable on a disk error, which loses nothing.

    `live` are workers on machines whose locks may be invisible here. A part of any other worker is in use as long as
    its lock is held. This must be called before another process gets the name of a dead worker: the store remembers
    only the last receipt of a name.
    """
    folder = parts_folder(output)
    thread = SinkThread("merge")
    lock = None
    try:
        lock = await _locked(folder)
        if lock is not None:
            names = {quote(name, safe="") for name in live}
            await (merger or Merger)(output, folder, thread, replay, head).run(names)
    except OSError as error:
        raise SinkUnavailable(f"The output {output} cannot be appended to now: {error.strerror}.") from error
    finally:
        await thread.end(lambda: None if lock is None else os.close(lock))


async def _locked(folder: Path) -> int | None:
    """The lock of the merge, held until it is closed; None if there are no parts."""
    path = folder / "lock"
    while True:
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            return None
        if locked(lock, path):
            return lock
        os.close(lock)
        await asyncio.sleep(LOCK_PAUSE_SECONDS)


class Merger:
    """One merge. The methods without `async` run in the thread."""

    def __init__(self, output: Path, folder: Path, thread: SinkThread, replay: Replay, head: bytes) -> None:
        self._output = output
        self._head = head
        self._folder = folder
        self._state = folder / "state"
        self._thread = thread
        self._replay = replay

    async def run(self, live: Collection[str]) -> None:
        await self._thread.run(self._recover)
        committed, uncommitted = await self._thread.run(lambda: self._finished(live))
        await self._thread.run(lambda: self.append(committed))
        # The store may be unavailable: parts that do not need it are merged by now.
        for path in uncommitted:
            await self._commit(path)
            await self._thread.run(partial(self.append, [path]))
        await self._thread.run(self._remove_folder)

    def _finished(self, live: Collection[str]) -> tuple[list[Path], list[Path]]:
        """The closed parts, oldest first: those whose batches are all committed, and the others."""
        for path in self._folder.glob("*.open"):
            if path.stem.rpartition("-")[0] not in live:
                _close(path)
        committed: list[Path] = []
        uncommitted: list[Path] = []
        for path in sorted(self._folder.glob("*.done"), key=lambda path: path.stem.rpartition("-")[2]):
            with path.open("rb") as part:
                batches, _ = scan(part)
            complete = all(batch.rejected is not None for batch in batches.values())
            (committed if complete else uncommitted).append(path)
        return committed, uncommitted

    async def _commit(self, path: Path) -> None:
        with path.open("r+b") as part:
            batches, end = await self._thread.run(lambda: scan(part))
            part.truncate(end)
            part.seek(end)
            for at, batch in batches.items():
                if batch.rejected is None:
                    part.write(commit_entry(at, await self._replay(batch.batch.receipt)))
            part.flush()
            await self._thread.run(lambda: flush(part.fileno()))

    def append(self, parts: list[Path]) -> None:
        """Append committed parts to the output, and remove them."""
        if not parts:
            return
        # Without a buffer: closing the file writes nothing after a truncation.
        with self._output.open("a+b", buffering=0) as output:
            self._begin(output)
            before = os.fstat(output.fileno())
            self._write_state(MergeState(length=before.st_size, file=(before.st_dev, before.st_ino)))
            try:
                compressor = compressor_of(self._output)
                if not before.st_size and self._head:
                    write_all(output, compressor.compress(self._head) if compressor else self._head)
                for path in parts:
                    for chunk in lines_of(path):
                        write_all(output, compressor.compress(chunk) if compressor else chunk)
                if compressor:
                    write_all(output, compressor.flush())
                self._end(output)
                flush(output.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    self._recover()
                raise
        sync_folder(self._output.parent)
        self._write_state(MergeState(remove=tuple(path.name for path in parts)))
        self._recover()

    def _begin(self, output: FileIO) -> None:
        """Prepare the output for more records. This must be harmless if no record follows."""
        if compressor_of(self._output) is None:
            _end_line(output, os.fstat(output.fileno()).st_size)

    def _end(self, output: FileIO) -> None:
        """Write the bytes after the last record."""

    def _recover(self) -> None:
        """Do what `state` says, and remove it."""
        try:
            state = msgspec.json.decode(self._state.read_bytes(), type=MergeState)
        except FileNotFoundError:
            return
        for name in state.remove:
            (self._folder / name).unlink(missing_ok=True)
        if not state.remove and self._output.exists():
            with self._output.open("r+b") as output:
                status = os.fstat(output.fileno())
                # Another file has no lines of this crawl. A file that was truncated by its user must not grow.
                if state.file == (status.st_dev, status.st_ino) and status.st_size > state.length:
                    output.truncate(state.length)
                    flush(output.fileno())
        sync_folder(self._folder)
        self._state.unlink()
        sync_folder(self._folder)

    def _write_state(self, state: MergeState) -> None:
        new = self._state.with_suffix(".new")
        with new.open("wb") as file:
            file.write(msgspec.json.encode(state))
            file.flush()
            flush(file.fileno())
        new.rename(self._state)
        sync_folder(self._folder)

    def _remove_folder(self) -> None:
        if any(self._folder.glob("*.open")) or any(self._folder.glob("*.done")):
            return
        (self._folder / "state.new").unlink(missing_ok=True)
        (self._folder / CLOSE_REQUEST).unlink(missing_ok=True)
        (self._folder / "lock").unlink()
        # A worker may have started a part in it just now.
        with contextlib.suppress(OSError):
            self._folder.rmdir()


def _close(path: Path) -> None:
    """Close the part of a worker that is dead."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as part:
        if locked(part.fileno(), path):
            path.rename(path.with_suffix(".done"))


def lines_of(path: Path) -> Iterator[bytes]:
    """The visible records of a committed part, in chunks."""
    with path.open("rb") as part:
        batches, _ = scan(part)
        for batch in batches.values():
            for start, length in visible(batch):
                yield from chunks(part, start, length)


def _end_line(output: FileIO, length: int) -> None:
    """End a last line that another program left without a line break."""
    if length:
        output.seek(length - 1)
        if output.read(1) != b"\n":
            write_all(output, b"\n")


def write_all(output: FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[output.write(rest) :]
