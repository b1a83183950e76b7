"""Release of hosts before or without the acknowledgement of their visits: after a session, and for slow outputs.

Visits that were not made go back to the queue. Visits that wait for their delivery stay leased.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from shoal.errors import StoreError
from shoal.frontier import Frontier
from shoal.leases.held_lease import HeldLease
from shoal.model.lease import Lease
from shoal.model.visit import Visit
from shoal.worker.shard_backlog import ShardBacklog


class HostRelease:
    def __init__(self, frontier: Frontier, shards: ShardBacklog, on_released: Callable[[HeldLease], None]) -> None:
        self._frontier = frontier
        self._shards = shards
        self._on_released = on_released

    async def free(self, leases: Iterable[HeldLease]) -> None:
        """Release hosts whose records wait for an output or a shard. Only their visits stay leased."""
        for lease in leases:
            if lease.closed and not lease.released and not lease.lost:
                await self._release_host(lease, lease.claim)

    async def _release_host(self, lease: HeldLease, claim: Lease) -> None:
        lease.released = True
        # A lease whose shard does not respond expires.
        if lease.lease.shard not in self._shards.unavailable:
            with contextlib.suppress(StoreError):
                await self._shards.unless_stuck(
                    self._frontier.release(
                        [claim], keep=list(lease.open.values()), finished_ago_seconds=lease.finished_ago_seconds
                    )
                )

    async def release(self, closed: list[tuple[HeldLease, list[Visit]]]) -> None:
        """Return visits that were not made. Visits that are delivered but not acknowledged stay leased."""
        for lease, visits in closed:
            claim = lease.claim
            for visit in visits:
                lease.open.pop(visit.number, None)
            if not lease.lost:
                await self._release_host(lease, claim)
            if not lease.open:
                self._on_released(lease)
