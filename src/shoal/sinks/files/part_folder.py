"""Outputs that are folders: each finished part becomes files of its own there, instead of being appended to one.

A format says by `convert` how a settled part becomes files; the same part always gives the same ones, so whoever is
killed at it, the next one repeats it.
"""

from __future__ import annotations

import contextlib
import os
from abc import abstractmethod
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from shoal.errors import SinkRefused
from shoal.sinks.executor import SinkThread
from shoal.sinks.files import merge
from shoal.sinks.files.merge import Merger, Replay
from shoal.sinks.files.part import OpenPart
from shoal.sinks.files.part_writer import PartsSink

Convert = Callable[[Path, Path], None]


class FolderSink(PartsSink):
    @abstractmethod
    def _convert(self, part: Path) -> None:
        """Turn a settled part into files of the output, durable and visible at once."""

    def _touch(self) -> None:
        try:
            self._path.mkdir(exist_ok=True)
        except FileExistsError:
            raise SinkRefused(f"The output {self._path} is a file; a folder of this name is needed.") from None
        tried = self._path / f".{os.getpid()}.tmp"
        tried.open("wb").close()
        tried.unlink(missing_ok=True)

    def _finish(self, part: OpenPart) -> None:
        if part.settled:
            # What cannot be done now is the gatherer's.
            with contextlib.suppress(OSError):
                self._convert(part.path)
                part.remove()
                return
        part.close()


class _FolderGatherer(Merger):
    def __init__(
        self, output: Path, folder: Path, thread: SinkThread, replay: Replay, head: bytes, *, convert: Convert
    ) -> None:
        super().__init__(output, folder, thread, replay, head)
        self._convert = convert

    def append(self, parts: list[Path]) -> None:
        for path in parts:
            self._convert(path, self._output)
            path.unlink()
        if not any(self._folder.glob("*.open")):
            for left in self._output.glob(".*.tmp"):
                left.unlink(missing_ok=True)


async def gather(output: Path, *, live: Collection[str], replay: Replay, convert: Convert) -> None:
    gatherer = partial(_FolderGatherer, convert=convert)
    await merge.gather(output, live=live, replay=replay, gatherer=gatherer)
