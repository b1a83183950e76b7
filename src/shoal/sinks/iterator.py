"""The caller: records go to whoever iterates over `shoal.crawl`, in the same process, and nowhere else.

Records wait here until their batch is settled, so one that was refused is never seen. A caller who is slow makes the
crawl slow: at most two batches wait for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence

from shoal.errors import SinkRefused
from shoal.sinks.contract import Key, Stored

_MOST_BATCHES = 2
_LOOK_AGAIN_SECONDS = 0.01


class Channel:
    """From the thread of a crawl to the thread, or the event loop, of its caller. One end each."""

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
        self._tell(lambda: self._batches.append(batch))

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more comes, perhaps because of an error, which the caller gets."""

        def end() -> None:
            self._ended, self._error = True, self._error or error

        self._tell(end)

    def get(self) -> list[Stored] | None:
        """The next batch; None when there is none any more. It blocks."""
        with self._changed:
            while not self._batches and not self._ended:
                # Without an end, or Ctrl-C would not get through on some systems.
                self._changed.wait(1.0)
            return self._take()

    async def aget(self) -> list[Stored] | None:
        """The same for an event loop."""
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

    def _tell(self, change: Callable[[], object]) -> None:
        with self._changed:
            change()
            self._changed.notify_all()
            if self._wake is not None:
                self._wake()


# By their outputs, as caller:name.
CHANNELS: dict[str, Channel] = {}


class IteratorSink:
    def __init__(self, name: str, *, worker: str, on_trouble: Callable[[str], None], spider: bool) -> None:
        self._name = name
        self._batch: list[Stored] = []

    async def open(self) -> None:
        if self._name not in CHANNELS:
            raise SinkRefused(
                f"The output {self._name} is a Python program that iterates over its crawl; run that program again."
            )

    async def write(self, records: Sequence[Stored], receipt: bytes) -> None:
        self._batch = list(records)

    async def settle(self, refused: Collection[Key]) -> None:
        channel = CHANNELS.get(self._name)
        gone = set(refused)
        batch = [record for record in self._batch if record.key not in gone]
        self._batch = []
        if channel is not None and batch:
            # It empties in another thread, which may have no event loop.
            while channel.full and self._name in CHANNELS:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            channel.put(batch)

    async def close(self) -> None:
        self._batch = []
