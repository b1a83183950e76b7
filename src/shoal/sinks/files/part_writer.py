"""A worker's sink for an output that is made of part files, in any format.

Each worker writes its own parts (part.py). The merge (merge.py) adds finished parts to the output. A format defines how
records become bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from shoal.errors import SinkRefused
from shoal.model.record import Item, Record, RecordKey
from shoal.sinks.columns import encodable, is_confirmation, whole
from shoal.sinks.contract import Stored
from shoal.sinks.executor import SinkThread
from shoal.sinks.files.part import OpenPart, parts_folder
from shoal.sinks.retry import disk_error, may_pass, retry

# A part is closed at this age or size. So a page takes up to this time to become visible.
PART_SECONDS = 5.0
PART_BYTES = 64 << 20
# How often a worker looks for a request to close its part.
_REQUEST_SECONDS = 1.0


class PartsSink(ABC):
    """Writes batches into parts. A format adds `_encoded`, and extends `_touch` to refuse files of other formats.

    One output holds one type of records: the items of a crawl with a spider, the pages of one without, or `holds`.
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
        self._committed_mono = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Future[None] | None = None

    async def open(self) -> None:
        await self._retry(self._check)

    async def write(self, records: Sequence[Stored], receipt: bytes) -> None:
        records = [
            record for record in records if type(record) is self._holds and not is_confirmation(record)
        ]  # fmt: skip
        if not records:
            return
        written_at: list[int] = []
        try:
            await self._retry(lambda: written_at.append(self._append(records, receipt)))
        except asyncio.CancelledError:
            # The caller will not acknowledge this batch, and may write its pages again.
            await self._thread.run(lambda: self._undo(written_at))
            raise

    async def commit(self, rejected: Collection[RecordKey]) -> None:
        await self._retry(lambda: self._commit(rejected))
        self._committed_mono = time.monotonic()
        # After the last page before a pause, no other call would close the part.
        self._set_timer()

    async def hand_over(self) -> None:
        await self._thread.run(self._close_part)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._thread.end(self._close_part)

    def _set_timer(self) -> None:
        if self._part is not None and self._timer is None:
            seconds = min(_REQUEST_SECONDS, self.idle_seconds)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._part is not None:
            self._closing = asyncio.ensure_future(self._thread.run(self._close_if_due))
            self._closing.add_done_callback(lambda _: self._set_timer())

    async def _retry(self, function: Callable[[], None]) -> None:
        def attempt() -> None:
            try:
                function()
            except OSError as error:
                raise disk_error(error) from error

        await retry(self._path, lambda: self._thread.run(attempt), self._on_trouble)

    # The methods below run in the thread.

    @abstractmethod
    def _encoded(self, records: Sequence[Any]) -> dict[RecordKey, bytes]:
        """The bytes of each record by its key. UnicodeEncodeError for text that needs `encodable` first."""

    def _touch(self) -> None:
        """Create the output if it does not exist; SinkRefused if it is a file of another format."""
        self._path.open("ab").close()

    def _finish(self, part: OpenPart) -> None:
        part.close()

    def _check(self) -> None:
        try:
            self._touch()
        except OSError as error:
            if may_pass(error):
                raise
            raise SinkRefused(f"The output {self._path} cannot be written: {error.strerror}.") from error

    def _append(self, records: Sequence[Stored], receipt: bytes) -> int:
        """Write a batch; returns where in the part it starts."""
        try:
            lines = self._encoded(records)
        except UnicodeEncodeError:
            lines = self._encoded([encodable(record) for record in records])
        if self._part is None:
            self._part = OpenPart(parts_folder(self._path), self._worker)
        start = self._part.length
        self._part.append(lines, receipt)
        return start

    def _undo(self, written_at: Sequence[int]) -> None:
        if self._part is not None and written_at:
            # If the part cannot be truncated now, it is before the next entry.
            with contextlib.suppress(OSError):
                self._part.truncate(written_at[0])

    def _commit(self, rejected: Collection[RecordKey]) -> None:
        if self._part is not None:
            self._part.commit([(whole(crawl), whole(url)) for crawl, url in rejected])
            if time.monotonic() - self._part.opened_mono >= self.part_seconds or self._part.length >= self.part_bytes:
                self._close_part()

    def _close_if_due(self) -> None:
        part = self._part
        if part is None or not part.committed:
            return
        due_mono = min(self._committed_mono + self.idle_seconds, part.opened_mono + self.part_seconds)
        if time.monotonic() >= due_mono or part.close_requested:
            self._close_part()

    def _close_part(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            self._finish(part)
