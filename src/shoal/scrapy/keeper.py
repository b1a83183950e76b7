"""The lease keeper: renews what the process holds, from a thread with a connection of its own.

A callback or pipeline that blocks the reactor holds up everything but this thread, so no lease runs out under it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading

from shoal.errors import ShoalError
from shoal.frontier import Frontier, mono
from shoal.scrapy.place import Place
from shoal.settings import Settings

log = logging.getLogger("shoal.scrapy")
# At a third, one renewal may be lost and the next still comes in time.
_SHARE = 3
_MOST_A_CALL = 200


class LeaseKeeper(threading.Thread):
    def __init__(self, settings: Settings, worker: str) -> None:
        super().__init__(name="lease keeper", daemon=True)
        self._settings = settings
        self._worker = worker
        self._ttl = settings.frontier.lease_seconds
        self._stopped = threading.Event()
        self._places: dict[str, Place] = {}

    def keep(self, place: Place) -> None:
        self._places[place.lease.token] = place

    def drop(self, place: Place) -> None:
        self._places.pop(place.lease.token, None)

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        frontier: Frontier | None = None
        # The connection is made when the first lease is old enough to need it.
        while not await asyncio.to_thread(self._stopped.wait, self._ttl / 12):
            due = self._due()
            if not due:
                continue
            try:
                if frontier is None:
                    frontier = await Frontier.from_settings(self._settings, worker=self._worker)
                for start in range(0, len(due), _MOST_A_CALL):
                    await self._renew(frontier, due[start : start + _MOST_A_CALL])
            except ShoalError as error:
                log.error("Leases cannot be renewed: %s", error)
        if frontier is not None:
            with contextlib.suppress(ShoalError):
                await frontier.close()

    def _due(self) -> list[Place]:
        before = mono() - self._ttl / _SHARE
        return [place for place in list(self._places.values()) if place.renewed_mono < before and not place.lost]

    async def _renew(self, frontier: Frontier, places: list[Place]) -> None:
        renewed = await frontier.renew([place.lease for place in places])
        for place, lease in zip(places, renewed, strict=True):
            if lease is None:
                # It may have been acknowledged in the meantime; then nobody looks at this any more.
                place.lost = True
            else:
                place.trusted_until_mono = lease.trusted_until_mono
                place.renewed_mono = mono()
