"""The maintenance lock: one process at a time maintains the crawls of a namespace.

The lock expires when its holder is gone. Maintenance may be done twice, so two holders for a short time do no harm.
"""

from __future__ import annotations

from shoal.frontier import keys
from shoal.frontier.frontier import Frontier

LOCK_SECONDS = 5.0


class MaintenanceLock:
    def __init__(self, frontier: Frontier) -> None:
        self._command = frontier.shards.store.command
        self._key = keys.maintenance_lock(frontier.shards.namespace)
        self._holder = frontier.worker

    async def hold(self) -> bool:
        """Acquire or extend the lock; False when another process holds it."""
        lock_ms = round(LOCK_SECONDS * 1000)
        if await self._command("SET", self._key, self._holder, "NX", "PX", lock_ms, key=self._key):
            return True
        if await self._command("GET", self._key, key=self._key) != self._holder.encode():
            return False
        # The lock may have expired since and be held by another process: both then do one round of maintenance.
        await self._command("PEXPIRE", self._key, lock_ms, key=self._key)
        return True
