"""The fleet in numbers: its workers, and totals over all crawls. /v1/stats and /metrics show them.

The counts of an ended crawl are read once and cached, so the cost of a call depends on the number of open crawls.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Annotated

import msgspec
from msgspec import Meta

from shoal.frontier import Frontier
from shoal.frontier.deletion import erased, total
from shoal.frontier.deletion import noted as counts_before_deletion
from shoal.frontier.inspect import count_leases, lease_age_seconds, list_crawls, store_seconds
from shoal.frontier.workers import WorkerInfo
from shoal.model.crawl import Counts, Crawl, CrawlKind, State
from shoal.model.worker_report import LatestPage

# The counts of an ended crawl may still change while its last leases end.
_SETTLED_SECONDS = 120.0
_TRIES = 3
# Fields that the store provides.
_NOT_IN_HEARTBEAT = ("name", "seen_seconds_ago")


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
    bytes_per_second: Annotated[float, Meta(description="Bytes received per second, as of the last heartbeat.")]
    alive_seconds: Annotated[float, Meta(description="Time since the worker started.")]
    cpu_seconds: Annotated[float, Meta(description="CPU time since the worker started.")]
    politeness_seconds: Annotated[float, Meta(description="Time without a host that may be requested.")]
    network_seconds: Annotated[float, Meta(description="Time in which all leased hosts were waiting for servers.")]
    sink_seconds: Annotated[float, Meta(description="Time that the worker waited for an output.")]
    store_seconds: Annotated[float, Meta(description="Time in slow calls to the store.")]
    memory_bytes: Annotated[int, Meta(description="Largest memory of the process so far.")]
    open_hosts: Annotated[int, Meta(description="Hosts that the worker holds a lease of.")]
    leases_lost: Annotated[int, Meta(description="Leases lost before the worker finished.")]
    latest: Annotated[list[LatestPage], Meta(description="The last pages that the worker stored.")]


class FleetStats(msgspec.Struct, frozen=True, kw_only=True):
    """Totals over all crawls in the store, and the state of the fleet."""

    crawls: Annotated[dict[str, int], Meta(description="Crawls by state.")]
    counts: Counts
    workers: Annotated[int, Meta(description="Live workers.")]
    pages_per_second: Annotated[float, Meta(description="Sum over all workers.")]
    hosts_ready: Annotated[int, Meta(description="Hosts that can be requested now.")]
    hosts_cooling: Annotated[int, Meta(description="Hosts that wait for their delay or back-off.")]
    hosts_leased: Annotated[int, Meta(description="Slots of hosts that workers hold.")]
    lease_age_seconds: Annotated[float, Meta(description="Longest time since a lease was granted or last renewed.")]
    workers_wanted: Annotated[
        int, Meta(description="Number of workers that the available hosts can keep busy; 0 if no crawl has work.")
    ]
    redis_queue_length: Annotated[int, Meta(description="URLs that are waiting, including retries for later.")]


class CrawlTotals:
    """Totals over crawls. Counts of crawls that ended some time ago are cached."""

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self._settled: dict[str, tuple[str, Counts]] = {}
        # Visits of running crawls without a final state.
        self.open = 0
        # Totals that include deleted crawls, so that they never decrease.
        self.with_deleted = Counts()
        self._present: list[Crawl] = []

    def newest(self, opened: int, ended: int) -> list[Crawl]:
        """The newest open and the newest ended crawls of the last `read`."""
        open_crawls = [crawl for crawl in self._present if crawl.state.open]
        ended_crawls = [crawl for crawl in self._present if not crawl.state.open]
        return open_crawls[:opened] + ended_crawls[:ended]

    async def read(self) -> tuple[Counter[str], Counts, set[str]]:
        """The number of crawls by state, the sum of their counts, and the spiders of open crawls."""
        # A crawl that is erased meanwhile must be counted once.
        for _ in range(_TRIES):
            before = await erased(self._frontier.shards)
            sums = await self._read(before)
            if before == await erased(self._frontier.shards):
                break
        return sums

    async def _read(self, sums: list[Counts]) -> tuple[Counter[str], Counts, set[str]]:
        states: Counter[str] = Counter()
        present: list[Counts] = []
        deleted = list(sums)
        spiders = {""}
        open_visits = 0
        crawls: list[Crawl] = []
        now = await store_seconds(self._frontier)
        async for _, crawl in list_crawls(self._frontier):
            if crawl.kind is CrawlKind.BRANCH:
                continue
            known = self._settled.get(crawl.key)
            if known is None or known[0] != crawl.state.value:
                known = (crawl.state.value, await self._counts(crawl))
                if not crawl.state.open and now - crawl.ended_at > _SETTLED_SECONDS:
                    self._settled[crawl.key] = known
            if crawl.state is State.DELETED:
                deleted.append(known[1])
                continue
            present.append(known[1])
            crawls.append(crawl)
            states[known[0]] += 1
            if crawl.state.open:
                spiders.add(crawl.limits.spider)
            if crawl.state is State.RUNNING:
                open_visits += known[1].open
        self._present = crawls
        counts = total(present)
        self.with_deleted = total([*deleted, counts])
        self.open = open_visits
        return states, counts, spiders

    async def _counts(self, crawl: Crawl) -> Counts:
        """The counts of a crawl. Deletion removes them step by step, so the copy that was saved before it is used."""
        counts = (
            Counts()
            if crawl.state is State.DELETED
            else await self._frontier.crawls.count(crawl.id, all_admissions=True)
        )
        return counts if crawl.state.open else await counts_before_deletion(self._frontier.shards, crawl.id) or counts


def workers_wanted(*, open_visits: int, hosts_ready: int, hosts_leased: int, hosts_per_worker: float) -> int:
    """Return the number of workers that can be kept busy by the hosts that can be requested now.

    Hosts that wait for their delay do not count: another worker could not request them any sooner. The result
    is at least one while any visit is open, because hosts become ready again, and 0 without work.
    """
    if not open_visits:
        return 0
    return max(1, math.ceil((hosts_ready + hosts_leased) / hosts_per_worker))


async def read_stats(
    frontier: Frontier, totals: CrawlTotals, *, lease_seconds: float, hosts_per_worker: int
) -> FleetStats:
    """`hosts_per_worker` is used until a worker has reported its own limit."""
    states, counts, spiders = await totals.read()
    ready = cooling = 0
    for spider in spiders:
        ready_now, cooling_now = await frontier.hosts.waiting(spider)
        ready, cooling = ready + ready_now, cooling + cooling_now
    leased = await count_leases(frontier)
    workers = await frontier.workers.alive()
    heartbeats = [worker.heartbeat for worker in workers]
    limits = [heartbeat.hosts for heartbeat in heartbeats if heartbeat.hosts >= 1]
    return FleetStats(
        crawls=dict(states), counts=counts, workers=len(workers),
        pages_per_second=sum(heartbeat.pages_per_second for heartbeat in heartbeats),
        hosts_ready=ready, hosts_cooling=cooling, hosts_leased=leased,
        lease_age_seconds=await lease_age_seconds(frontier, lease_seconds),
        workers_wanted=workers_wanted(
            open_visits=totals.open, hosts_ready=ready, hosts_leased=leased,
            hosts_per_worker=sum(limits) / len(limits) if limits else hosts_per_worker,
        ),
        redis_queue_length=counts.waiting + counts.later,
    )  # fmt: skip


async def list_workers(frontier: Frontier) -> list[WorkerView]:
    return [_view(worker) for worker in await frontier.workers.alive()]


def _view(worker: WorkerInfo) -> WorkerView:
    heartbeat = worker.heartbeat
    published = {
        name: getattr(heartbeat, name) for name in WorkerView.__struct_fields__ if name not in _NOT_IN_HEARTBEAT
    }
    return WorkerView(name=worker.name, seen_seconds_ago=worker.seen_seconds_ago, **published)
