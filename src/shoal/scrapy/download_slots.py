"""DOWNLOAD_SLOTS: hosts with their own delay and concurrency. Owns what a crawl has set for hosts in the store.

Scrapy's slots are keyed by a host's name, the store by name and port, so a host is configured when it is first leased.
The setting applies to every crawl that requests the host. The last process that leaves the crawl removes it.
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
        # Hosts whose settings are in the store.
        self._configured: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._slots)

    async def open(self) -> None:
        """Remove the settings of processes that had other DOWNLOAD_SLOTS; some may have been killed."""
        for host in await self._recorded():
            if self._slot(host) is None:
                await self._set(host, None)

    async def accept(self, leases: list[Lease]) -> list[Lease]:
        """The leases that have their host's settings. Leases of a newly configured host are released."""
        if not self._slots:
            return leases
        released = set()
        for host in {lease.host for lease in leases} - self._configured:
            slot = self._slot(host)
            if slot is None:
                continue
            # Recorded first, so that any process of the crawl can remove it.
            await self._frontier.crawls.facts.add_download_slot(self._crawl, host)
            await self._set(host, slot)
            released.add(host)
            self._configured.add(host)
        if released:
            await self._frontier.release([lease for lease in leases if lease.host in released])
        return [lease for lease in leases if lease.host not in released]

    async def open_all(self, host: str) -> None:
        """A host has one slot until its robots.txt is known. A project that ignores robots.txt opens the others."""
        if not (await self._frontier.hosts.get(host)).robots_known:
            await self._frontier.hosts.set_robots(host)

    async def reset(self) -> None:
        """Remove all settings. Called when no process works on the crawl."""
        for host in await self._recorded():
            await self._set(host, None)

    async def _recorded(self) -> list[str]:
        return list((await self._frontier.crawls.facts.read(self._crawl)).download_slots)

    async def _set(self, host: str, slot: Slot | None) -> None:
        await self._frontier.hosts.set_delay(host, None if slot is None else slot.delay_seconds)
        await self._frontier.hosts.set_places(host, None if slot is None else slot.places)

    def _slot(self, host: str) -> Slot | None:
        return self._slots.get(urlsplit(f"//{host}").hostname or "")
