"""Outputs that are folders: each finished part becomes new files in the folder, instead of being appended to one file.

A format defines `convert`. The same part always gives the same files, so if a process dies in the conversion, the next
one repeats it.
"""

from __future__ import annotations

import contextlib
import os
from abc import abstractmethod
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import ClassVar

from shoal.errors import SinkRefused
from shoal.sinks.contract import Location, Replay
from shoal.sinks.executor import SinkThread
from shoal.sinks.files.merge import Merger, merge_parts
from shoal.sinks.files.part import OpenPart
from shoal.sinks.files.part_writer import PartsSink
from shoal.sinks.files.technology import PartsTechnology

Convert = Callable[[Path, Path], None]


class FolderSink(PartsSink):
    @abstractmethod
    def _convert(self, part: Path) -> None:
        """Turn a committed part into files of the output, each durable and complete when it becomes visible."""

    def _touch(self) -> None:
        try:
            self._path.mkdir(exist_ok=True)
        except FileExistsError:
            raise SinkRefused(f"The output {self._path} is a file, but must be a folder.") from None
        probe = self._path / f".{os.getpid()}.tmp"
        probe.open("wb").close()
        probe.unlink(missing_ok=True)

    def _finish(self, part: OpenPart) -> None:
        if part.committed:
            # If it fails now, a merge converts the part later.
            with contextlib.suppress(OSError):
                self._convert(part.path)
                part.remove()
                return
        part.close()


class _FolderMerger(Merger):
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
            for leftover in self._output.glob(".*.tmp"):
                leftover.unlink(missing_ok=True)


class FolderTechnology(PartsTechnology):
    """A folder of files."""

    location: ClassVar[Location] = Location.FOLDER

    @abstractmethod
    def convert(self, part: Path, output: Path) -> None:
        """Turn a committed part into files of the output."""

    async def merge(self, address: Path, *, live: Collection[str], replay: Replay, spider: bool) -> None:
        await merge_parts(address, live=live, replay=replay, merger=partial(_FolderMerger, convert=self.convert))
