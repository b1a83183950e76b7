"""The fleet in numbers: its workers, and totals over all crawls. /v1/stats and /metrics show them.

The counts of an ended crawl are read once and cached, so the cost of a call depends on the number of open crawls.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from shoal.frontier import Frontier
from shoal.frontier.deletion import noted as counts_before_deletion
from shoal.frontier.inspect import lease_age_seconds, list_crawls, store_seconds
from shoal.model.crawl import Counts, Crawl, CrawlKind, State

# The counts of an ended crawl may still change while its last leases end.
_SETTLED_SECONDS = 120.0


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker with a heartbeat in the last 30 seconds. Fields that an older version does not send are '' or 0."""

    name: str
    seen_seconds_ago: Annotated[float, Meta(description="Age of the last heartbeat.")]
    machine: str
    pid: int
    version: str
    spiders: Annotated[list[str], Meta(description="Spiders that the worker has; '' is none.")]
    pages: Annotated[int, Meta(description="Pages stored since the worker started.")]
    pages_per_second: Annotated[float, Meta(description="Pages stored per second, as of the last heartbeat.")]


class FleetStats(msgspec.Struct, frozen=True, kw_only=True):
    """Totals over all crawls in the store, and the state of the fleet."""

    crawls: Annotated[dict[str, int], Meta(description="Crawls by state.")]
    counts: Counts
    workers: Annotated[int, Meta(description="Live workers.")]
    pages_per_second: Annotated[float, Meta(description="Sum over all workers.")]
    hosts_ready: Annotated[int, Meta(description="Hosts that can be requested now.")]
    hosts_cooling: Annotated[int, Meta(description="Hosts that wait for their delay or back-off.")]
    lease_age_seconds: Annotated[float, Meta(description="Age of the oldest unrenewed lease.")]


class CrawlTotals:
    """Totals over crawls. Counts of crawls that ended some time ago are cached."""

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self._settled: dict[str, tuple[str, Counts]] = {}
        # Totals that include deleted crawls, so that they never decrease.
        self.with_deleted = Counts()

    async def read(self) -> tuple[Counter[str], Counts, set[str]]:
        """The number of crawls by state, the sum of their counts, and the spiders of open crawls."""
        states: Counter[str] = Counter()
        present, deleted = _Sums(), _Sums()
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
                deleted.add(known[1])
                continue
            present.add(known[1])
            states[known[0]] += 1
            if crawl.state.open:
                spiders.add(crawl.limits.spider)
        counts = present.counts()
        deleted.add(counts)
        self.with_deleted = deleted.counts()
        return states, counts, spiders

    async def _counts(self, crawl: Crawl) -> Counts:
        """The counts of a crawl. Deletion removes them step by step, so the copy that was saved before it is used."""
        counts = (
            Counts()
            if crawl.state is State.DELETED
            else await self._frontier.crawls.count(crawl.id, all_admissions=True)
        )
        return counts if crawl.state.open else await counts_before_deletion(self._frontier.shards, crawl.id) or counts


class _Sums:
    def __init__(self) -> None:
        self._numbers: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()

    def add(self, counts: Counts) -> None:
        numbers = msgspec.structs.asdict(counts)
        self._reasons.update(numbers.pop("reasons"))
        self._numbers.update(numbers)

    def counts(self) -> Counts:
        return Counts(**self._numbers, reasons=dict(self._reasons))


async def read_stats(frontier: Frontier, totals: CrawlTotals, lease_seconds: float) -> FleetStats:
    states, counts, spiders = await totals.read()
    ready = cooling = 0
    for spider in spiders:
        ready_now, cooling_now = await frontier.hosts.waiting(spider)
        ready, cooling = ready + ready_now, cooling + cooling_now
    workers = await list_workers(frontier)
    return FleetStats(
        crawls=dict(states), counts=counts, workers=len(workers),
        pages_per_second=sum(worker.pages_per_second for worker in workers),
        hosts_ready=ready, hosts_cooling=cooling, lease_age_seconds=await lease_age_seconds(frontier, lease_seconds),
    )  # fmt: skip


async def list_workers(frontier: Frontier) -> list[WorkerView]:
    return [
        WorkerView(
            name=worker.name, seen_seconds_ago=worker.seen_seconds_ago, machine=text_of(worker.info, "machine"),
            pid=int(number_of(worker.info, "pid")), version=text_of(worker.info, "version"),
            spiders=[str(spider) for spider in _list(worker.info, "spiders")],
            pages=int(number_of(worker.info, "pages")), pages_per_second=number_of(worker.info, "pages_per_second"),
        )
        for worker in await frontier.workers.alive()
    ]  # fmt: skip


def text_of(info: dict[str, Any], name: str) -> str:
    return str(info.get(name, ""))[:200]


def number_of(info: dict[str, Any], name: str) -> float:
    value = info.get(name, 0)
    return float(value) if isinstance(value, int | float) and abs(value) < 1e15 else 0.0


def _list(info: dict[str, Any], name: str) -> list[Any]:
    value = info.get(name, [])
    return value[:100] if isinstance(value, list) else []
