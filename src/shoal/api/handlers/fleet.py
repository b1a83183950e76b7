"""The fleet over HTTP: workers, totals, metrics for Prometheus, and whether the server lives and is ready.

Owns the names of metrics. Totals of crawls that have ended are read once; a scrape costs what the open ones cost.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.responses import Response

from shoal.api.problem_details import Json
from shoal.api.request import MOST_A_PAGE, ApiServer, RequestContext, cursor_of
from shoal.errors import ShoalError
from shoal.frontier import Frontier
from shoal.frontier.deletion import noted
from shoal.frontier.inspect import lease_age_seconds, list_crawls, store_seconds
from shoal.model.crawl import Counts, Crawl, CrawlKind, State

_READY_SECONDS = 2.0
_MOST_REASONS = 100
# Counts of a crawl that has ended may still grow for a moment: what was leased ends.
_SETTLED_SECONDS = 120.0


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that was heard of in the last 30 seconds. What an older one does not say is '' or 0."""

    name: str
    seen_seconds_ago: float
    machine: str
    pid: int
    version: str
    spiders: list[str]
    pages: int
    pages_per_second: float


class WorkerPage(msgspec.Struct, frozen=True, kw_only=True):
    """By name. `next` is the cursor of the next page, null on the last one."""

    workers: list[WorkerView]
    next: str | None = None


