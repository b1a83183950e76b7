"""A crawler as a user starts it: its processes, until they end, and their resource usage as the kernel counts it.

CPU is user and system time of the processes and of all children they waited for. The crawled pages and the time are
read from nginx's log, from the first request to the last response, so the time does not include start and exit.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.system.documents import Web

ROOT = Path(__file__).parents[2]
# 8 is wget2's exit code if some links are broken, as on these pages.
_SUCCESS_CODES = (0, 8)


@dataclass
class Run:
    pages: int
    requests: int
    bytes: int
    cpu_seconds: float
    wall_seconds: float
    store_seconds: float = 0.0
    database_seconds: float = 0.0
    # Time until the last page was read, if the crawler reports it: some have many unread pages at the last response.
    read_seconds: float = 0.0

    @property
    def cpu_ms(self) -> float:
        return self.cpu_seconds / self.pages * 1e3

    @property
    def store_ms(self) -> float:
        return self.store_seconds / self.pages * 1e3

    @property
    def per_second(self) -> float:
        return self.pages / self.wall_seconds


def run(
    web: Web,
    commands: list[list[str]],
    folder: Path,
    *,
    seconds: float = 900,
    store_cpu: Callable[[], float] | None = None,
    watch: Callable[[int], None] | None = None,
    tree: Path = ROOT,
) -> Run:
    """Start the commands at the same time and wait for all of them. `watch` is called with the first one's pid.

    `tree` is the checkout of Shoal that the commands import.
    """
    mark = web.mark()
    before = store_cpu() if store_cpu else 0.0
    # As for an installed package. With this variable, e.g. on build machines, every start compiles every module.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = {**kept, "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree)])}
    with (folder / "said").open("w") as log:
        processes = [
            subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )
            for command in commands
        ]  # fmt: skip
        # A crawler that hangs must not hang the benchmark.
        alarm = threading.Timer(seconds, _kill, (processes,))
        alarm.start()
        try:
            if watch:
                watch(processes[0].pid)
            used = [_wait(process) for process in processes]
        finally:
            alarm.cancel()
    if any(process.returncode not in _SUCCESS_CODES for process in processes):
        raise RuntimeError(f"{commands[0][:4]} failed; it said: {(folder / 'said').read_text()[-1000:]}")
    store_seconds = store_cpu() - before if store_cpu else 0.0
    requests = [request for request in web.requests(mark) if request.path != "/robots.txt"]
    pages = {(request.address, request.path) for request in requests if request.is_page}
    if not pages:
        raise RuntimeError(f"{commands[0][:4]} fetched nothing; it said: {(folder / 'said').read_text()[-1000:]}")
    began = min(request.started for request in requests)
    read = max((float(file.read_text()) for file in folder.glob("*.read")), default=began)
    return Run(
        pages=len(pages),
        requests=len(requests),
        bytes=sum(request.bytes for request in requests),
        cpu_seconds=sum(usage.ru_utime + usage.ru_stime for usage in used),
        wall_seconds=max(request.ended for request in requests) - began,
        store_seconds=store_seconds,
        read_seconds=read - began,
    )


def _kill(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()


def _wait(process: subprocess.Popen[bytes]) -> resource.struct_rusage:
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage


def shoal(
    seeds: list[str], folder: Path, *more: str, workers: int, delay: float = 0.0, out: str = "pages.db"
) -> list[str]:
    """The command of a crawl, on the embedded store unless `more` names another."""
    (folder / "seeds").write_text("".join(f"{seed}\n" for seed in seeds))
    return [
        sys.executable, "-m", "shoal", "crawl", "--seeds", "seeds", "--workers", str(workers), "--out", out,
        "--delay", str(delay), "--scope", "host", "--folder", "shoal", "--name", f"bench-{time.monotonic_ns()}",
        "--allow-network", "127.0.0.0/8", "--user-agent", "ShoalBench/1.0 (+https://example.org/bot)", *more,
    ]  # fmt: skip
