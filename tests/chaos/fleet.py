"""Workers of a crawl as real processes: started, killed, frozen, stopped by pid; and checks of what they did."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from shoal.frontier.frontier import Frontier
from shoal.model import Counts, Limits
from tests.chaos.judge import Judge
from tests.chaos.notes import Notes
from tests.chaos.site import Site
from tests.forking import start
from tests.servers import WAIT_SECONDS

ROOT = Path(__file__).parents[2]
LONG = os.environ.get("CHAOS_LONG") == "1"
CRAWL = "chaos"
NAMESPACE = "chaos"


@dataclass
class Fleet:
    """Workers on one store. `options` are those of worker.py."""

    folder: Path
    url: str
    site: Site
    delay_seconds: float
    lease_seconds: float = 2.0
    options: dict[str, float] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    started: int = 0

    def __post_init__(self) -> None:
        self.log, self.sink = self.folder / "log", self.folder / "sink"
        self._notes = Notes(self.log)

    async def sow(self) -> None:
        """Make the crawl and give it its first URL."""
        async with await self.frontier() as frontier:
            await frontier.crawls.create(CRAWL, Limits(delay_seconds=self.delay_seconds))
            assert (await frontier.add(CRAWL, [self.site.url(0)])).new == 1

    async def frontier(self, url: str = "") -> Frontier:
        return await Frontier.open(url or self.url, namespace=NAMESPACE, lease_seconds=self.lease_seconds, shards=4)

    def start(self, *, url: str = "", **options: float) -> str:
        """One more worker, under a name of its own."""
        name = f"w{self.started}"
        self.started += 1
        settings: dict[str, object] = {
            "store": url or self.url, "name": name, "crawl": CRAWL, "namespace": NAMESPACE, "log": self.log,
            "sink": self.sink, "pages": self.site.pages, "hosts": self.site.hosts, "lease-seconds": self.lease_seconds,
            "leases": 4, "visits": 4, "request": 0.003, "pause": 0.0, "delivery": 0.0, **self.options, **options,
        }  # fmt: skip
        argv = [sys.executable, "-m", "tests.chaos.worker"]
        for option, value in settings.items():
            argv += [f"--{option}", str(value)]
        with (self.folder / f"{name}.err").open("wb") as errors:
            self.processes[name] = start(*argv, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
        return name

    def kill(self, name: str) -> None:
        """Kill a worker. Its open requests end with it."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()
        self._notes.write("dead", name)

    def freeze(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGCONT)

    def terminate(self, name: str) -> None:
        """Stop a worker, and check that it exits with code 0."""
        process = self.processes.pop(name)
        process.terminate()
        assert process.wait(10) == 0, self.errors(name)

    def errors(self, name: str) -> str:
        return (self.folder / f"{name}.err").read_text()[-2000:]

    def running(self) -> bool:
        """Whether all workers run; one that failed fails the test."""
        for name, process in self.processes.items():
            assert process.poll() in (None, 0), f"worker {name} failed: {self.errors(name)}"
        return all(process.poll() is None for process in self.processes.values())

    async def noted(self, kind: str, name: str = "", seconds: float = WAIT_SECONDS) -> None:
        """Wait until a worker has noted something."""
        prefix = f"{kind} "
        deadline = time.monotonic() + seconds
        while not any(
            line.startswith(prefix) and (not name or line.split(" ")[2] == name)
            for line in self.log.read_text().splitlines()
        ):
            assert time.monotonic() < deadline, f"{name or 'no worker'} has not noted {kind!r} within {seconds} s"
            await asyncio.sleep(0.02)

    async def finish(self, seconds: float = WAIT_SECONDS) -> None:
        """Wait until every worker has seen the end of the crawl (L4)."""
        deadline = time.monotonic() + seconds
        for name, process in self.processes.items():
            while process.poll() is None:
                assert time.monotonic() < deadline, f"the crawl does not end within {seconds} s; {await self._state()}"
                await asyncio.sleep(0.05)
            assert process.returncode == 0, f"worker {name} failed: {self.errors(name)}"

    async def _state(self) -> str:
        judge = self.verdict()
        return f"{len(judge.missing())} pages are missing, {await self.counts()}"

    async def counts(self) -> Counts:
        async with await self.frontier() as frontier:
            return await frontier.crawls.count(CRAWL)

    def verdict(self) -> Judge:
        for name in [name for name, process in self.processes.items() if process.poll() is None]:
            self.kill(name)
        return Judge(self.log, self.sink, self.site)

    async def judge(self) -> Judge:
        """Check what must be true of every crawl, whatever happened to it."""
        judge = self.verdict()
        wrong = judge.impolite(self.delay_seconds)
        assert not wrong, f"{len(wrong)} times: {wrong[:3]}"
        missing = judge.missing()
        assert not missing, f"I4: {len(missing)} pages are lost: {sorted(missing)[:5]}"
        assert not judge.strange()
        assert not judge.tokens_given_twice()
        counts = await self.counts()
        assert counts.open == 0, counts
        assert counts.admitted == counts.stored == self.site.pages, counts
        return judge

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()


@contextlib.asynccontextmanager
async def fleet(
    folder: Path, url: str, *, pages: int, hosts: int = 12, delay_seconds: float = 0.03, lease_seconds: float = 2.0,
    **options: float,
) -> AsyncIterator[Fleet]:  # fmt: skip
    """A fleet without workers yet, on a crawl with its first URL."""
    folder.mkdir(parents=True, exist_ok=True)
    workers = Fleet(folder, url, Site(pages, hosts), delay_seconds, lease_seconds, options)
    try:
        await workers.sow()
        yield workers
    finally:
        workers.close()
