"""What the API knows of the fleet: its workers, and sums over all crawls. /v1/stats and /metrics show it.

Totals of crawls that have ended are read once, so that a call costs what the open crawls cost.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from shoal.frontier import Frontier
from shoal.frontier.deletion import noted
from shoal.frontier.inspect import lease_age_seconds, list_crawls, store_seconds
from shoal.model.crawl import Counts, Crawl, CrawlKind, State

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


async def read_stats(frontier: Frontier, totals: CrawlTotals, lease_seconds: float) -> FleetStats:
    states, counts, spiders = await totals.read()
    ready = cooling = 0
    for spider in spiders:
        at_once, later = await frontier.hosts.waiting(spider)
        ready, cooling = ready + at_once, cooling + later
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
            spiders=[str(one) for one in _list(worker.info, "spiders")], pages=int(number_of(worker.info, "pages")),
            pages_per_second=number_of(worker.info, "pages_per_second"),
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
