"""A worker: leases hosts, gives each to a holder, and delivers what comes of it.

    lease -> hold (robots, gap, fetch, read) -> deliver (add, write, acknowledge)

One process, one event loop, hundreds of hosts. It leases only as much as it can take on: places are limited, and with a
full delivery it does not lease at all. Stopping loses nothing: what is open ends or is given back.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

from shoal.errors import ShoalError, StoreHeld, StoreUnavailable
from shoal.fetch import Fetcher, Resolver
from shoal.frontier import Frontier, mono
from shoal.frontier.shard_owners import owned
from shoal.leases.renewer import LeaseRenewer
from shoal.model.lease import Lease
from shoal.model.worker_report import WorkerReport
from shoal.settings import Settings
from shoal.version import __version__
from shoal.worker.crash_marker import CrashMarker
from shoal.worker.crawl_context import CrawlContexts
from shoal.worker.delivery import Delivery
from shoal.worker.hold import Hold
from shoal.worker.host_session import Holders
from shoal.worker.page_processor import PageProcessor
from shoal.worker.spider_runner import SpiderRunner

# Visits of one host that fit into a batch's time, but no more than this.
_VISITS = 64
_HOSTS_A_CALL = 64
# Own shards first; after this time without anything, everybody's.
_OWN_SECONDS = 0.075
_WAIT_SECONDS = 10.0
_FIRST_BEAT_SECONDS, _BEAT_SECONDS = 0.5, 10.0
_SAMPLE_SECONDS = 0.1
# Beyond the grace time, for an output to take the last pages, and for the store to take the rest back.
_LAST_SECONDS = 1.5
# Crawls that a worker says it has paused; what it says of itself has a limit.
_MOST_NAMES = 20
# Hosts that were asked within this time are counted as in use, for what limits the speed.
_IN_USE_SECONDS = 5.0


class Worker:
    def __init__(
        self, frontier: Frontier, settings: Settings, *, spiders: SpiderRunner | None = None, lane: str = "",
        shared: bool = False, blame: str = "", on_report: Callable[[WorkerReport], None] | None = None,
        resolver: Resolver | None = None,
    ) -> None:  # fmt: skip
        """`lane` stands before the names of spiders whose crawls are this worker's alone; `blame` is where its note is.

        `shared`: it serves crawls of many people, and one that cannot be stored is paused. `resolver` finds the
        addresses of names in place of the system's.
        """
        self._frontier = frontier
        self._settings = settings.worker
        spiders = spiders or SpiderRunner({"": None})
        self._spiders = tuple(lane + name for name in spiders.names)
        self.report = WorkerReport(worker=frontier.worker, pid=os.getpid())
        self._on_report = on_report or (lambda _: None)
        self._fetcher = Fetcher(settings.fetch, resolver=resolver, on_warning=_warn)
        self._conducts = CrawlContexts(frontier, settings.outputs, self.report.trapped)
        self._delivery = Delivery(frontier, self._conducts, self.report, self._drop, shared=shared)
        # Without a note nobody is blamed: that is a process of the user's own, which no timer may end.
        parse_seconds = settings.worker.parse_seconds if blame else 0.0
        self._holders = Holders(
            frontier, self._fetcher, self._conducts, self._delivery,
            PageProcessor(spiders, self._conducts, CrashMarker(blame, parse_seconds), frontier.worker), self.report,
            settings.frontier.batch_seconds, self._may_stay,
        )  # fmt: skip
        self._keeper = LeaseRenewer(settings, frontier.worker, self._trouble)
        self._tasks: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._waiting = False
        # Those that are ours; None: we may as well ask all, since all or none are.
        self._shards: list[int] | None = None
        self._owned: frozenset[int] = frozenset()
        self._known = asyncio.Event()
        self._asked: dict[str, float] = {}
        self._broken: BaseException | None = None
        self._started_mono = mono()
        self._beat_before = (self._started_mono, 0)

    def stop(self) -> None:
        """Lease nothing more and come to an end; `run` returns when that is done."""
        self._stopping.set()
        self._holders.stopping = True
        self._delivery.stop()
        self._known.set()
        self._freed.set()
        self._frontier.stop_waiting()

    async def run(self) -> None:
        self._keeper.start()
        delivering = asyncio.create_task(self._delivery.run())
        delivering.add_done_callback(self._delivery_done)
        leasing = asyncio.create_task(self._lease_all())
        stopped = asyncio.create_task(self._stopping.wait())
        watching = [leasing, stopped, asyncio.create_task(self._beat()), asyncio.create_task(self._sample())]
        try:
            # A store or an output that is away holds leasing up, but not the end.
            await asyncio.wait((leasing, stopped), return_when=asyncio.FIRST_COMPLETED)
            if leasing.done() and (error := leasing.exception()) is not None:
                self._break(error)
            ends_mono = mono() + self._settings.grace_seconds
            await self._finish(leasing, ends_mono)
            self._delivery.close()
            await asyncio.wait((delivering,), timeout=max(_LAST_SECONDS, ends_mono - mono()))
        finally:
            for task in (*watching, delivering, *self._tasks):
                task.cancel()
            await asyncio.gather(*watching, delivering, *self._tasks, return_exceptions=True)
            await self._give_back_rest()
            self._keeper.stop()
            await self._delivery.close_outputs()
            await self._fetcher.close()
            self._tell()
        if self._broken is not None:
            raise self._broken

    async def _lease_all(self) -> None:
        # Who came first would take everything before the others have said that they live.
        await self._known.wait()
        while not self._stopping.is_set():
            free = self._settings.hosts - len(self._tasks)
            if free <= 0:
                self._freed.clear()
                await self._freed.wait()
                continue
            await self._delivery.room()
            try:
                leases = await self._lease(min(free, _HOSTS_A_CALL))
            except (StoreUnavailable, StoreHeld) as error:
                self._trouble(str(error))
                await asyncio.sleep(1.0)
                continue
            if leases and not self._delivery.backlog:
                self._trouble("")
            for lease in leases:
                self._take(lease)

    async def _lease(self, hosts: int) -> list[Lease]:
        self._waiting = True
        try:
            if self._shards is not None:
                leases = await self._frontier.lease(
                    hosts=hosts, visits=_VISITS, spiders=self._spiders, shards=self._shards, wait_seconds=_OWN_SECONDS
                )
                if leases or self._stopping.is_set():
                    return leases
            return await self._frontier.lease(
                hosts=hosts, visits=_VISITS, spiders=self._spiders, wait_seconds=_WAIT_SECONDS
            )
        finally:
            self._waiting = False

    def _take(self, lease: Lease) -> None:
        hold = Hold(lease)
        self._keeper.keep(hold)
        self.report.leases += 1
        self._asked[lease.host] = now = mono()
        self._holders.outlook.note(lease, now)
        task = asyncio.create_task(self._holders.hold(hold))
        self._tasks.add(task)
        task.add_done_callback(self._holder_done)

    def _may_stay(self, lease: Lease) -> bool:
        """Hosts stay with whoever owns their shard, unless another one waits for a place in this worker."""
        return lease.shard in self._owned and len(self._tasks) < self._settings.hosts and not self._stopping.is_set()

    def _holder_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._freed.set()
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, StoreUnavailable | StoreHeld):
            self._trouble(str(error))
        else:
            self._break(error)

    def _delivery_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._break(error)

    def _break(self, error: BaseException) -> None:
        """An error that nobody expected ends the worker: its leases are given back, and it is started anew."""
        self._broken = self._broken or error
        self.stop()

    def _drop(self, hold: Hold) -> None:
        self._keeper.drop(hold)

    async def _finish(self, leasing: asyncio.Task[None], ends_mono: float) -> None:
        """Let open requests end within the grace time, then abort them."""
        # What a last call still brings is given back by its holder.
        await asyncio.wait((leasing,), timeout=max(0.0, ends_mono - mono()))
        if leasing.done():
            leasing.result()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=max(0.0, ends_mono - mono()))
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _give_back_rest(self) -> None:
        """What could not be delivered waits again at once, not only when its lease is over."""
        rest = [hold for hold in list(self._keeper.holds.values()) if not hold.lost]
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                for hold in rest:
                    await self._frontier.release([hold.lease], finished_ago_seconds=hold.finished_ago_seconds)
        except (TimeoutError, ShoalError):
            # Their leases run out by themselves.
            return

    async def _beat(self) -> None:
        """Say that we live, and learn who else does: shards belong to live workers."""
        # Workers that start together learn of each other soon.
        pause = _FIRST_BEAT_SECONDS
        while True:
            try:
                workers = await self._frontier.workers.beat(self._info())
                count = self._frontier.shards.count
                mine = owned(self._frontier.worker, workers, count)
                self._owned = frozenset(mine)
                self._shards = mine if mine and len(mine) < count else None
            except (StoreUnavailable, StoreHeld) as error:
                self._trouble(str(error))
            self._known.set()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _BEAT_SECONDS)

    def _info(self) -> dict[str, Any]:
        """What the others and people are told of this worker."""
        report, now = self.report, mono()
        then, pages = self._beat_before
        self._beat_before = (now, report.pages)
        return {
            "machine": platform.node(), "pid": os.getpid(), "spiders": list(self._spiders), "version": __version__,
            "pages": report.pages, "pages_per_second": (report.pages - pages) / max(now - then, 0.1),
            "politeness_seconds": report.politeness_seconds, "sink_seconds": report.sink_seconds,
            "leases_lost": report.leases_lost, "paused": self._delivery.absent.crawls[:_MOST_NAMES],
        }  # fmt: skip

    async def _sample(self) -> None:
        """Where the time goes, looked at ten times a second; a report every fifth time."""
        last, cpu_last, turn = mono(), time.process_time(), 0
        while True:
            await asyncio.sleep(_SAMPLE_SECONDS)
            now, cpu = mono(), time.process_time()
            passed, busy = now - last, cpu - cpu_last
            last, cpu_last = now, cpu
            self._note_time(passed, busy, now)
            turn += 1
            if turn % 5 == 0 or self.report.idle != self._idle:
                self._tell()

    def _note_time(self, passed: float, busy: float, now: float) -> None:
        if self._delivery.full:
            self.report.sink_seconds += passed
            return
        # A sample that comes late means that the loop, or the whole machine, was busy: that is no waiting.
        waited = max(0.0, 2 * _SAMPLE_SECONDS - busy - passed)
        if len(self._asked) > 100:
            self._asked = {host: when for host, when in self._asked.items() if now - when < _IN_USE_SECONDS}
        hosts = max(1, sum(now - when < _IN_USE_SECONDS for when in self._asked.values()), self._holders.fetching)
        network = waited * self._holders.fetching / hosts
        self.report.network_seconds += network
        self.report.politeness_seconds += waited - network

    @property
    def _idle(self) -> bool:
        return self._waiting and not self._tasks and not self._delivery.backlog

    def _tell(self) -> None:
        report = self.report
        report.open_hosts = len(self._tasks)
        report.idle = self._idle
        report.alive_seconds = mono() - self._started_mono
        report.cpu_seconds = time.process_time()
        self._holders.outlook.tell(report, mono())
        self._on_report(report)

    def _trouble(self, sentence: str) -> None:
        self.report.trouble = sentence


def _warn(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
