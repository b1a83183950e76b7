"""The other Scrapy processes on the store: who is at the same crawl, and which of this machine have died.

A process that was killed cannot give back what it held. A peer on the same machine sees that it is gone and takes it
back at once; elsewhere the leases run out by themselves.
"""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from shoal.frontier import Frontier, mono
from shoal.frontier.workers import WorkerInfo
from shoal.scrapy import unscheduled
from shoal.scrapy.crawl_join import tag_of

_KIND = "scrapy"


class Peers:
    def __init__(self, frontier: Frontier, name: str, since: float) -> None:
        self._frontier = frontier
        self._reaped: set[str] = set()
        # Answers so far, and how many there were at the last beat.
        self.pages = 0
        self._beat_before = (mono(), 0)
        self._info: dict[str, Any] = {
            "kind": _KIND, "name": name, "since": since, "pid": os.getpid(), "machine": platform.node(),
            "boot": _boot(), "started": _started(os.getpid()), "owns": False, "version": _version(),
            "spiders": [tag_of(name), unscheduled.tag_of(frontier.worker)],
        }  # fmt: skip

    async def beat(self) -> list[WorkerInfo]:
        """Say that we live; returns the others at this crawl."""
        now, (then, pages) = mono(), self._beat_before
        self._beat_before = (now, self.pages)
        rate = (self.pages - pages) / max(now - then, 0.1)
        await self._frontier.workers.beat({**self._info, "pages": self.pages, "pages_per_second": rate})
        return await self.others()

    async def others(self) -> list[WorkerInfo]:
        """The others at this crawl. What dead ones of this machine held is taken back."""
        others = []
        for worker in await self._frontier.workers.alive():
            if worker.name == self._frontier.worker or worker.info.get("kind") != _KIND:
                continue
            if self._died(worker):
                if worker.name not in self._reaped:
                    await self._frontier.reap(worker.name)
                    await unscheduled.clear(self._frontier, worker.name)
                    self._reaped.add(worker.name)
            elif worker.info.get("name") == self._info["name"]:
                others.append(worker)
        return others

    async def oldest(self) -> tuple[float, bool]:
        """Since when the oldest live process is at this crawl, and whether it is this one."""
        own = (float(self._info["since"]), self._frontier.worker)
        ages = [(float(worker.info.get("since", 0.0)), worker.name) for worker in await self.beat()]
        first = min([own, *ages])
        return first[0], first == own

    def _died(self, worker: WorkerInfo) -> bool:
        """Only where we can know: the same kernel, the same numbers of processes."""
        boot, pid, started = (worker.info.get(name) for name in ("boot", "pid", "started"))
        if not boot or boot != self._info["boot"] or not isinstance(pid, int):
            return False
        return _started(pid) != started


def _version() -> str:
    try:
        return version("shoal")
    except PackageNotFoundError:
        return "not installed"


def _boot() -> str:
    """This boot of this kernel, and the set of process numbers we see; empty where that cannot be told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _started(pid: int) -> int:
    """When a process began, in ticks since the boot; -1 when there is none, or only what is left of it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return -1 if fields[0] in "ZX" else int(fields[19])
    except (OSError, ValueError, IndexError):
        return -1
