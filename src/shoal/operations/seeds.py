"""URLs out of a file or a pipe, one a line, read as they are needed: a million of them are never in memory at once.

Owns what a line may be. Lines that are empty or begin with # are left out, and files whose name ends in .gz unpacked.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from shoal.errors import InvalidInput, InvalidUrl
from shoal.operations.start import seed_url

# What the policy of a crawl holds, and what is added in one go while it runs.
FIRST, BATCH = 1000, 2000
# No URL is so long; a file without ends of lines must not fill the memory.
_LONGEST = 1 << 16
_BROKEN = (OSError, EOFError, zlib.error)
_T = TypeVar("_T")


class Seeds:
    """One file, `-` is standard input. `first` comes at once and has no bad line; `rest` says which it left out."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.shown = "standard input" if source == "-" else source
        self.number = 0
        # How many lines were left out of the rest, and what was wrong with the first few.
        self.bad = 0
        self.faults: list[str] = []
        self._file = self._open()

    def first(self) -> list[str]:
        """The first thousand. InvalidInput in one sentence, with the number of the line, for what is no URL."""
        found = []
        for line in islice(self._texts(), FIRST):
            if isinstance(line, InvalidUrl):
                raise line
            found.append(line)
        return found

    async def rest(self) -> AsyncIterator[list[str]]:
        """What follows them, in batches."""
        while batch := await _apart(self._batch):
            yield batch

    def _batch(self) -> list[str]:
        found: list[str] = []
        for line in self._texts():
            if isinstance(line, str):
                found.append(line)
                if len(found) == BATCH:
                    break
            else:
                self.bad += 1
                if len(self.faults) < 3:
                    self.faults.append(str(line))
        return found

    def _texts(self) -> Iterator[str | InvalidUrl]:
        while line := self._line():
            self.number += 1
            try:
                text = line.decode().removeprefix("\ufeff").strip()
                if text and not text.startswith("#"):
                    yield seed_url(text)
            except UnicodeDecodeError:
                yield InvalidUrl(f"Line {self.number} of {self.shown} is not UTF-8 text.")
            except InvalidUrl as error:
                yield InvalidUrl(f"Line {self.number} of {self.shown}: {error}")

    def _line(self) -> bytes:
        with self._translated():
            line = self._file.readline(_LONGEST)
            end = line
            while len(end) == _LONGEST and not end.endswith(b"\n"):
                end = self._file.readline(_LONGEST)
            return line

    def _open(self) -> BinaryIO:
        with self._translated():
            if self.source == "-":
                # A descriptor of our own: Python waits at its end for whoever reads the one it has.
                return os.fdopen(os.dup(0), "rb")
            if self.source.lower().endswith(".gz"):
                return cast(BinaryIO, gzip.open(self.source))
            return Path(self.source).open("rb")

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except _BROKEN as error:
            why = getattr(error, "strerror", None) or str(error).rstrip(".")
            raise InvalidInput(f"The file of seeds {self.shown} cannot be read: {why}.") from None


async def _apart(function: Callable[[], _T]) -> _T:
    """Its result, out of a thread that nobody waits for at the end: a pipe may be silent for ever."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()

    def tell(result: _T | None, error: Exception | None) -> None:
        if not future.cancelled():
            if error is None:
                future.set_result(cast(_T, result))
            else:
                future.set_exception(error)

    def work() -> None:
        result, failed = None, None
        try:
            result = function()
        except Exception as error:
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop is over
            loop.call_soon_threadsafe(tell, result, failed)

    threading.Thread(target=work, name="seeds", daemon=True).start()
    return await future
