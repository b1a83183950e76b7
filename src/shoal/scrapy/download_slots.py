"""DOWNLOAD_SLOTS: hosts with a delay and places of their own. Owns what a crawl has set for hosts in the store.

Scrapy's slots go by a host's name, the store by its name and port, so a host is set when it is first met. What was set
holds for everybody who asks the host; the last process that leaves the crawl takes it back.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from shoal.frontier import Frontier
from shoal.model.lease import Lease
from shoal.scrapy.scrapy_redis_settings import Slot


class DownloadSlots:
    def __init__(self, frontier: Frontier, crawl_id: str, slots: dict[str, Slot]) -> None:
        self._frontier = frontier
        self._crawl = crawl_id
        self._slots = slots
        # Hosts that have what is theirs.
        self._told: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._slots)

    async def open(self) -> None:
        """Take back what processes with other settings have set: some of them may have been killed."""
        for host in await self._noted():
            if self._of(host) is None:
                await self._set(host, None)

    async def agreed(self, leases: list[Lease]) -> list[Lease]:
        """Of leases those that keep to what is set. A host that is new here goes back, with its places taken anew."""
        if not self._slots:
            return leases
        early = set()
        for host in {lease.host for lease in leases} - self._told:
            slot = self._of(host)
            if slot is None:
                continue
            # Recorded first, so that any process of the crawl can take it back.
            await self._frontier.crawls.facts.add_download_slot(self._crawl, host)
            await self._set(host, slot)
            early.add(host)
            self._told.add(host)
        if early:
            await self._frontier.release([lease for lease in leases if lease.host in early])
        return [lease for lease in leases if lease.host not in early]

    async def take_back(self) -> None:
        """Nobody is at the crawl any more."""
        for host in await self._noted():
            await self._set(host, None)

    async def _noted(self) -> list[str]:
        return list((await self._frontier.crawls.facts.read(self._crawl)).download_slots)

    async def _set(self, host: str, slot: Slot | None) -> None:
        await self._frontier.hosts.set_delay(host, None if slot is None else slot.delay_seconds)
        await self._frontier.hosts.set_places(host, None if slot is None else slot.places)

    def _of(self, host: str) -> Slot | None:
        return self._slots.get(urlsplit(f"//{host}").hostname or "")
