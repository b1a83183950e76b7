"""The calling program: records go to the loop over `shoal.crawl` in the same process, and nowhere else.

Records wait here until their batch is committed, so a rejected record is never delivered. A slow loop slows the crawl:
at most two batches wait for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence

from shoal.errors import SinkRefused
from shoal.model.record import RecordKey
from shoal.sinks.contract import Location, OnTrouble, Stored, Technology

_MOST_BATCHES = 2
_POLL_SECONDS = 0.01


class Channel:
    """From the thread of a crawl to the thread, or the event loop, of the calling program. One user at each end."""

    def __init__(self) -> None:
        self._batches: deque[list[Stored]] = deque()
        self._changed = threading.Condition()
        self._wake: Callable[[], object] | None = None
        self._error: BaseException | None = None
        self._ended = False

    @property
    def full(self) -> bool:
        return len(self._batches) >= _MOST_BATCHES

    def put(self, batch: list[Stored]) -> None:
        self._change(lambda: self._batches.append(batch))

    def end(self, error: BaseException | None = None) -> None:
        """No more batches follow. An error is raised in the calling program."""

        def end() -> None:
            self._ended, self._error = True, self._error or error

        self._change(end)

    def get(self) -> list[Stored] | None:
        """Block until there is a batch; None if no more follow."""
        with self._changed:
            while not self._batches and not self._ended:
                # With a time limit: otherwise Ctrl-C would not interrupt it on some systems.
                self._changed.wait(1.0)
            return self._take()

    async def aget(self) -> list[Stored] | None:
        """Like `get`, for an event loop."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        while True:
            with self._changed:
                if self._batches or self._ended:
                    self._wake = None
                    return self._take()
                woken.clear()
                self._wake = lambda: loop.call_soon_threadsafe(woken.set)
            await woken.wait()

    def _take(self) -> list[Stored] | None:
        if self._batches:
            return self._batches.popleft()
        if self._error is not None:
            raise self._error
        return None

    def _change(self, change: Callable[[], object]) -> None:
        with self._changed:
            change()
            self._changed.notify_all()
            if self._wake is not None:
                self._wake()


# The channels by their URIs, caller:NAME.
CHANNELS: dict[str, Channel] = {}


class IteratorSink:
    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._batch: list[Stored] = []

    async def open(self) -> None:
        if self._uri not in CHANNELS:
            raise SinkRefused(f"The output {self._uri} is the loop of a Python program; run that program again.")

    async def write(self, records: Sequence[Stored], receipt: bytes) -> None:
        self._batch = list(records)

    async def commit(self, rejected: Collection[RecordKey]) -> None:
        channel = CHANNELS.get(self._uri)
        left_out = set(rejected)
        batch = [record for record in self._batch if record.key not in left_out]
        self._batch = []
        if channel is not None and batch:
            # Another thread, which may have no event loop, empties it.
            while channel.full and self._uri in CHANNELS:  # noqa: ASYNC110
                await asyncio.sleep(_POLL_SECONDS)
            channel.put(batch)

    async def hand_over(self) -> None:
        # Yielding a page twice does less harm than not yielding it.
        await self.commit(())

    async def close(self) -> None:
        self._batch = []


class IteratorTechnology(Technology[str]):
    schemes = ("caller",)
    location = Location.CALLER

    def parse(self, uri: str) -> str:
        return uri

    def open(self, address: str, *, worker: str, on_trouble: OnTrouble, spider: bool) -> IteratorSink:
        return IteratorSink(address)


TECHNOLOGY = IteratorTechnology()
