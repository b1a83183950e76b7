"""The lease keeper: renews what a process holds, from a thread with a connection of its own.

A page that takes long to read, or a callback that blocks, holds up the loop but not this thread: no lease runs out.
A lease that cannot be renewed is marked as lost; its holder sees that before it sends anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from shoal.errors import ShoalError
from shoal.frontier import Frontier, mono
from shoal.leases.held_lease import HeldLease
from shoal.settings import Settings

# At a third, one renewal may be lost and the next still comes in time.
_SHARE = 3
_MOST_A_CALL = 200


class LeaseRenewer(threading.Thread):
    def __init__(self, settings: Settings, worker: str, on_trouble: Callable[[str], None]) -> None:
        super().__init__(name="lease keeper", daemon=True)
        self._settings = settings
        self._worker = worker
        self._on_trouble = on_trouble
        self._ttl = settings.frontier.lease_seconds
        self._stopped = threading.Event()
        self.holds: dict[str, HeldLease] = {}

    def keep(self, hold: HeldLease) -> None:
        self.holds[hold.lease.token] = hold

    def drop(self, hold: HeldLease) -> None:
        self.holds.pop(hold.lease.token, None)

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        frontier: Frontier | None = None
        # The connection is made when the first lease is old enough to need it. This loop has nothing else to do, so it
        # may be held up; no other thread is to wait in its place: one of a pool holds up the end of the program.
        while not self._stopped.wait(self._ttl / 12):
            due = self._due()
            if not due:
                continue
            try:
                if frontier is None:
                    frontier = await Frontier.from_settings(self._settings, worker=self._worker)
                for start in range(0, len(due), _MOST_A_CALL):
                    await self._renew(frontier, due[start : start + _MOST_A_CALL])
            except ShoalError as error:
                self._on_trouble(str(error))
        if frontier is not None:
            with contextlib.suppress(ShoalError):
                await frontier.close()

    def _due(self) -> list[HeldLease]:
        before = mono() - self._ttl / _SHARE
        return [hold for hold in list(self.holds.values()) if hold.renewed_mono < before and not hold.lost]

    async def _renew(self, frontier: Frontier, holds: list[HeldLease]) -> None:
        renewed = await frontier.renew([hold.lease for hold in holds])
        for hold, lease in zip(holds, renewed, strict=True):
            if lease is None:
                # It may have been acknowledged in the meantime; then nobody looks at this any more.
                hold.lost = True
            else:
                hold.trusted_until_mono = lease.trusted_until_mono
                hold.renewed_mono = mono()
