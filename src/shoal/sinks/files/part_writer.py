"""One worker's end of an output that is made of parts, whatever the format: batches in, parts out.

A line cannot be taken back, so nothing is written to the output itself before its batch is settled. Each worker writes
parts of its own (part.py); finished ones go into the output (gathering.py). A format says how records become bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from shoal.errors import SinkRefused
from shoal.model.record import Item, Record
from shoal.sinks.columns import encodable, whole
from shoal.sinks.contract import Key, Stored
from shoal.sinks.executor import SinkThread
from shoal.sinks.files.part import OpenPart, folder_of
from shoal.sinks.retry import TransientError, persist

# A part is closed at this age or size: so soon a page can be seen in the output.
PART_SECONDS = 5.0
PART_BYTES = 64 << 20


class PartsSink(ABC):
    """The path of a batch through a part. A format adds `_encoded`, and `_touch` to refuse what is not its own.

    One output holds one type of records: the items of a spider, pages where there is none, or what a format says.
    """

    holds: type[Stored] | None = None
    part_seconds = PART_SECONDS
    part_bytes = PART_BYTES
    idle_seconds = PART_SECONDS

    def __init__(self, path: Path, *, worker: str, on_trouble: Callable[[str], None], spider: bool = False) -> None:
        self._path = path
        self._holds = self.holds or (Item if spider else Record)
        self._worker = worker
        self._on_trouble = on_trouble
        self._thread = SinkThread("parts")
        self._part: OpenPart | None = None
        self._settled_mono = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Future[None] | None = None

    async def open(self) -> None:
        await self._persist(self._check)

    async def write(self, records: Sequence[Stored], receipt: bytes) -> None:
        records = [record for record in records if type(record) is self._holds]
        if not records:
            return
        written_at: list[int] = []
        try:
            await self._persist(lambda: written_at.append(self._append(records, receipt)))
        except asyncio.CancelledError:
            # The caller will not acknowledge this batch, and may write its pages again.
            await self._thread.run(lambda: self._take_back(written_at))
            raise

    async def settle(self, refused: Collection[Key]) -> None:
        await self._persist(lambda: self._settle(refused))
        self._settled_mono = time.monotonic()
        # For the last page before a pause: nothing else would come by to close its part.
        if self._part is not None and self._timer is None:
            self._watch(self.idle_seconds)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._thread.end(self._close_part)

    def _watch(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        part, now = self._part, time.monotonic()
        if part is None:
            return
        left = min(self._settled_mono + self.idle_seconds, part.opened_mono + self.part_seconds) - now
        if left > 0:
            self._watch(left)
        else:
            self._closing = asyncio.ensure_future(self._thread.run(self._close_if_settled))

    async def _persist(self, function: Callable[[], None]) -> None:
        def attempt() -> None:
            try:
                function()
            except OSError as error:
                raise TransientError(_reason(error)) from error

        await persist(self._path, lambda: self._thread.run(attempt), self._on_trouble)

    # What follows runs in the thread.

    @abstractmethod
    def _encoded(self, records: Sequence[Any]) -> dict[Key, bytes]:
        """The bytes of each key, in their order in the part. UnicodeEncodeError for text that needs `encodable`."""

    def _touch(self) -> None:
        """Make the output if it is not there; SinkRefused when it is something else."""
        self._path.open("ab").close()

    def _finish(self, part: OpenPart) -> None:
        part.close()

    def _check(self) -> None:
        try:
            self._touch()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE):
                raise
            raise SinkRefused(f"The output {self._path} cannot be written: {error.strerror}.") from error

    def _append(self, records: Sequence[Stored], receipt: bytes) -> int:
        """Where in its part the batch begins."""
        try:
            lines = self._encoded(records)
        except UnicodeEncodeError:
            lines = self._encoded([encodable(record) for record in records])
        if self._part is None:
            self._part = OpenPart(folder_of(self._path), self._worker)
        start = self._part.length
        self._part.append(lines, receipt)
        return start

    def _take_back(self, written_at: Sequence[int]) -> None:
        if self._part is not None and written_at:
            # What cannot be cut now is cut before the next entry.
            with contextlib.suppress(OSError):
                self._part.take_back(written_at[0])

    def _settle(self, refused: Collection[Key]) -> None:
        if self._part is not None:
            self._part.settle([(whole(crawl), whole(url)) for crawl, url in refused])
            if time.monotonic() - self._part.opened_mono >= self.part_seconds or self._part.length >= self.part_bytes:
                self._close_part()

    def _close_if_settled(self) -> None:
        if self._part is not None and self._part.settled:
            self._close_part()

    def _close_part(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            self._finish(part)


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "has no space left on its disk"
    if error.errno == errno.EIO:
        return "has an error of its disk"
    return f"cannot be written ({error.strerror})"
