"""A real crawl under faults: worker processes on a real store and a real site, and checks of the result.

    async with open_crawl(folder, pages=300, hosts=6) as crawl:
        name = crawl.start()
        await crawl.requested(50)
        await crawl.kill(name)
        crawl.start()
        await crawl.finish()
        await crawl.judge()

The site's log has every request with its host and time, the outputs have what was stored, the tree has all pages.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from shoal.frontier import Frontier
from shoal.frontier.acknowledgement import replay
from shoal.model import Counts, Limits, Visit
from shoal.model.crawl_spec import CrawlSpec
from shoal.model.worker_report import WorkerReport
from shoal.settings import load
from shoal.sinks import merge
from shoal.worker import crash_marker
from tests.forking import start
from tests.servers import WAIT_SECONDS
from tests.site.judge import Judge
from tests.site.site import Site, serving
from tests.site.tree import Tree

ROOT = Path(__file__).resolve().parents[2]
LONG = os.environ.get("CHAOS_LONG") == "1"
CRAWL = "chaos"
WORKER = (sys.executable, "-m", "shoal.worker")
GRACE_SECONDS = 5.0


@dataclass
class CrawlRun:
    """One crawl of one tree. `settings` are flags of every worker."""

    folder: Path
    site: Site
    tree: Tree
    frontier: Frontier
    settings: dict[str, object]
    delay_seconds: float
    outputs: tuple[Path, ...]
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    started: int = 0
    all: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(
        self,
        *,
        program: Sequence[str] = WORKER,
        settings: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        fork: bool = True,
    ) -> str:
        """Start another worker under a name of its own. Its orders are on stdin, as those of a supervisor."""
        self.started += 1
        name = f"w{self.started}"
        orders = {
            "name": name,
            "settings": {**self.settings, **(settings or {})},
            "crash_marker": str(self._crash_marker(name)),
        }
        with (self.folder / f"{name}.out").open("wb") as out, (self.folder / f"{name}.err").open("wb") as errors:
            process = start(
                *program, stdin=subprocess.PIPE, stdout=out, stderr=errors, environ={**os.environ, **(environ or {})},
                fork=fork,
            )  # fmt: skip
        self.workers[name] = process
        self.all.append(process)
        assert process.stdin is not None
        process.stdin.write(json.dumps(orders).encode() + b"\n")
        process.stdin.flush()
        return name

    async def kill(self, name: str, *, reap: bool = False) -> int:
        """Kill a worker; with `reap`, do what a supervisor does then. Returns the number of unacknowledged visits."""
        process = self.workers.pop(name)
        process.kill()
        return await self.bury(name, process, reap=reap)

    async def bury(self, name: str, process: subprocess.Popen[bytes], *, reap: bool) -> int:
        """Do the same for a worker that died by itself."""
        process.communicate()
        held = await self.held_by(name)
        if reap:
            token, number = crash_marker.read(self._crash_marker(name))
            await self.frontier.reap(name, token=token, number=number)
        return held

    async def held_by(self, name: str) -> int:
        """The number of visits that this worker has leased, according to the store."""
        held = 0
        for prefix in self.frontier.shards.prefixes:
            leases = f"{prefix}leases"
            for token in await self.frontier.shards.store.command("ZRANGE", leases, 0, -1, key=leases):
                if token.decode().endswith(f".{name}"):
                    key = f"{prefix}l:{token.decode()}"
                    fields = await self.frontier.shards.store.command("HKEYS", key, key=key)
                    held += sum(field.isdigit() for field in fields)
        return held

    def freeze(self, name: str) -> None:
        self.workers[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self.workers[name].send_signal(signal.SIGCONT)

    async def stop(self, name: str) -> None:
        """Send SIGTERM as soon as the worker has started, and check that it exits with code 0."""
        await self.until(lambda: self.last_report(name).worker, f"{name} works")
        process = self.workers.pop(name)
        process.terminate()
        try:
            await asyncio.to_thread(process.communicate, timeout=WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise AssertionError(f"{name} does not stop within {WAIT_SECONDS} s: {self.last_report(name)}") from None
        assert process.returncode == 0, f"{name} ended with {process.returncode}: {self.errors(name)}"

    def errors(self, name: str) -> str:
        return (self.folder / f"{name}.err").read_text()[-2000:]

    def last_report(self, name: str) -> WorkerReport:
        """The last complete report of a worker."""
        lines = (self.folder / f"{name}.out").read_bytes().split(b"\n")[:-1]
        return WorkerReport.of(lines[-1]) if lines else WorkerReport()

    def memory_bytes(self, name: str) -> int:
        """The most memory that a worker has used so far."""
        status = Path(f"/proc/{self.workers[name].pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def request_count(self) -> int:
        """The number of requests that the site has received."""
        return self.site.log.read_bytes().count(b'["began"') if self.site.log.exists() else 0

    async def requested(self, count: int, seconds: float = WAIT_SECONDS) -> None:
        await self.until(lambda: self.request_count() >= count, f"{count} requests", seconds)

    async def until(self, true: Callable[[], object], what: str, seconds: float = WAIT_SECONDS) -> None:
        """Wait until `true` returns a true value. If a worker has died, the test fails."""
        deadline = time.monotonic() + seconds
        while not true():
            self.check_workers()
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}. {await self._state()}"
            await asyncio.sleep(0.02)

    def check_workers(self) -> None:
        for name, process in self.workers.items():
            assert process.poll() is None, f"{name} ended with {process.returncode}: {self.errors(name)}"

    async def finished(self) -> bool:
        return await self.frontier.crawls.finished(CRAWL)

    async def finish(self, seconds: float = WAIT_SECONDS) -> None:
        """Wait for the end of the crawl (L4), stop the workers, merge what they wrote.

        It may take longer on a busy machine, but pages are stored within each period of so many seconds.
        """
        deadline, stored = time.monotonic() + seconds, 0
        while not await self.finished():
            self.check_workers()
            if time.monotonic() > deadline:
                before, stored = stored, (await self.counts()).stored
                assert stored > before, f"the crawl has stored nothing for {seconds} s. {await self._state()}"
                deadline = time.monotonic() + seconds
            await asyncio.sleep(0.05)
        await self.stop_workers()

    async def stop_workers(self) -> None:
        await asyncio.gather(*(self.stop(name) for name in list(self.workers)))
        for output in self.outputs:
            await merge(str(output), live=set(), replay=partial(replay, self.frontier.void_batch))

    async def counts(self) -> Counts:
        return await self.frontier.crawls.count(CRAWL)

    async def _state(self) -> str:
        troubles = {name: self.last_report(name).trouble or self.errors(name)[-300:] for name in self.workers}
        return f"{await self.counts()}; {self.request_count()} requests; {troubles}"

    def rows(self, output: Path | None = None) -> list[dict[str, object]]:
        """All rows or lines of an output, the first one unless another is named."""
        path = output or self.outputs[0]
        if not path.exists():
            return []
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in path.read_bytes().splitlines()]
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.row_factory = sqlite3.Row
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'pages'").fetchone():
                return []
            return [dict(row) for row in connection.execute("SELECT * FROM pages")]

    async def judge(self, *, extra: int | None = None, overlaps: int = 0) -> Judge:
        """Check what must be true of every crawl, whatever happened to it.

        `extra` is how many requests more than pages there may be, `overlaps` how often a host may have got a request
        while another one was open: the documented limit for workers frozen in the middle of a transfer.
        """
        judge = self.site.judge(*self.tree.hosts)
        walk = self.tree.walk()
        crowded = judge.crowded()
        assert len(crowded) <= overlaps, f"I1, {len(crowded)} times: {crowded[:3]}"
        if not overlaps:
            hasty = judge.hasty(self.delay_seconds)
            assert not hasty, f"I2, {len(hasty)} times: {hasty[:3]}"
        assert not judge.unannounced()
        for output in self.outputs:
            times = Counter(str(row["url"]) for row in self.rows(output))
            missing = walk - set(times)
            assert not missing, f"I4: {len(missing)} pages are not in {output.name}: {sorted(missing)[:5]}"
            assert set(times) == walk
            twice = {url: count for url, count in times.items() if count > 1}
            assert not twice, f"I8: {len(twice)} pages are more than once in {output.name}: {list(twice)[:5]}"
            assert {row["status"] for row in self.rows(output)} == {200}
        counts = await self.counts()
        assert counts.open == 0, counts
        assert counts.admitted == counts.stored == len(walk), counts
        if extra is not None:
            assert self.extra_requests(judge) <= extra, f"{self.extra_requests(judge)} extra requests, {extra} allowed"
        return judge

    @staticmethod
    def extra_requests(judge: Judge) -> int:
        return sum(times - 1 for url, times in judge.repeated().items() if not url.endswith("/robots.txt"))

    def unreasoned(self, judge: Judge) -> list[str]:
        """I5: URLs with more requests than the attempts in their row. Only where no worker writes late."""
        counts = judge.counts()
        return [
            f"{row['url']} was requested {counts[str(row['url'])]} times, its row says {row['attempt']}"
            for row in self.rows()
            if counts[str(row["url"])] > int(str(row["attempt"]))
        ]

    def _crash_marker(self, name: str) -> Path:
        return self.folder / f"{name}.crash"

    def close(self) -> None:
        for process in self.all:
            if process.poll() is None:
                process.kill()
            process.communicate()


@contextlib.asynccontextmanager
async def open_crawl(
    folder: Path,
    *,
    pages: int,
    hosts: int,
    url: str = "",
    store_folder: Path | None = None,
    delay_seconds: float = 0.1,
    lease_seconds: float = 3.0,
    outputs: Sequence[str] = ("pages.db",),
    output_folder: Path | None = None,
    size: int = 0,
    seeds: int = 1,
    policy: Mapping[str, object] | None = None,
    settings: Mapping[str, object] | None = None,
) -> AsyncIterator[CrawlRun]:
    """A crawl with its first URLs, without workers yet. Without `url` its store is an embedded one."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen: dict[str, object] = {
        "store.url": url or None, "store.folder": str(store_folder or folder / "store"),
        "frontier.lease_seconds": lease_seconds, "frontier.expiries": 200,
        "fetch.allow_networks": "127.0.0.0/8", "worker.grace_seconds": GRACE_SECONDS, **(settings or {}),
    }  # fmt: skip
    with serving(folder, hosts=hosts) as site:
        tree = site.plant(pages, site.take(hosts), size=size)
        frontier = await Frontier.from_settings(load(environ={}, flags=chosen).settings)
        paths = tuple((output_folder or folder) / name for name in outputs)
        first = tuple(tree.url(number) for number in range(seeds))
        spec = CrawlSpec(seeds=first, scope="any", outputs=tuple(map(str, paths)), **(policy or {}))  # type: ignore[arg-type]
        crawl = CrawlRun(folder, site, tree, frontier, chosen, delay_seconds, paths)
        try:
            limits = Limits(delay_seconds=delay_seconds, every=spec.every, budget=spec.budget)
            await frontier.crawls.create(CRAWL, limits, spec=spec.stored())
            await frontier.add(CRAWL, [Visit(url=url, found="seed") for url in first])
            yield crawl
        finally:
            crawl.close()
            await frontier.close()


def stopped(pid: int) -> bool:
    """Whether a process is frozen."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except FileNotFoundError:
        return False
