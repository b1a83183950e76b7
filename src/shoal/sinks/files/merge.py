"""Gathering: finished parts become visible by being appended to the output, each line once, whatever is killed when.

    1  every part that nobody writes any more is closed: its torn end is cut, and a batch that was not settled is
       settled by what the store says to its receipt
    2  `state` says how long the output is
    3  the lines that were not refused are appended, and flushed
    4  `state` says which parts are in the output
    5  those parts are removed, then `state`

A format may begin an output with a head and pack what is appended. One that makes files of its own replaces steps 2
to 5. A gatherer that finds `state` of a dead one cuts the output (2) or goes on removing (4). One gathers at a time:
the lock goes with its process. Who reads the output meanwhile may see the beginning of a line whose end follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Collection, Iterator
from functools import partial
from io import FileIO
from pathlib import Path
from urllib.parse import quote

import msgspec

from shoal.errors import SinkUnavailable
from shoal.sinks.contract import Key
from shoal.sinks.executor import SinkThread
from shoal.sinks.files.compression import packer
from shoal.sinks.files.part import chunks, flush, folder_of, locked, scan, settled_entry, sync_folder, visible

TURN_SECONDS = 0.05

Replay = Callable[[bytes], Awaitable[Collection[Key]]]


class MergeState(msgspec.Struct, frozen=True):
    """What a gatherer is about to do: cut the output to `length` if it is still that file, or remove parts."""

    length: int = 0
    file: tuple[int, int] = (0, 0)
    remove: tuple[str, ...] = ()


async def gather(
    output: Path,
    *,
    live: Collection[str],
    replay: Replay,
    head: bytes = b"",
    gatherer: Callable[..., Merger] | None = None,
) -> None:
    """Append finished parts to the output. SinkUnavailable when the disk does not let it; nothing is lost by that.

    A worker's name leaves `live` before it is given to another process, and comes back after this was called: the
    store answers to the last receipt of a name only.
    """
    folder = folder_of(output)
    thread = SinkThread("gather")
    turn = None
    try:
        turn = await _turn(folder)
        if turn is not None:
            names = {quote(name, safe="") for name in live}
            await (gatherer or Merger)(output, folder, thread, replay, head).gather(names)
    except OSError as error:
        raise SinkUnavailable(f"The output {output} cannot be appended to now: {error.strerror}.") from error
    finally:
        await thread.end(lambda: None if turn is None else os.close(turn))


async def _turn(folder: Path) -> int | None:
    """The lock of the gatherer, held until it is closed; None when there are no parts."""
    path = folder / "lock"
    while True:
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            return None
        if locked(lock, path):
            return lock
        os.close(lock)
        await asyncio.sleep(TURN_SECONDS)


class Merger:
    """One turn. Its methods without `async` run in the thread."""

    def __init__(self, output: Path, folder: Path, thread: SinkThread, replay: Replay, head: bytes) -> None:
        self._output = output
        self._head = head
        self._folder = folder
        self._state = folder / "state"
        self._thread = thread
        self._replay = replay

    async def gather(self, live: Collection[str]) -> None:
        await self._thread.run(self._recover)
        settled, unsettled = await self._thread.run(lambda: self._finished(live))
        await self._thread.run(lambda: self.append(settled))
        # The store may be away: what it has no say in is visible by now.
        for path in unsettled:
            await self._settle(path)
            await self._thread.run(partial(self.append, [path]))
        await self._thread.run(self._remove_folder)

    def _finished(self, live: Collection[str]) -> tuple[list[Path], list[Path]]:
        """The parts that are closed, oldest first: those wholly settled, and the others."""
        for path in self._folder.glob("*.open"):
            if path.stem.rpartition("-")[0] not in live:
                _close(path)
        settled: list[Path] = []
        unsettled: list[Path] = []
        for path in sorted(self._folder.glob("*.done"), key=lambda path: path.stem.rpartition("-")[2]):
            with path.open("rb") as part:
                pieces, _ = scan(part)
            whole = all(piece.refused is not None for piece in pieces.values())
            (settled if whole else unsettled).append(path)
        return settled, unsettled

    async def _settle(self, path: Path) -> None:
        with path.open("r+b") as part:
            pieces, end = await self._thread.run(lambda: scan(part))
            part.truncate(end)
            part.seek(end)
            for at, piece in pieces.items():
                if piece.refused is None:
                    part.write(settled_entry(at, await self._replay(piece.batch.receipt)))
            part.flush()
            await self._thread.run(lambda: flush(part.fileno()))

    def append(self, parts: list[Path]) -> None:
        """Make settled parts visible, and remove them."""
        if not parts:
            return
        # Without a buffer: nothing is left that closing would write after the cut.
        with self._output.open("a+b", buffering=0) as output:
            found = os.fstat(output.fileno())
            self._note(MergeState(length=found.st_size, file=(found.st_dev, found.st_ino)))
            try:
                pack = packer(self._output)
                if pack is None:
                    _end_line(output, found.st_size)
                if not found.st_size and self._head:
                    _write(output, pack.compress(self._head) if pack else self._head)
                for path in parts:
                    for chunk in lines_of(path):
                        _write(output, pack.compress(chunk) if pack else chunk)
                if pack:
                    _write(output, pack.flush())
                flush(output.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    self._recover()
                raise
        sync_folder(self._output.parent)
        self._note(MergeState(remove=tuple(path.name for path in parts)))
        self._recover()

    def _recover(self) -> None:
        """Do what the state says, and forget it."""
        try:
            state = msgspec.json.decode(self._state.read_bytes(), type=MergeState)
        except FileNotFoundError:
            return
        for name in state.remove:
            (self._folder / name).unlink(missing_ok=True)
        if not state.remove and self._output.exists():
            with self._output.open("r+b") as output:
                found = os.fstat(output.fileno())
                # Another file has nothing of ours, and one that somebody made shorter is not to grow.
                if state.file == (found.st_dev, found.st_ino) and found.st_size > state.length:
                    output.truncate(state.length)
                    flush(output.fileno())
        sync_folder(self._folder)
        self._state.unlink()
        sync_folder(self._folder)

    def _note(self, state: MergeState) -> None:
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
        (self._folder / "lock").unlink()
        # A worker may have begun a part in it just now.
        with contextlib.suppress(OSError):
            self._folder.rmdir()


def _close(path: Path) -> None:
    """Close a part for its worker, if that is gone."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as part:
        if locked(part.fileno(), path):
            path.rename(path.with_suffix(".done"))


def lines_of(path: Path) -> Iterator[bytes]:
    """What a settled part shows, in chunks."""
    with path.open("rb") as part:
        pieces, _ = scan(part)
        for piece in pieces.values():
            for start, length in visible(piece):
                yield from chunks(part, start, length)


def _end_line(output: FileIO, length: int) -> None:
    """What somebody else left without an end of line keeps its line to itself."""
    if length:
        output.seek(length - 1)
        if output.read(1) != b"\n":
            _write(output, b"\n")


def _write(output: FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[output.write(rest) :]
