"""Keeps a number of worker processes at work on one store, and sees to what those that die leave behind.

State      one task for each place; at any time it has at most one process.
Crash      by a signal or an exit code: what the worker held is taken back at once, the visit it was parsing is blamed,
           and another process starts after a pause of 1 s that doubles up to 30 s, and is 1 s again after a minute
           without a crash. Each process has a name of its own, so that no reply meant for a dead one reaches another.
For good   exit code 3, or several starts in a row without a single report. When no place is left, `wait` returns.
End        `stop` lets workers finish what is open; `kill` ends them at once. Nothing is lost either way, nor when the
           supervisor itself is killed: workers find their stdin closed and stop, leftovers.py says what comes then.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shoal.errors import ShoalError
from shoal.fleet.totals import Totals
from shoal.fleet.worker_process import PROGRAM, WorkerProcess, ending
from shoal.frontier import Frontier
from shoal.model import validation
from shoal.model.worker_report import WorkerReport
from shoal.worker.startup import CANNOT_WORK

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
_HEALTHY_SECONDS = 60.0
# Workers that cannot even say what is wrong: a broken installation, no memory for a process.
_FALSE_STARTS = 5
# Beyond its grace a worker needs a moment to give back, flush and exit.
_SLACK_SECONDS = 5.0
# On the way out the store is not waited for: leases run out by themselves.
_REAP_SECONDS = 5.0


class Event(NamedTuple):
    """`report`, `idle`: a worker told its counts, and whether it has nothing to do; `said`: a line it wrote for people;

    `died`, `gone`: one sentence on a process that has ended.
    """

    kind: str
    worker: str
    text: str = ""


class Supervisor:
    """`warm` starts the processes, which load while the caller opens the store; `start` puts them to work."""

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
    ) -> None:
        """`spiders` are names and references that workers load; `plain`: they serve crawls without a spider, too.

        `shared`: a crawl whose output cannot be used is paused, and does not end them.
        """
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
        self._totals = Totals()
        self._running: dict[str, WorkerProcess] = {}
        self._warm: list[WorkerProcess] = []
        self._places: list[asyncio.Task[None]] = []
        self._frontier: Frontier | None = None
        self._stopping = asyncio.Event()

    @property
    def living(self) -> set[str]:
        """The names of the workers whose processes run."""
        return set(self._running)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._running.values()]

    @property
    def reports(self) -> list[WorkerReport]:
        """The last report of each process that runs."""
        return [process.report for process in self._running.values() if process.report is not None]

    def total(self) -> WorkerReport:
        """The sum of all reports, also those of processes that have ended."""
        return self._totals.of(self.reports)

    async def warm(self) -> None:
        """Start the processes, without orders."""
        self._warm = list(await asyncio.gather(*(self._process() for _ in range(self._count))))

    async def start(self, frontier: Frontier) -> None:
        self._frontier = frontier
        if not self._warm:
            await self.warm()
        self._places = [asyncio.create_task(self._fill(process, frontier)) for process in self._warm]

    async def wait(self) -> None:
        """Until all workers are gone for good: each of them said why, or `stop` was called."""
        # Whoever stops waiting for them does not stop them: no gather, which would hand its cancellation on.
        await asyncio.wait(self._places)
        for place in self._places:
            place.result()

    async def stop(self, grace_seconds: float) -> None:
        """Let them finish what is open, for as long as they may; then end those that have not."""
        self._stopping.set()
        for process in self._running.values():
            process.terminate()
        _, late = await asyncio.wait([self._end()], timeout=grace_seconds + _SLACK_SECONDS)
        if late:
            self.kill()
            await asyncio.wait(late)

    def kill(self) -> None:
        """End them at once. `stop` still has to be awaited, by whoever calls it."""
        self._stopping.set()
        for process in self._running.values():
            process.kill()

    def _end(self) -> asyncio.Task[None]:
        async def end() -> None:
            if self._places:
                await asyncio.gather(*self._places, return_exceptions=True)
            else:
                for process in list(self._running.values()):
                    await self._over(process, await process.wait(), None)

        return asyncio.create_task(end())

    async def _fill(self, process: WorkerProcess, frontier: Frontier) -> None:
        """One place: a process, and another one when that has crashed."""
        pause_seconds, false_starts = _FIRST_PAUSE_SECONDS, 0
        while True:
            process.order(self._flags, self._spiders, plain=self._plain, shared=self._shared)
            code = await process.wait()
            await self._over(process, code, frontier)
            if self._stopping.is_set():
                return
            false_starts = 0 if process.report is not None else false_starts + 1
            if code == CANNOT_WORK or false_starts >= _FALSE_STARTS:
                self._tell("gone", process, f"Worker {process.name} ended ({ending(code)}) and is not started again.")
                return
            if process.alive_seconds >= _HEALTHY_SECONDS:
                pause_seconds = _FIRST_PAUSE_SECONDS
            self._tell(
                "died", process, f"Worker {process.name} died ({ending(code)}); another starts in {pause_seconds:g} s."
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_seconds)
                return
            pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)
            try:
                process = await self._process()
            except (OSError, ShoalError) as error:
                self._on_event(Event("gone", self.name, f"No worker can be started ({error})."))
                return
            if self._stopping.is_set():
                # `stop` came while it started and has not seen it.
                process.terminate()

    async def _process(self) -> WorkerProcess:
        self._numbers += 1
        name = f"{self.name}-{self._numbers}"
        process = await WorkerProcess.start(
            name, self._folder, said=self._said, heard=self._heard,
            program=self._program,
        )  # fmt: skip
        self._running[name] = process
        return process

    async def _over(self, process: WorkerProcess, code: int, frontier: Frontier | None) -> None:
        """Take back what a process held that has ended. Reaped after a clean end too: the store forgets its name."""
        del self._running[process.name]
        self._totals.keep(process.report)
        token, number = "", 0
        # One that we ended ourselves was slow to stop; no page is to blame for that.
        if code not in (0, CANNOT_WORK) and not process.killed:
            token, number = process.trace.guilty()
        try:
            if frontier is not None:
                async with asyncio.timeout(_REAP_SECONDS if self._stopping.is_set() else None):
                    await frontier.reap(process.name, token=token, number=number)
            process.trace.end()
        except (ShoalError, TimeoutError) as error:
            why = str(error) or "The store does not answer."
            self._tell("died", process, f"What worker {process.name} held is free when its leases run out: {why}")

    def _heard(self, report: WorkerReport) -> None:
        self._on_event(Event("idle" if report.idle else "report", report.worker))

    def _said(self, worker: str, text: str) -> None:
        self._on_event(Event("said", worker, text))

    def _tell(self, kind: str, process: WorkerProcess, text: str) -> None:
        self._on_event(Event(kind, process.name, text))


def _unique(name: str) -> str:
    """A name that no other supervisor has, whatever the environment calls us."""
    if not name:
        host = re.sub(r"[^A-Za-z0-9_@-]", "-", os.uname().nodename.partition(".")[0])
        name = f"{host[:32]}-{os.getpid()}"
    name = validation.worker(name)[:48]
    return validation.worker(f"{name}-{secrets.token_hex(3)}")
