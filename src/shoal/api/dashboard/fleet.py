"""The fleet as the dashboard sees it: read at most once a second, and shared by all pages.

Adds to the API's figures those that need earlier readings: rates and workers that have stopped responding. Also adds
warnings for operators.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import NamedTuple

from shoal.api.dashboard.chart import DrawnCharts
from shoal.api.dashboard.rates import CountRates
from shoal.api.fleet_stats import CrawlTotals, FleetStats, WorkerView, list_workers, read_stats
from shoal.api.request import ApiServer
from shoal.frontier.inspect import NodeMemory, blocked_hosts, pending_hosts, store_memory
from shoal.model.crawl import OUTPUT_REFUSED, OUTPUT_UNAVAILABLE, Counts, Crawl, CrawlKind, State

# Crawls on the overview. The page of all crawls has the others.
OPEN_SHOWN, ENDED_SHOWN = 50, 10
# Heartbeats come every ten seconds; a worker whose heartbeat is five seconds late is marked.
LATE_SECONDS = 15.0
# How long a lost worker stays visible.
_LOST_SECONDS = 600.0
_ROUND_SECONDS, _SHARE = 1.0, 0.1
# If a reading takes longer, the next ones are made in the background, and pages show the previous figures.
_QUICK_SECONDS = 0.3
# Interval for figures that are expensive to read.
_SLOW_SECONDS = 10.0
_NEARLY_FULL = 0.8
_CRAWLS_CHECKED = 20


class CrawlProgress(NamedTuple):
    crawl: Crawl
    counts: Counts
    # Pages per second of the last seconds; None before the second reading.
    rate: float | None

    @property
    def total(self) -> int:
        """The work of the crawl, as far as it is known: its URLs, or its page limit if that is lower."""
        limit = self.crawl.limits.max_pages
        return min(self.counts.admitted, limit) if limit else self.counts.admitted

    @property
    def done(self) -> int:
        return min(self.total, self.counts.stored if self.crawl.limits.max_pages else self.counts.ended)

    @property
    def eta_seconds(self) -> float | None:
        """The time left at the current rate. New links make it longer."""
        left = self.total - self.done
        return left / self.rate if self.rate and left and self.crawl.state is State.RUNNING else None


class LostWorker(NamedTuple):
    worker: WorkerView
    # Seconds since 1970, by this machine's clock.
    seen_at: float


class Attention(NamedTuple):
    """A warning, and the page on which to act on it."""

    text: str
    path: str
    bad: bool = False


class FleetView(NamedTuple):
    stats: FleetStats
    workers: list[WorkerView]
    lost: list[LostWorker]
    crawls: list[CrawlProgress]
    memory: list[NodeMemory]
    attention: list[Attention]
    pages_per_second: float
    failures_per_second: float
    bytes_per_second: float


class Fleet:
    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._totals = CrawlTotals(server.frontier)
        self._lock = asyncio.Lock()
        self._view: FleetView | None = None
        self._next_mono = self._slow_mono = self._took_seconds = 0.0
        self._refreshing: asyncio.Task[FleetView] | None = None
        self.rates = CountRates()
        self.charts = DrawnCharts()
        self._settled: dict[str, Counts] = {}
        self._seen: dict[str, WorkerView] = {}
        self._lost: dict[str, LostWorker] = {}
        self._memory: list[NodeMemory] = []
        self._slow_attention: list[Attention] = []

    async def read(self) -> FleetView:
        """Return the latest view of the fleet.

        With thousands of crawls, a reading takes seconds. Then the last view is returned, and a reading is started.
        """
        if self._view is not None and self._took_seconds > _QUICK_SECONDS:
            last = self._refreshing
            if last is None or last.done():
                self._refreshing = asyncio.create_task(self._refresh())
                if last is not None:
                    # Raises the error of the last reading.
                    last.result()
            return self._view
        return await self._refresh()

    async def _refresh(self) -> FleetView:
        async with self._lock:
            started = time.monotonic()
            if self._view is None or started >= self._next_mono:
                self._view = await self._read(started)
                self._took_seconds = took = time.monotonic() - started
                self._next_mono = time.monotonic() + max(_ROUND_SECONDS - took - 0.1, took / _SHARE - took)
            return self._view

    async def _read(self, now: float) -> FleetView:
        frontier = self._server.frontier
        settings = self._server.settings
        stats = await read_stats(
            frontier, self._totals, lease_seconds=settings.frontier.lease_seconds,
            hosts_per_worker=settings.worker.hosts,
        )  # fmt: skip
        shown = await self._shown()
        workers = await list_workers(frontier)
        self._note_workers(workers)
        totals = self._totals.with_deleted
        rows = [CrawlProgress(crawl, counts, self.rates.of(crawl.id, counts.stored, now)) for crawl, counts in shown]
        if now >= self._slow_mono:
            self._memory = await store_memory(frontier)
            self._slow_attention = await self._about_hosts([row.crawl for row in rows])
            self._slow_mono = time.monotonic() + _SLOW_SECONDS
        pages = self.rates.of(" pages", totals.stored, now)
        return FleetView(
            stats=stats, workers=workers, lost=sorted(self._lost.values()), crawls=rows, memory=self._memory,
            attention=[*attention(rows, workers, list(self._lost.values()), self._memory), *self._slow_attention],
            pages_per_second=stats.pages_per_second if pages is None else pages,
            failures_per_second=self.rates.of(" failed", totals.failed, now) or 0.0,
            bytes_per_second=sum(worker.bytes_per_second for worker in workers),
        )  # fmt: skip

    async def _shown(self) -> list[tuple[Crawl, Counts]]:
        """Open crawls, then ended ones, newest first. Counts of an ended crawl are kept once it is idle."""
        opened: list[tuple[Crawl, Counts]] = []
        ended: list[tuple[Crawl, Counts]] = []
        for crawl in self._totals.newest(OPEN_SHOWN, ENDED_SHOWN):
            counts = self._settled.get(crawl.id)
            if counts is None or crawl.state.open:
                fresh = await self._server.frontier.crawls.count(crawl.id)
                if not crawl.state.open and not fresh.open:
                    self._settled[crawl.id] = fresh
                counts = fresh
            (opened if crawl.state.open else ended).append((crawl, counts))
        if len(self._settled) > 10 * ENDED_SHOWN:
            self._settled.clear()
        return opened + ended

    def _note_workers(self, workers: list[WorkerView]) -> None:
        """Find lost workers: a worker that was late and is gone has crashed or lost its connection.

        A worker that stops on purpose reports it.
        """
        now = time.time()
        alive = {worker.name: worker for worker in workers}
        for name, worker in self._seen.items():
            if name not in alive and worker.seen_seconds_ago > LATE_SECONDS / 2:
                self._lost[name] = LostWorker(worker, now - worker.seen_seconds_ago)
        self._seen = alive
        self._lost = {
            name: lost for name, lost in self._lost.items() if name not in alive and now - lost.seen_at < _LOST_SECONDS
        }

    async def _about_hosts(self, crawls: list[Crawl]) -> list[Attention]:
        attentions = []
        if count := await blocked_hosts(self._server.frontier):
            attentions.append(Attention(f"{_count(count, 'host')} blocked by an operator", "/hosts?state=blocked"))
        backing_off: set[str] = set()
        for crawl in [crawl for crawl in crawls if crawl.state is State.RUNNING][:_CRAWLS_CHECKED]:
            backing_off.update(host.host for host in await pending_hosts(self._server.frontier, crawl) if host.paused)
        if backing_off:
            attentions.append(
                Attention(f"{_count(len(backing_off), 'host')} backing off after errors", "/hosts?state=backing-off")
            )
        return attentions


def attention(
    rows: list[CrawlProgress], workers: list[WorkerView], lost: list[LostWorker], memory: list[NodeMemory]
) -> list[Attention]:
    """Return the warnings for an operator, the worst first."""
    attentions: list[Attention] = []
    for row in rows:
        if row.crawl.state is State.PAUSED and row.crawl.why in (OUTPUT_UNAVAILABLE, OUTPUT_REFUSED):
            attentions.append(
                Attention(f"Crawl {row.crawl.id} is paused: {row.crawl.why}", f"/crawls/{row.crawl.id}", True)
            )
    running = [row for row in rows if row.crawl.state is State.RUNNING and row.crawl.kind is not CrawlKind.SCRAPY]
    if running and not workers:
        attentions.append(Attention(f"No worker is alive; {_count(len(running), 'crawl')} waiting", "/workers", True))
    available = {spider for worker in workers for spider in worker.spiders}
    missing = Counter(
        row.crawl.limits.spider
        for row in running
        if row.crawl.limits.spider and row.crawl.limits.spider not in available
    )
    for spider, count in missing.items() if workers else ():
        row = next(row for row in running if row.crawl.limits.spider == spider)
        which = f"crawl {row.crawl.id}" if count == 1 else f"{count} crawls"
        attentions.append(
            Attention(f"No worker has spider {spider}, which {which} needs", f"/crawls/{row.crawl.id}", True)
        )
    late = [worker.name for worker in workers if worker.seen_seconds_ago > LATE_SECONDS]
    if late or lost:
        names = sorted([*late, *(each.worker.name for each in lost)])
        verb = "has" if len(names) == 1 else "have"
        attentions.append(Attention(f"{_count(len(names), 'worker')} {verb} stopped responding", "/workers", True))
    for node in memory:
        if node.limit_bytes and node.used_bytes > _NEARLY_FULL * node.limit_bytes:
            share = node.used_bytes / node.limit_bytes
            attentions.append(Attention(f"The store at {node.server} is {share:.0%} full", "/workers#store", True))
    versions = sorted({worker.version for worker in workers if worker.version})
    if len(versions) > 1:
        attentions.append(Attention(f"Workers run different versions: {', '.join(versions)}", "/workers"))
    return attentions


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
