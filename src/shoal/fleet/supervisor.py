"""Keeps a number of worker processes running on one store, and reclaims the leases of those that die.

State      one task per worker; at any time it has at most one process.
Crash      by a signal or an exit code: the leases of the worker are reclaimed at once, the crash is counted against the
           visit that it was parsing, and another process starts after a pause. The pause is 1 s, doubles up to 30 s,
           and is 1 s again after a minute without a crash. Each process has its own name, so that no reply to a dead
           one reaches another.
No restart exit code 3, or several starts in a row without a single report. When no worker is left, `wait` returns.
End        `stop` lets workers finish open requests; `kill` ends them at once. Nothing is lost either way, nor when the
           supervisor itself is killed: workers find their stdin closed and stop (worker_files.py has the rest).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shoal.errors import ShoalError
from shoal.fleet.totals import ReportTotals
from shoal.fleet.worker_process import PROGRAM, WorkerProcess, describe_exit
from shoal.frontier import Frontier
from shoal.model import validation
from shoal.model.worker_report import RequestLine, WorkerReport
from shoal.worker.startup import CANNOT_WORK

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
_HEALTHY_SECONDS = 60.0
# Workers that never send a report: a broken installation, no memory for a process.
_FALSE_STARTS = 5
# Beyond its grace time a worker needs a moment to release leases, flush and exit.
_SLACK_SECONDS = 5.0
# At shutdown, do not wait longer for the store: leases expire by themselves.
_REAP_SECONDS = 5.0


class Event(NamedTuple):
    """What happened to a worker.

    report, idle  it published its counters; `idle` if it has nothing to do
    said          `text` is a line that it wrote for people
    died, gone    its process has ended, as `text` describes; `gone` if it is not restarted
    """

    kind: str
    worker: str
    text: str = ""


class Supervisor:
    """`warm` starts the processes, which load while the caller opens the store; `start` lets them work."""

    def __init__(
        self,
        *,
        flags: Mapping[str, Any],
        workers: int,
        folder: Path,
        name: str = "",
        on_event: Callable[[Event], None],
        spiders: Mapping[str, str] | None = None,
        plain: bool = True,
        shared: bool = False,
        program: Sequence[str] = PROGRAM,
        on_request: Callable[[str, RequestLine], None] | None = None,
    ) -> None:
        """`flags` are the settings of the workers, `spiders` names and references of the classes that they load.

        `plain`: they also serve crawls without a spider. `shared`: a crawl whose output fails is paused, and the
        workers continue. `on_request` is called with the worker's name and each of its requests.
        """
        self._on_request = on_request
        self.name = _unique(name)
        self._flags = dict(flags)
        self._spiders = dict(spiders or {})
        self._plain = plain
        self._shared = shared
        self._count = validation.whole("workers", workers, 1, 1000)
        self._folder = folder
        self._on_event = on_event
        self._program = program
        self._numbers = 0
        self._warnings: set[str] = set()
        self._totals = ReportTotals()
        self._running: dict[str, WorkerProcess] = {}
        self._warm: list[WorkerProcess] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._frontier: Frontier | None = None
        self._stopping = asyncio.Event()

    @property
    def live_workers(self) -> set[str]:
        """The names of the workers whose processes run."""
        return set(self._running)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._running.values()]

    @property
    def reports(self) -> list[WorkerReport]:
        """The last report of each process that runs."""
        return [process.report for process in self._running.values() if process.report is not None]

    def silent(self, seconds: float, start_seconds: float) -> set[str]:
        """The names of workers that have not reported for some time; before the first report they have more time."""
        now = time.monotonic()
        return {
            name
            for name, process in self._running.items()
            if now - process.reported_mono > (start_seconds if process.report is None else seconds)
        }

    def total(self) -> WorkerReport:
        """The sum of all reports, also those of processes that have ended."""
        return self._totals.of(self.reports)

    async def warm(self) -> None:
        """Start the processes, without a start-up message."""
        self._warm = list(await asyncio.gather(*(self._process() for _ in range(self._count))))

    async def start(self, frontier: Frontier) -> None:
        self._frontier = frontier
        if not self._warm:
            await self.warm()
        self._tasks = [asyncio.create_task(self._keep_running(process, frontier)) for process in self._warm]

    async def wait(self) -> None:
        """Wait until no worker runs or is restarted: each has reported the reason, or `stop` was called."""
        # Not asyncio.gather(), which would cancel the workers with the caller.
        await asyncio.wait(self._tasks)
        for task in self._tasks:
            task.result()

    async def stop(self, grace_seconds: float) -> None:
        """Let them finish open requests within the grace time, then kill the rest."""
        self._stopping.set()
        for process in self._running.values():
            process.terminate()
        _, late = await asyncio.wait([self._end()], timeout=grace_seconds + _SLACK_SECONDS)
        if late:
            self.kill()
            await asyncio.wait(late)

    def kill(self) -> None:
        """Kill them at once. The caller still has to await `stop`."""
        self._stopping.set()
        for process in self._running.values():
            process.kill()

    def _end(self) -> asyncio.Task[None]:
        async def end() -> None:
            if self._tasks:
                await asyncio.gather(*self._tasks, return_exceptions=True)
            else:
                for process in list(self._running.values()):
                    await self._reclaim(process, await process.wait(), None)

        return asyncio.create_task(end())

    async def _keep_running(self, process: WorkerProcess, frontier: Frontier) -> None:
        """Run one worker: a process, and another one after each crash."""
        pause_seconds, false_starts = _FIRST_PAUSE_SECONDS, 0
        while True:
            process.configure(
                self._flags, self._spiders, plain=self._plain, shared=self._shared,
                log_requests=self._on_request is not None,
            )  # fmt: skip
            code = await process.wait()
            await self._reclaim(process, code, frontier)
            if self._stopping.is_set():
                return
            false_starts = 0 if process.report is not None else false_starts + 1
            if code == CANNOT_WORK or false_starts >= _FALSE_STARTS:
                text = f"Worker {process.name} ended ({describe_exit(code)}) and is not restarted."
                self._emit("gone", process, text)
                return
            if process.alive_seconds >= _HEALTHY_SECONDS:
                pause_seconds = _FIRST_PAUSE_SECONDS
            text = f"Worker {process.name} died ({describe_exit(code)}); restarting in {pause_seconds:g} s."
            self._emit("died", process, text)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_seconds)
                return
            pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)
            try:
                process = await self._process()
            except (OSError, ShoalError) as error:
                self._on_event(Event("gone", self.name, f"Cannot start a worker: {error}"))
                return
            if self._stopping.is_set():
                # `stop` came while it started and has not seen it.
                process.terminate()

    async def _process(self) -> WorkerProcess:
        self._numbers += 1
        name = f"{self.name}-{self._numbers}"
        process = await WorkerProcess.start(
            name, self._folder, on_line=self._on_line, on_report=self._on_report, on_request=self._on_request,
            program=self._program,
        )  # fmt: skip
        self._running[name] = process
        return process

    async def _reclaim(self, process: WorkerProcess, code: int, frontier: Frontier | None) -> None:
        """Reclaim the leases of a process that has ended, also after a clean end: the store then forgets its name."""
        del self._running[process.name]
        self._totals.keep(process.report)
        token, number = "", 0
        # A process that was killed here was slow to stop: no page caused that.
        if code not in (0, CANNOT_WORK) and not process.killed:
            token, number = process.files.crash_marker()
        try:
            if frontier is not None:
                async with asyncio.timeout(_REAP_SECONDS if self._stopping.is_set() else None):
                    await frontier.reap(process.name, token=token, number=number)
            process.files.remove()
        except (ShoalError, TimeoutError) as error:
            reason = str(error) or "The store does not respond."
            text = f"The leases of worker {process.name} stay until they expire: {reason}"
            self._emit("died", process, text)

    def _on_report(self, report: WorkerReport) -> None:
        if report.warning and report.warning not in self._warnings:
            # The workers of one machine have the same problem: one line is enough.
            self._warnings.add(report.warning)
            self._on_line(report.worker, report.warning)
        self._on_event(Event("idle" if report.idle else "report", report.worker))

    def _on_line(self, worker: str, text: str) -> None:
        self._on_event(Event("said", worker, text))

    def _emit(self, kind: str, process: WorkerProcess, text: str) -> None:
        self._on_event(Event(kind, process.name, text))


def _unique(name: str) -> str:
    """A name that no other supervisor has."""
    if not name:
        host = re.sub(r"[^A-Za-z0-9_@-]", "-", os.uname().nodename.partition(".")[0])
        name = f"{host[:32]}-{os.getpid()}"
    name = validation.worker(name)[:48]
    return validation.worker(f"{name}-{secrets.token_hex(3)}")
