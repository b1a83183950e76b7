"""Epochs: detects restarts and clock steps of the store, and wakes sleeping workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shoal.errors import StoreError
from shoal.frontier.keys import channel
from shoal.frontier.scripts import Status
from shoal.frontier.shards import Shards, mono
from shoal.store import Subscriber

# A reading of the store's clock older than this is not used: clocks drift.
_READING_SECONDS = 60.0
_STEP_MS = 1000
# As many digits of the server's run id as a token carries.
RUN_DIGITS = 10
_LAG_MS = 2000


class Epochs:
    def __init__(self, shards: Shards, worker: str) -> None:
        self._shards = shards
        self._channel = channel(shards.namespace, worker)
        self._readings: dict[int, tuple[int, float]] = {}
        self._listener: Subscriber | None = None
        self._runs: dict[int, bytes] = {}
        self.epochs = 0
        self.on_turn: list[Callable[[], None]] = []

    def answered(self, shard: int, run: bytes) -> None:
        """Note the server process that a reply of this shard names.

        A process other than the previous one may have lost confirmed writes, whichever worker started the epoch.
        """
        if self._runs.setdefault(shard, run) != run:
            self._runs[shard] = run
            self._turned()

    def _turned(self) -> None:
        self.epochs += 1
        for callback in self.on_turn:
            callback()

    def note(self, shard: int, now_ms: int, called_mono: float) -> None:
        """Record the shard's clock as returned by a call that started at `called_mono`."""
        # The reading of the shorter call is the more precise one.
        if mono() - called_mono < 0.25:
            self._readings[shard] = (now_ms, mono())

    def expected_ms(self, shard: int) -> int | str:
        """The expected time of the shard's clock now, '' when that is not known well enough."""
        reading = self._readings.get(shard)
        if reading is None or self._shards.clock_ms is not None:
            return ""
        passed = mono() - reading[1]
        return reading[0] + round(passed * 1000) if passed < _READING_SECONDS else ""

    async def turn_epoch(self, shard: int, reply: list[Any], lease_ms: int) -> bool:
        """After EPOCH or CLOCK: start a new epoch if one is needed. True when one was started."""
        step = seen = 0
        if reply[0] == Status.CLOCK:
            step, seen = await self._step(shard)
            if step == 0:
                return False
        elif reply[0] != Status.EPOCH:
            raise StoreError(f"The script lease answers with status {reply[0]}: this is a bug in Shoal.")
        safe = int(self._shards.store.durable)
        await self._shards.call("epoch", shard, (safe, lease_ms, _LAG_MS, step, seen), replicated=True)
        self._readings.pop(shard, None)
        self._turned()
        return True

    async def _step(self, shard: int) -> tuple[int, int]:
        """By how many ms the clock was stepped (0: the call was only slow), and in which epoch that was seen."""
        for _ in range(5):
            called = mono()
            expected = self.expected_ms(shard)
            reply = await self._shards.call("clock", shard, ())
            if expected == "":
                return 0, 0
            step = int(reply[1]) - int(expected)
            if abs(step) <= _STEP_MS:
                return 0, 0
            if mono() - called < _STEP_MS / 2000:
                return step, int(reply[2])
        self._readings.pop(shard, None)
        return 0, 0

    async def sleep(self, seconds: float) -> set[int]:
        """Sleep until there may be work; returns the shards that woke us (-1: the connection is new)."""
        if self._listener is None:
            self._listener = self._shards.store.listener(self._channel)
        messages = await self._listener.wait(seconds)
        return {int(message) if message.isdigit() else -1 for message in messages}

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()
