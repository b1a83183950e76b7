"""A worker: leases hosts, runs a session for each, and delivers the results.

    lease -> session (robots.txt, delay, fetch, process) -> delivery (add, write, acknowledge, commit)

One process, one event loop, hundreds of hosts. It leases no more hosts than its setting allows, and none while the
delivery is full. Stopping loses nothing: open requests finish or their visits are released.
"""

from __future__ import annotations

import asyncio
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from shoal.errors import SettingsError, ShoalError, StoreNotReady
from shoal.fetch import Fetcher, Resolver
from shoal.frontier import Frontier, mono
from shoal.frontier.shard_owners import owned, sample_shards
from shoal.frontier.workers import fitted
from shoal.leases.held_lease import HeldLease
from shoal.leases.lease_size import MOST_VISITS
from shoal.leases.renewer import LeaseRenewer
from shoal.model.crawl import State
from shoal.model.heartbeat import Heartbeat
from shoal.model.lease import Lease
from shoal.model.worker_report import RequestLine, WorkerReport
from shoal.settings import Settings, TelemetrySettings
from shoal.version import __version__
from shoal.worker.crash_marker import CrashMarker
from shoal.worker.crawl_context import CrawlContexts
from shoal.worker.delivery import Delivery
from shoal.worker.host_session import HostSession
from shoal.worker.page_processor import PageProcessor
from shoal.worker.session_resources import SessionResources
from shoal.worker.spider_runner import SpiderRunner

if TYPE_CHECKING:
    from shoal.worker.telemetry import Telemetry

_HOSTS_PER_CALL = 64
# A worker leases from its own shards first, and after this time without a lease from all.
_OWN_SECONDS = 0.075
_WAIT_SECONDS = 10.0
_FIRST_HEARTBEAT_SECONDS, _HEARTBEAT_SECONDS = 0.5, 10.0
_SAMPLE_SECONDS = 0.1
# Beyond the grace time: for an output to take the last pages, and for the store to release the rest.
_LAST_SECONDS = 1.5
# Paused crawls named in a heartbeat, whose size is limited.
_MOST_NAMES = 20
# A spider without a page for this long is closed, if its crawl has ended.
_SPIDER_IDLE_SECONDS = 10.0
# Hosts leased within this time count as in use when the bottleneck is determined.
_IN_USE_SECONDS = 5.0


