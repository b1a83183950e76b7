"""The other Scrapy processes of the store: which work on the same crawl, and which of this machine have died.

A killed process cannot release its leases. A peer on the same machine notices that it is gone and reclaims them at
once; on other machines the leases expire.
"""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
from scrapy import Spider

from shoal.frontier import Frontier, mono
from shoal.frontier.workers import WorkerInfo
from shoal.model.heartbeat import Heartbeat
from shoal.operations.scrapy_crawl import tag_of
from shoal.scrapy import unscheduled

_KIND = "scrapy"


class Peers:
    def __init__(self, frontier: Frontier, name: str, spider: str, since: float) -> None:
        self._frontier = frontier
        self._reaped: set[str] = set()
        # Responses so far, and the time and number at the last heartbeat.
        self.pages = 0
        self._last_heartbeat = (mono(), 0)
        self._own = Heartbeat(
            kind=_KIND, name=name, spider=spider, since=since, pid=os.getpid(), machine=platform.node(), boot=_boot(),
            started=_started(os.getpid()), owns=False, version=_version(),
            spiders=[tag_of(name), unscheduled.tag_of(frontier.worker)],
        )  # fmt: skip

    async def heartbeat(self) -> list[WorkerInfo]:
        """Send a heartbeat; returns the other processes of this crawl."""
        now, (then, pages) = mono(), self._last_heartbeat
        self._last_heartbeat = (now, self.pages)
        rate = (self.pages - pages) / max(now - then, 0.1)
        await self._frontier.workers.beat(msgspec.structs.replace(self._own, pages=self.pages, pages_per_second=rate))
        return await self.others()

    async def others(self) -> list[WorkerInfo]:
        """The other processes of this crawl. The leases of dead processes on this machine are reclaimed."""
        others = []
        for worker in await self._frontier.workers.alive():
            heartbeat = worker.heartbeat
            if worker.name == self._frontier.worker or heartbeat.kind != _KIND:
                continue
            if _died(heartbeat):
                if worker.name not in self._reaped:
                    await self._frontier.reap(worker.name)
                    await unscheduled.clear(self._frontier, worker.name)
                    self._reaped.add(worker.name)
            elif heartbeat.name == self._own.name:
                others.append(worker)
        return others

    async def oldest(self) -> tuple[float, bool]:
        """When the oldest live process of this crawl joined, and whether it is this process."""
        own = (self._own.since, self._frontier.worker)
        ages = [(worker.heartbeat.since, worker.name) for worker in await self.heartbeat()]
        first = min([own, *ages])
        return first[0], first == own


async def others_of(frontier: Frontier, spider: Spider) -> list[WorkerInfo]:
    """The other live processes that run a spider of this name, with any arguments."""
    return [
        worker for worker in await frontier.workers.alive()
        if worker.name != frontier.worker and (heartbeat := worker.heartbeat).kind == _KIND
        and heartbeat.spider == spider.name and not _died(heartbeat)
    ]  # fmt: skip


def _died(heartbeat: Heartbeat) -> bool:
    """Whether a process of the same boot and pid namespace is gone. Others cannot be checked."""
    if not heartbeat.boot or heartbeat.boot != _boot() or not heartbeat.pid:
        return False
    return _started(heartbeat.pid) != heartbeat.started


def _version() -> str:
    try:
        return version("shoal")
    except PackageNotFoundError:
        return "not installed"


def _boot() -> str:
    """The boot id and the pid namespace; '' where they are unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _started(pid: int) -> int:
    """When a process started, in ticks since boot; -1 for a missing process or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return -1 if fields[0] in "ZX" else int(fields[19])
    except (OSError, ValueError, IndexError):
        return -1
