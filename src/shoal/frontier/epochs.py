"""Epochs: restarts, failovers and clock steps of the store, shard by shard.

The time of a shard never jumps. A worker compares the shard's clock with its own monotonic one: every call carries the
time that the worker expects. A shard whose clock was set, or that another server process serves now, refuses the call,
and the worker starts a new epoch, which corrects the clock (lua/epoch.lua).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from shoal.frontier.shards import Shards

# Linux counts suspended time in BOOTTIME only; on macOS the ordinary monotonic clock does.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
# An older reading of a shard's clock is not used: clocks drift, by 0.3 s in this time at the most.
_READING_SECONDS = 600.0
# The reading of a longer call is not precise enough.
_CALL_SECONDS = 0.25
# A smaller step is not noticed (lua/include/shard.lua).
_STEP_MS = 1000
_LAG_MS = 2000


def mono() -> float:
    """Seconds on a monotonic clock that also runs while the machine is suspended."""
    return time.clock_gettime(_CLOCK)


class Reading(NamedTuple):
    """A reading of a shard's clock: its epoch, its time, and the time of this machine when it was read."""

    epoch: int
    now_ms: int
    read_mono: float


class Epochs:
    """Reached as `shards.epochs`."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._runs: dict[int, bytes] = {}
        # By shard. Threads of one process share them.
        self.readings: dict[int, Reading] = {}
        # The longest lease that this process holds.
        self.lease_ms = 0
        self.count = 0
        # When this worker noticed the last new epoch; at first, when it started.
        self._turned_mono = mono()
        self.on_turn: list[Callable[[], None]] = []

    def answered(self, shard: int, run: bytes) -> None:
        """Note the server process that a reply of this shard names.

        A process other than the previous one may have lost confirmed writes, whichever worker started the epoch.
        """
        if self._runs.setdefault(shard, run) != run:
            self._runs[shard] = run
            self._turned()

    def _turned(self) -> None:
        self.count += 1
        self._turned_mono = mono()
        for callback in self.on_turn:
            callback()

    def lately(self, epoch: int, seconds: float) -> bool:
        """Whether a new epoch may have started in the last `seconds`, in a shard that is in this epoch now."""
        return mono() - self._turned_mono < seconds and (self.count > 0 or epoch > 1)

    def note(self, shard: int, epoch: int, now_ms: int, called_mono: float) -> None:
        """Record the shard's clock as returned by a call that started at `called_mono`."""
        now = mono()
        if now - called_mono < _CALL_SECONDS:
            self.readings[shard] = Reading(epoch, now_ms, now)

    def expected(self, shard: int) -> tuple[int, int] | None:
        """The epoch of the last reading and the time expected now; None without a recent reading."""
        reading = self.readings.get(shard)
        if reading is None:
            return None
        passed = mono() - reading.read_mono
        return (reading.epoch, reading.now_ms + round(passed * 1000)) if passed < _READING_SECONDS else None

    async def turn(self, shard: int) -> None:
        """After EPOCH or CLOCK: start a new epoch if one is needed, and correct the clock."""
        seen, read, step = await self._compare(shard)
        store = self._shards.store
        safe = int(store.durable) * (2 if store.kind == "embedded" else 1)
        reply = await self._shards.call(
            "epoch", shard, (safe, self.lease_ms, _LAG_MS, seen, read, step), replicated=True
        )
        if reply[2] != seen:
            self.readings.pop(shard, None)
            self._runs.pop(shard, None)
            self._turned()

    async def _compare(self, shard: int) -> tuple[int, int | str, int]:
        """The shard's epoch, the epoch of this worker's reading ('' if it has none), and how far the clock is ahead.

        A call that was only slow is not a step: measured again, the clock agrees.
        """
        for _ in range(5):
            called = mono()
            expected = self.expected(shard)
            _, now_ms, epoch, since, doubt = await self._shards.call("clock", shard, ())
            if self._shards.clock_ms is not None:
                return epoch, epoch, 0
            if expected is None or not (expected[0] >= since or 0 <= doubt <= expected[0]):
                break
            if mono() - called < _STEP_MS / 2000:
                step = now_ms - expected[1]
                if abs(step) <= _STEP_MS:
                    # The next reply brings a new reading: should calls always be slow, they are not refused forever.
                    self.readings.pop(shard, None)
                    step = 0
                return epoch, expected[0], step
        self.readings.pop(shard, None)
        return epoch, "", 0