class FleetStats(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over all crawls that are in the store, and what waits in the whole fleet."""

    crawls: dict[str, int]
    counts: Counts
    workers: int
    pages_per_second: float
    hosts_ready: int
    hosts_cooling: int
    lease_age_seconds: float


class CrawlTotals:
    """Sums over crawls. Those that ended some time ago are not asked for again.

    `ended` has those of deleted ones in it, too, so that it never falls.
    """

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self._settled: dict[str, tuple[str, Counts]] = {}
        self.ended = Counts()

    async def read(self) -> tuple[Counter[str], Counts, set[str]]:
        """Crawls by state, their counts together, and the spiders of those that are open."""
        states: Counter[str] = Counter()
        there, gone = _Sums(), _Sums()
        spiders = {""}
        now = await store_seconds(self._frontier)
        async for _, crawl in list_crawls(self._frontier):
            if crawl.kind is CrawlKind.BRANCH:
                continue
            known = self._settled.get(crawl.id)
            if known is None or known[0] != crawl.state.value:
                known = (crawl.state.value, await self._counts(crawl))
                if not crawl.state.open and now - crawl.ended_at > _SETTLED_SECONDS:
                    self._settled[crawl.id] = known
            if crawl.state is State.DELETED:
                gone.add(known[1])
                continue
            there.add(known[1])
            states[known[0]] += 1
            if crawl.state.open:
                spiders.add(crawl.limits.spider)
        counts = there.counts()
        gone.add(counts)
        self.ended = gone.counts()
        return states, counts, spiders

    async def _counts(self, crawl: Crawl) -> Counts:
        """While one is being deleted, its counts go one after the other: what was noted before holds."""
        counts = Counts() if crawl.state is State.DELETED else await self._frontier.crawls.count(crawl.id)
        return counts if crawl.state.open else await noted(self._frontier.shards, crawl.id) or counts


class _Sums:
    def __init__(self) -> None:
        self._numbers: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()

    def add(self, counts: Counts) -> None:
        told = msgspec.structs.asdict(counts)
        self._reasons.update(told.pop("reasons"))
        self._numbers.update(told)

    def counts(self) -> Counts:
        return Counts(**self._numbers, reasons=dict(self._reasons))


class Fleet:
    """Handlers that remember totals between two requests."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._totals = CrawlTotals(server.frontier)
        self._began = time.monotonic()

    async def stats(self, asked: RequestContext) -> Response:
        return Json(await self._stats())

    async def _stats(self) -> FleetStats:
        frontier = self._server.frontier
        states, counts, spiders = await self._totals.read()
        ready = cooling = 0
        for spider in spiders:
            at_once, later = await frontier.hosts.waiting(spider)
            ready, cooling = ready + at_once, cooling + later
        workers = await _workers(frontier)
        return FleetStats(
            crawls=dict(states), counts=counts, workers=len(workers),
            pages_per_second=sum(worker.pages_per_second for worker in workers),
            hosts_ready=ready, hosts_cooling=cooling,
            lease_age_seconds=await lease_age_seconds(frontier, self._server.settings.frontier.lease_seconds),
        )  # fmt: skip

    async def metrics(self, asked: RequestContext) -> Response:
        stats = await self._stats()
        infos = await self._server.frontier.workers.alive()
        registry = CollectorRegistry()
        registry.register(_Collected(list(_families(stats, infos, self._server.streams, self._totals.ended))))
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    async def ready(self, asked: RequestContext) -> Response:
        """The store answers, in time."""
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await store_seconds(self._server.frontier)
        except (ShoalError, TimeoutError):
            return Json({"ready": False}, 503)
        return Json({"ready": True})


async def health(asked: RequestContext) -> Response:
    return Json({"alive": True})


async def workers(asked: RequestContext) -> Response:
    most = asked.whole("limit", MOST_A_PAGE, MOST_A_PAGE)
    behind: str = asked.cursor(str, "workers") or ""
    left = [worker for worker in await _workers(asked.frontier) if worker.name > behind]
    following = cursor_of(left[most - 1].name, "workers") if len(left) > most else None
    return Json(WorkerPage(workers=left[:most], next=following))


async def _workers(frontier: Frontier) -> list[WorkerView]:
    return [
        WorkerView(
            name=worker.name, seen_seconds_ago=worker.seen_seconds_ago, machine=_text(worker.info, "machine"),
            pid=int(_number(worker.info, "pid")), version=_text(worker.info, "version"),
            spiders=[str(one) for one in _list(worker.info, "spiders")], pages=int(_number(worker.info, "pages")),
            pages_per_second=_number(worker.info, "pages_per_second"),
        )
        for worker in await frontier.workers.alive()
    ]  # fmt: skip


class _Collected:
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def _families(stats: FleetStats, infos: list[Any], streams: int, ended: Counts) -> Iterator[Metric]:
    counts = stats.counts
    crawls = GaugeMetricFamily("shoal_crawls", "Crawls in the store, by state.", labels=["state"])
    for state in State:
        if state is not State.DELETED:
            crawls.add_metric([state.value], stats.crawls.get(state.value, 0))
    yield crawls
    for name, meaning, value in (
        ("shoal_queue_length", "URLs that wait, now or later.", counts.waiting + counts.later),
        ("shoal_visits_leased", "URLs that workers hold.", counts.leased),
        ("shoal_workers", "Workers that were heard of in the last 30 seconds.", stats.workers),
        ("shoal_hosts_ready", "Hosts that may be asked now and wait for a worker.", stats.hosts_ready),
        ("shoal_hosts_cooling", "Hosts that wait for their delay or back-off.", stats.hosts_cooling),
        ("shoal_lease_age_seconds", "Time since the lease was renewed that waits longest.", stats.lease_age_seconds),
        ("shoal_api_streams", "Clients that watch events.", streams),
    ):
        yield GaugeMetricFamily(name, meaning, value=value)
    yield CounterMetricFamily("shoal_pages", "Pages stored, also by crawls that were deleted.", value=ended.stored)
    for word in ("failed", "excluded"):
        family = CounterMetricFamily(f"shoal_{word}", f"URLs that ended as {word}, by reason.", labels=["reason"])
        for reason, count in _reasons(ended.reasons, f"{word}:"):
            family.add_metric([reason], count)
        yield family
    for field, meaning in (
        ("pages", "Pages stored by a worker since it started."),
        ("politeness_seconds", "Time in which a worker had nothing to fetch: hosts cooled down, or nothing waited."),
        ("sink_seconds", "Time in which a worker waited for an output."),
        ("leases_lost", "Leases that a worker lost."),
    ):
        family = CounterMetricFamily(f"shoal_worker_{field}", meaning, labels=["worker", "machine"])
        for worker in infos:
            if field in worker.info:
                family.add_metric([worker.name, _text(worker.info, "machine")], _number(worker.info, field))
        yield family


def _reasons(reasons: dict[str, int], prefix: str) -> list[tuple[str, int]]:
    """The most frequent; the others together, so that a hostile site cannot make metrics without end."""
    mine = Counter({name[len(prefix) :]: count for name, count in reasons.items() if name.startswith(prefix)})
    shown = mine.most_common(_MOST_REASONS)
    rest = mine.total() - sum(count for _, count in shown)
    return [*shown, ("(others)", rest)] if rest else shown


def _text(info: dict[str, Any], name: str) -> str:
    return str(info.get(name, ""))[:200]


def _number(info: dict[str, Any], name: str) -> float:
    value = info.get(name, 0)
    return float(value) if isinstance(value, int | float) and abs(value) < 1e15 else 0.0


def _list(info: dict[str, Any], name: str) -> list[Any]:
    value = info.get(name, [])
    return value[:100] if isinstance(value, list) else []