class Worker:
    def __init__(
        self, frontier: Frontier, settings: Settings, *, spiders: SpiderRunner | None = None, lane: str = "",
        shared: bool = False, crash_marker: str = "", on_report: Callable[[WorkerReport], None] | None = None,
        resolver: Resolver | None = None, on_request: Callable[[RequestLine], None] | None = None,
    ) -> None:  # fmt: skip
        """`lane` is the prefix of spider names whose crawls only this worker serves.

        `shared`: it serves crawls of many users, and pauses one whose output fails. `crash_marker` is the path of the
        file that names the visit being parsed; '' for none. `resolver` replaces the system's name resolution.
        `on_request` is called after each request.
        """
        self._frontier = frontier
        self._settings = settings.worker
        spiders = spiders or SpiderRunner({"": None})
        self._spider_runner = spiders
        self._spiders = tuple(lane + name for name in spiders.names)
        self.report = WorkerReport(worker=frontier.worker, pid=os.getpid())
        self._on_report = on_report
        self._fetcher = Fetcher(settings.fetch, resolver=resolver, on_warning=self._warn, on_request=on_request)
        self._contexts = CrawlContexts(frontier, settings.outputs, self.report.trapped)
        self._telemetry = _telemetry(settings.telemetry, frontier.worker, self.report)
        deliver = Delivery if self._telemetry is None else self._telemetry.delivery
        self._delivery = deliver(frontier, self._contexts, self.report, self._drop, shared=shared)
        # Without a crash marker this is a process of the user's own, which no timer may kill.
        parse_seconds = settings.worker.parse_seconds if crash_marker else 0.0
        marker = CrashMarker(crash_marker, parse_seconds)
        self._resources = SessionResources(
            frontier, self._fetcher, self._contexts, self._delivery,
            PageProcessor(spiders, self._contexts, marker, frontier.worker), self.report,
            settings.frontier.batch_seconds, self._may_stay,
        )  # fmt: skip
        self._renewer = LeaseRenewer(settings, frontier, self._trouble, parsing=lambda: marker.token)
        self._sessions: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._waiting = False
        # The shards that this worker owns; None if it owns all or none, and leases from all.
        self._shards: list[int] | None = None
        self._owned: frozenset[int] = frozenset()
        self._fleet_size = 1
        self._registered = asyncio.Event()
        # When each host was leased last.
        self._leased_mono: dict[str, float] = {}
        self._error: BaseException | None = None
        self._started_mono = mono()
        self._last_heartbeat = (self._started_mono, 0, 0)

    def stop(self) -> None:
        """Lease no more hosts; `run` returns when the open visits are delivered or released."""
        self._stopping.set()
        self._resources.stopping = True
        self._delivery.stop()
        self._registered.set()
        self._freed.set()
        self._frontier.stop_waiting()

    async def run(self) -> None:
        self._renewer.start()
        delivering = asyncio.create_task(self._delivery.run())
        delivering.add_done_callback(self._delivery_done)
        leasing = asyncio.create_task(self._lease_loop())
        stopped = asyncio.create_task(self._stopping.wait())
        watching = [leasing, stopped, asyncio.create_task(self._heartbeat()), asyncio.create_task(self._sample())]
        try:
            # An unavailable store or output delays leasing, but not the shutdown.
            await asyncio.wait((leasing, stopped), return_when=asyncio.FIRST_COMPLETED)
            if leasing.done() and (error := leasing.exception()) is not None:
                self._fail(error)
            ends_mono = mono() + self._settings.grace_seconds
            await self._finish(leasing, ends_mono)
            self._delivery.close()
            await asyncio.wait((delivering,), timeout=max(_LAST_SECONDS, ends_mono - mono()))
        finally:
            for task in (*watching, delivering, *self._sessions):
                task.cancel()
            await asyncio.gather(*watching, delivering, *self._sessions, return_exceptions=True)
            await self._release_rest()
            await self._spider_runner.close(self._crawl_state)
            self._renewer.stop()
            await self._delivery.close_outputs()
            await self._fetcher.close()
            self._publish_report()
            if self._telemetry is not None:
                await asyncio.to_thread(self._telemetry.close)
        if self._error is not None:
            raise self._error

    async def _lease_loop(self) -> None:
        # The first worker would lease everything before the others are known.
        await self._registered.wait()
        while not self._stopping.is_set():
            free = self._settings.hosts - len(self._sessions)
            if free <= 0:
                self._freed.clear()
                await self._freed.wait()
                continue
            await self._delivery.room()
            try:
                leases = await self._lease(min(free, _HOSTS_PER_CALL))
            except StoreNotReady as error:
                self._trouble(str(error))
                await asyncio.sleep(1.0)
                continue
            if (trouble := self._frontier.shard_trouble) or (leases and not self._delivery.backlog):
                self._trouble(trouble)
            for lease in leases:
                self._start_session(lease)

    async def _lease(self, hosts: int) -> list[Lease]:
        self._waiting = True
        try:
            if self._shards is not None:
                leases = await self._frontier.lease(
                    hosts=hosts, visits=MOST_VISITS, spiders=self._spiders, shards=self._shards,
                    wait_seconds=_OWN_SECONDS,
                )  # fmt: skip
                if leases or self._stopping.is_set():
                    return leases
            shards = sample_shards(self._fleet_size, self._frontier.shards.count)
            return await self._frontier.lease(
                hosts=hosts, visits=MOST_VISITS, spiders=self._spiders, shards=shards, wait_seconds=_WAIT_SECONDS
            )
        finally:
            self._waiting = False

    def _start_session(self, lease: Lease) -> None:
        held = HeldLease(lease)
        self._renewer.add(held)
        self.report.leases += 1
        self._leased_mono[lease.host] = now = mono()
        self._resources.eta.note(lease, now)
        session = HostSession if self._telemetry is None else self._telemetry.session
        task = asyncio.create_task(session(self._resources, held).run())
        self._sessions.add(task)
        task.add_done_callback(self._session_done)

    def _may_stay(self, lease: Lease) -> bool:
        """Hosts stay with the owner of their shard, unless this worker has no room for another host."""
        return lease.shard in self._owned and len(self._sessions) < self._settings.hosts and not self._stopping.is_set()

    def _session_done(self, task: asyncio.Task[None]) -> None:
        self._sessions.discard(task)
        self._freed.set()
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, StoreNotReady):
            self._trouble(str(error))
        else:
            self._fail(error)

    def _delivery_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """An unexpected error stops the worker: its leases are released, and the supervisor starts another one."""
        self._error = self._error or error
        self.stop()

    def _drop(self, lease: HeldLease) -> None:
        self._renewer.drop(lease)

    async def _finish(self, leasing: asyncio.Task[None], ends_mono: float) -> None:
        """Let open requests finish within the grace time, then abort them."""
        # Visits of a last lease call are released by their sessions.
        await asyncio.wait((leasing,), timeout=max(0.0, ends_mono - mono()))
        if leasing.done():
            leasing.result()
        if self._sessions:
            await asyncio.wait(set(self._sessions), timeout=max(0.0, ends_mono - mono()))
        for task in self._sessions:
            task.cancel()
        if self._sessions:
            await asyncio.gather(*self._sessions, return_exceptions=True)

    async def _release_rest(self) -> None:
        """Release visits that could not be delivered, instead of waiting for their leases to expire."""
        rest = [lease for lease in list(self._renewer.leases.values()) if not lease.lost]
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                for lease in rest:
                    await self._frontier.release([lease.lease], finished_ago_seconds=lease.finished_ago_seconds)
        except (TimeoutError, ShoalError):
            # The leases expire by themselves.
            return

    async def _heartbeat(self) -> None:
        """Send heartbeats and learn which other workers are alive: shards belong to live workers."""
        # Workers that start together see each other soon.
        pause = _FIRST_HEARTBEAT_SECONDS
        while True:
            try:
                workers = await self._frontier.workers.beat(self._own_heartbeat())
                count = self._frontier.shards.count
                mine = owned(self._frontier.worker, workers, count)
                self._fleet_size = len(workers)
                self._owned = frozenset(mine)
                self._shards = mine if mine and len(mine) < count else None
                await self._spider_runner.close(self._crawl_state, idle_seconds=_SPIDER_IDLE_SECONDS)
            except StoreNotReady as error:
                self._trouble(str(error))
            self._registered.set()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _HEARTBEAT_SECONDS)

    async def _crawl_state(self, crawl: str) -> str:
        """The state of a crawl, as the reason for a spider; '' if it runs, or if the store does not reply."""
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                state = (await self._frontier.crawls.get(crawl)).state
        except (TimeoutError, ShoalError):
            return ""
        return "" if state is State.RUNNING else state.value

    def _own_heartbeat(self) -> Heartbeat:
        report, now = self.report, mono()
        before_mono, pages, received = self._last_heartbeat
        self._last_heartbeat = (now, report.pages, report.bytes)
        seconds = max(now - before_mono, 0.1)
        heartbeat = Heartbeat(
            machine=platform.node(), pid=os.getpid(), spiders=list(self._spiders), version=__version__,
            hosts=self._settings.hosts, pages=report.pages, pages_per_second=(report.pages - pages) / seconds,
            bytes_per_second=(report.bytes - received) / seconds, alive_seconds=now - self._started_mono,
            cpu_seconds=time.process_time(), politeness_seconds=report.politeness_seconds,
            network_seconds=report.network_seconds, sink_seconds=report.sink_seconds,
            store_seconds=report.store_seconds, memory_bytes=_memory_bytes(), open_hosts=len(self._sessions),
            leases_lost=report.leases_lost, paused=self._delivery.health.paused_crawls[:_MOST_NAMES],
            latest=list(self._delivery.latest),
        )  # fmt: skip
        return fitted(heartbeat)

    async def _sample(self) -> None:
        """Sample every tenth of a second what the time is spent on; publish a report every fifth time."""
        last, cpu_last, turn = mono(), time.process_time(), 0
        while True:
            await asyncio.sleep(_SAMPLE_SECONDS)
            self._renewer.tick()
            now, cpu = mono(), time.process_time()
            passed, busy = now - last, cpu - cpu_last
            last, cpu_last = now, cpu
            self._count_time(passed, busy, now)
            turn += 1
            if turn % 5 == 0 or self.report.idle != self._idle:
                self._publish_report()

    def _count_time(self, passed: float, busy: float, now: float) -> None:
        if self._delivery.full:
            self.report.sink_seconds += passed
            return
        # A late sample means that the event loop or the machine was busy, not that this worker waited.
        waited = max(0.0, 2 * _SAMPLE_SECONDS - busy - passed)
        if len(self._leased_mono) > 100:
            self._leased_mono = {
                host: leased for host, leased in self._leased_mono.items() if now - leased < _IN_USE_SECONDS
            }
        fetching = self._resources.fetching
        hosts = max(1, sum(now - leased < _IN_USE_SECONDS for leased in self._leased_mono.values()), fetching)
        network = waited * fetching / hosts
        self.report.network_seconds += network
        self.report.politeness_seconds += waited - network

    @property
    def _idle(self) -> bool:
        return self._waiting and not self._sessions and not self._delivery.backlog

    def _publish_report(self) -> None:
        report = self.report
        report.open_hosts = len(self._sessions)
        report.idle = self._idle
        report.alive_seconds = mono() - self._started_mono
        report.cpu_seconds = time.process_time()
        self._resources.eta.fill(report, mono())
        if self._on_report is not None:
            self._on_report(report)

    def _trouble(self, message: str) -> None:
        self.report.trouble = message

    def _warn(self, text: str) -> None:
        """A supervisor prints a warning once for all of its workers."""
        self.report.warning = text
        if self._on_report is None:
            print(text, file=sys.stderr, flush=True)


def _memory_bytes() -> int:
    """The largest memory that this process has had: kilobytes on Linux, bytes on macOS."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _telemetry(settings: TelemetrySettings, worker: str, report: WorkerReport) -> Telemetry | None:
    """None if nothing is to be sent: then OpenTelemetry is not imported, and nothing is measured."""
    if not settings.url:
        return None
    try:
        from shoal.worker.telemetry import Telemetry
    except ImportError as error:
        raise SettingsError(f"telemetry.url needs {error.name}; run: pip install 'shoal[otel]'.") from None
    return Telemetry(settings, worker, report)
