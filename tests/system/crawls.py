"""Runs crawls with real worker processes on a real site, and returns their results.

    with open_crawls(folder, hosts=20, workers=2) as crawls:
        host, = crawls.site.take()
        site.at(host, "/", page("/a"))
        done = crawls.run(f"http://{host}/", delay_seconds=0.1)
        assert done.rows[f"http://{host}/a"]["status"] == 200

The tests of a module share the store, the site and the workers. Each test starts new crawls, on hosts of its own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import itertools
import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from shoal.frontier import Frontier
from shoal.model import Counts, Limits, Visit
from shoal.model.crawl_spec import CrawlSpec
from tests.forking import start
from tests.servers import WAIT_SECONDS
from tests.site.judge import Judge
from tests.site.site import Site, serving

ROOT = Path(__file__).resolve().parents[2]
NETWORKS = "127.0.0.0/8,::1/128"
T = TypeVar("T")


def complete(loop: asyncio.AbstractEventLoop, call: Coroutine[Any, Any, T]) -> T:
    """Run a call on this loop; in another thread if the loop of a browser runs in this one."""
    if asyncio._get_running_loop() is None:
        return loop.run_until_complete(call)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(loop.run_until_complete, call).result()


@dataclass
class CrawlResult:
    """The rows of a crawl by URL, its counts by state and reason, and the judge of the requests to its hosts."""

    rows: dict[str, dict[str, Any]]
    counts: Counts
    judge: Judge


@dataclass
class Crawls:
    """A store with worker processes. Its methods block: a test is a plain function."""

    folder: Path
    site: Site
    frontier: Frontier
    loop: asyncio.AbstractEventLoop
    settings: dict[str, object]
    # Its workers serve many crawls, as those of `shoal worker` do: a crawl whose output is unavailable is paused.
    shared: bool = False
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def do(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a call to the frontier and return its result."""
        return complete(self.loop, call)

    def start_workers(self, count: int) -> None:
        """Start worker processes as the supervisor does. When this returns, all have reported and wait for visits."""
        for _ in range(count):
            name = f"w{len(self.workers) + 1}"
            orders = {
                "name": name, "settings": self.settings, "crash_marker": str(self.folder / f"{name}.crash"),
                "shared": self.shared,
            }  # fmt: skip
            with (self.folder / f"{name}.out").open("wb") as out, (self.folder / f"{name}.err").open("wb") as errors:
                process = start(sys.executable, "-m", "shoal.worker", stdin=subprocess.PIPE, stdout=out, stderr=errors)
            assert process.stdin is not None
            process.stdin.write(json.dumps(orders).encode() + b"\n")
            process.stdin.flush()
            self.workers[name] = process
        self.until(lambda: all((self.folder / f"{name}.out").stat().st_size for name in self.workers), "workers report")

    def begin(
        self, *seeds: str, delay_seconds: float = 0.05, limits: dict[str, Any] | None = None, **policy: Any
    ) -> str:
        """Start a crawl and return its id. `policy` are fields of CrawlSpec."""
        crawl = f"crawl{next(self.numbers)}"
        spec = CrawlSpec(seeds=seeds, outputs=(str(self.folder / f"{crawl}.db"),), **policy).stored()
        self.do(self.frontier.crawls.create(crawl, Limits(delay_seconds=delay_seconds, **(limits or {})), spec=spec))
        added = self.do(self.frontier.add(crawl, [Visit(url=url, found="seed") for url in seeds]))
        assert added.new == len(set(seeds))
        return crawl

    def until(self, true: Callable[[], object], what: str, seconds: float = WAIT_SECONDS) -> None:
        """Wait until `true` returns a true value. If a worker has died, the test fails."""
        deadline = time.monotonic() + seconds
        while not true():
            for name, process in self.workers.items():
                assert process.poll() is None, f"worker {name} ended with {process.returncode}: {self.errors(name)}"
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}. {self.troubles()}"
            time.sleep(0.03)

    def finish(self, crawl: str, *hosts: str, seconds: float = WAIT_SECONDS) -> CrawlResult:
        """Wait for the end of a crawl. `hosts` are those whose requests are judged, by default all of the site."""

        def finished() -> bool:
            return self.do(self.frontier.crawls.finished(crawl))

        try:
            self.until(finished, f"{crawl} finishes", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error} {self.counts(crawl)}") from None
        return CrawlResult(self.rows(crawl), self.counts(crawl), self.site.judge(*hosts))

    def run(self, *seeds: str, hosts: tuple[str, ...] = (), seconds: float = WAIT_SECONDS, **how: Any) -> CrawlResult:
        """Run a whole crawl: `begin` and `finish`. `hosts` are those to judge, by default those of the seeds."""
        named = hosts or tuple(seed.split("/")[2] for seed in seeds)
        return self.finish(self.begin(*seeds, **how), *named, seconds=seconds)

    def counts(self, crawl: str) -> Counts:
        return self.do(self.frontier.crawls.count(crawl))

    def rows(self, crawl: str) -> dict[str, dict[str, Any]]:
        """The rows of the output by their URL. `redirects` is decoded."""
        path = self.folder / f"{crawl}.db"
        if not path.exists():
            return {}
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.row_factory = sqlite3.Row
            records = [dict(row) for row in connection.execute("SELECT * FROM pages")]
        for row in records:
            row["redirects"] = json.loads(row["redirects"])
        assert len({row["url"] for row in records}) == len(records)
        return {row["url"]: row for row in records}

    def errors(self, name: str) -> str:
        return (self.folder / f"{name}.err").read_text()[-2000:]

    def troubles(self) -> str:
        return " ".join(f"{name} says {self.errors(name)!r}." for name in self.workers if self.errors(name))

    def stop_workers(self) -> None:
        """Stop every worker, and check that each exits with code 0."""
        for process in self.workers.values():
            process.send_signal(signal.SIGTERM)
        for name, process in self.workers.items():
            assert process.wait(20) == 0, f"worker {name} ended with {process.returncode}: {self.errors(name)}"

    def close(self) -> None:
        for process in self.workers.values():
            if process.poll() is None:
                process.kill()
            process.communicate()


@contextlib.contextmanager
def open_crawls(
    folder: Path,
    *,
    hosts: int,
    workers: int = 1,
    second_port: bool = False,
    settings: dict[str, object] | None = None,
    shared: bool = False,
) -> Iterator[Crawls]:
    """Start an embedded store, a site of so many hosts, and workers that wait for crawls."""
    loop = asyncio.new_event_loop()
    chosen: dict[str, object] = {
        "store.folder": str(folder / "store"), "fetch.allow_networks": NETWORKS, "worker.grace_seconds": 5,
        **(settings or {}),
    }  # fmt: skip
    with serving(folder, hosts=hosts, second_port=second_port) as site:
        frontier = complete(loop, Frontier.open(folder=str(folder / "store")))
        crawls = Crawls(folder, site, frontier, loop, chosen, shared)
        try:
            crawls.start_workers(workers)
            yield crawls
            crawls.stop_workers()
        finally:
            crawls.close()
            complete(loop, frontier.close())
            loop.close()
