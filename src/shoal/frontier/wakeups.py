"""Wake-ups: how a script that has work wakes a worker that sleeps."""

from __future__ import annotations

from shoal.frontier.keys import channel
from shoal.frontier.shards import Shards
from shoal.store import Subscriber


class Wakeups:
    def __init__(self, shards: Shards, worker: str) -> None:
        self._store = shards.store
        self._channel = channel(shards.namespace, worker)
        self._subscriber: Subscriber | None = None

    async def sleep(self, seconds: float) -> set[int]:
        """Sleep until there may be work; returns the shards that woke this worker (-1: a new connection)."""
        if self._subscriber is None:
            self._subscriber = self._store.listener(self._channel)
        messages = await self._subscriber.wait(seconds)
        return {int(message) if message.isdigit() else -1 for message in messages}

    async def close(self) -> None:
        if self._subscriber is not None:
            await self._subscriber.close()
