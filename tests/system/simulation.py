"""A crawl in virtual time on the real frontier: the estimates of `shoal plan`, simulated.

Workers, web servers and the network are numbers here: a worker handles so many hosts and has one core that
parses so many pages per second, a web server responds after so long. The store is real and its time is computed: it
runs one call after the other, and each takes as long as its calls, leases and pages cost in the benchmarks. Calls
that wait together share a write to the disk, and a call for a lease that finds nothing writes nothing. Leasing,
gaps, turns and shards are those of the frontier, on a clock that jumps from one event to the next. Every page leads to
one new URL of its host, so that the frontier is as full at the end as at the beginning.

`slice_of` plays one part of so many of a fleet: hosts and workers are given as that part has them, shards are divided,
and the store is slower by as much, as if the rest of the fleet used it too. What a worker meets stays the same: hosts
and shards for each worker, and how long it waits for the store, since fewer workers wait for longer calls. So batches
are as large, and rates are those of the whole divided by the same number.

The workers do as `shoal.worker` does: own shards first, another call as soon as a place is free, sleep until the next
host is ready or an acknowledgement wakes one of them, and deliver what has accumulated after 30 ms.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shoal.frontier import Done, Frontier
from shoal.frontier.epochs import mono
from shoal.frontier.lease_calls import LeaseRequest
from shoal.frontier.leasing import LONGEST_SLEEP_SECONDS
from shoal.frontier.shard_owners import owned
from shoal.frontier.shards import DEFAULT_SHARDS, Shards
from shoal.model import Lease, Limits, Visit
from shoal.operations import plan
from shoal.store import Store
from tests.contract.fleet import START_MS, Clock

# As in shoal.worker.worker and shoal.worker.delivery.
HOSTS_A_CALL, VISITS, OWN_SECONDS = 64, 64, 0.075
LINGER_SECONDS, SLACK = 0.03, 1.01
# Figures of docs/reference/benchmarks.md, by their names there: workers make calls at once and share writes to disk.
SHARED_BATCH_SECONDS = 667e-6  # `a batch of one page`, 16 workers at once, without its lease and page
EMPTY_LEASE_SECONDS = 104e-6  # `a lease call that finds nothing`
_CRAWL = "c"


class Timeline:
    """What happens when. `now` is in virtual seconds, and the store's clock follows it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.clock = Clock()
        self._events: list[tuple[float, int, Callable[[], Awaitable[None]]]] = []
        self._numbers = itertools.count()

    def at(self, when: float, do: Callable[[], Awaitable[None]]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), do))

    async def run(self, until: float) -> None:
        while self._events and self._events[0][0] < until:
            self.now, _, do = heapq.heappop(self._events)
            self.clock.ms = START_MS + int(self.now * 1000)
            await do()
        self.now = until


@dataclass
class Tally:
    """The number of calls, leases and pages of the store."""

    calls: int = 0
    empty: int = 0
    leases: int = 0
    pages: int = 0
    busy_seconds: float = 0.0


class Counted:
    """The store, with its calls counted."""

    def __init__(self, store: Store, tally: Tally) -> None:
        self._store = store
        self._tally = tally

    async def call(self, *args: Any, **options: Any) -> Any:
        self._tally.calls += 1
        return await self._store.call(*args, **options)

    async def call_many(self, calls: Sequence[Any], **options: Any) -> list[Any]:
        self._tally.calls += len(calls)
        return await self._store.call_many(calls, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class BusyStore:
    """One server: calls wait for each other, and each takes its time."""

    def __init__(self, timeline: Timeline, tally: Tally, slice_of: int) -> None:
        self._timeline = timeline
        self._slice_of = slice_of
        self._waiting: deque[tuple[Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]]] = deque()
        self._busy = False
        self.tally = tally

    async def ask(self, call: Callable[[], Awaitable[Any]], then: Callable[[Any], Awaitable[None]]) -> None:
        self._waiting.append((call, then))
        if not self._busy:
            await self._next()

    async def _next(self) -> None:
        self._busy = bool(self._waiting)
        if not self._busy:
            return
        call, then = self._waiting.popleft()
        tally = self.tally
        before = (tally.calls, tally.leases, tally.pages, tally.empty)
        result = await call()
        # A batch of the benchmarks is four calls: lease, add, remember, acknowledge.
        batch = SHARED_BATCH_SECONDS if self._waiting else plan.STORE_BATCH_SECONDS
        call_seconds = EMPTY_LEASE_SECONDS if tally.empty > before[3] else batch / 4
        seconds = (
            (tally.calls - before[0]) * call_seconds
            + (tally.leases - before[1]) * plan.STORE_LEASE_SECONDS
            + (tally.pages - before[2]) * plan.STORE_PAGE_SECONDS
        )
        seconds *= self._slice_of
        tally.busy_seconds += seconds

        async def answered() -> None:
            await then(result)
            await self._next()

        self._timeline.at(self._timeline.now + seconds, answered)


class SimulatedWorker:
    def __init__(self, fleet: SimulatedFleet, frontier: Frontier, places: int, page_seconds: float) -> None:
        self._fleet = fleet
        self._timeline = fleet.timeline
        self._frontier = frontier
        self._free = places
        self._page_seconds = page_seconds
        self._core_free_at = 0.0
        self._own: list[int] | None = None
        self._leasing = False
        self._naps = itertools.count()
        self._nap = -1
        # Since when its own shards have had nothing to lease.
        self._since: float | None = None
        self._finished: list[tuple[Lease, Visit, float]] = []
        self._delivering = False

    def own(self, names: Sequence[str], shards: int) -> None:
        mine = owned(self._frontier.worker, names, shards)
        self._own = mine if mine and len(mine) < shards else None

    async def ask(self) -> None:
        """Lease hosts, unless it already does or has no room for them."""
        if self._leasing or self._free <= 0:
            return
        self._leasing, self._nap = True, -1
        alone = self._own is not None and (self._since is None or self._timeline.now < self._since + OWN_SECONDS)
        due = dict.fromkeys(self._frontier._leasing._order(self._own if alone else None), 0.0)
        request = LeaseRequest(min(self._free, HOSTS_A_CALL), VISITS, ("",), False)

        async def call() -> list[Lease]:
            leases = await self._frontier._leasing._round(due, request)
            self._fleet.tally.leases += len(leases)
            self._fleet.tally.empty += not leases
            return leases

        async def then(leases: list[Lease]) -> None:
            self._leasing = False
            self._free -= len(leases)
            for lease in leases:
                await self._visit(lease, 0)
            if leases:
                self._since = None
                await self.ask()
                return
            if self._since is None:
                self._since = self._timeline.now
            sleep = min(LONGEST_SLEEP_SECONDS, max(0.0, min(due.values()) - mono()) + 0.001)
            left = self._since + OWN_SECONDS - self._timeline.now if alone else LONGEST_SLEEP_SECONDS
            await self._sleep(min(sleep, max(0.001, left)))

        await self._fleet.store.ask(call, then)

    async def _sleep(self, seconds: float) -> None:
        self._nap = nap = next(self._naps)
        self._fleet.asleep.append(self)

        async def wake() -> None:
            if self._nap == nap:
                await self.ask()

        self._timeline.at(self._timeline.now + seconds, wake)

    @property
    def sleeps(self) -> bool:
        return self._nap >= 0

    async def _visit(self, lease: Lease, number: int) -> None:
        """The request, then the reading of its page as soon as the core is free."""
        answered_at = self._timeline.now + self._fleet.response

        async def answered() -> None:
            self._core_free_at = max(self._core_free_at, answered_at) + self._page_seconds
            self._timeline.at(self._core_free_at, read)

        async def read() -> None:
            await self._deliver(lease, lease.visits[number], answered_at)
            if number + 1 < len(lease.visits):

                async def gap_over() -> None:
                    await self._visit(lease, number + 1)

                again_at = answered_at + lease.delay_seconds * SLACK
                self._timeline.at(max(self._timeline.now, again_at), gap_over)
            else:
                self._free += 1
                await self.ask()

        self._timeline.at(answered_at, answered)

    async def _deliver(self, lease: Lease, visit: Visit, answered_at: float) -> None:
        self._finished.append((lease, visit, answered_at))
        if not self._delivering:
            self._delivering = True
            self._timeline.at(self._timeline.now + LINGER_SECONDS, self._add)

    async def _add(self) -> None:
        batch, self._finished = self._finished, []
        links = [Visit(url=f"{visit.url}1", depth=0) for _, visit, _ in batch]

        async def call() -> None:
            await self._frontier.add(_CRAWL, links)

        async def then(_: None) -> None:
            await self._acknowledge(batch)

        await self._fleet.store.ask(call, then)

    async def _acknowledge(self, batch: list[tuple[Lease, Visit, float]]) -> None:
        by_lease: dict[str, list[tuple[Lease, Visit, float]]] = {}
        for visit in batch:
            by_lease.setdefault(visit[0].token, []).append(visit)

        async def call() -> None:
            now = self._timeline.now
            self._fleet.tally.pages += len(batch)
            modified = "Sun, 15 Nov 2026 22:21:00 GMT"
            await self._frontier.validators.remember(_CRAWL, [(visit.url, modified) for _, visit, _ in batch])
            await self._frontier.acknowledge_all(
                [
                    Done(
                        lease=visits[0][0], outcomes=[visit.stored() for _, visit, _ in visits],
                        finished_ago_seconds=max(0.0, now - visits[-1][2]), success=True,
                        response_seconds=self._fleet.response, delay_seconds=self._fleet.adaptive,
                    )
                    for visits in by_lease.values()
                ]
            )  # fmt: skip

        async def then(_: None) -> None:
            self._delivering = bool(self._finished)
            if self._delivering:
                self._timeline.at(self._timeline.now + LINGER_SECONDS, self._add)
            await self._fleet.wake()

        await self._fleet.store.ask(call, then)


@dataclass
class SimulatedFleet:
    timeline: Timeline
    tally: Tally
    store: BusyStore
    response: float
    adaptive: float
    asleep: list[SimulatedWorker] = field(default_factory=list)

    async def wake(self) -> None:
        """An acknowledgement wakes the one that fell asleep last."""
        while self.asleep:
            worker = self.asleep.pop()
            if worker.sleeps:
                await worker.ask()
                return


@dataclass
class Simulated:
    """Measurements of a part of a crawl."""

    pages_per_second: float
    store_busy: float
    pages_per_lease: float
    pages_per_call: float
    empty_leases_per_page: float


async def simulate(
    store: Store, *, hosts: int, delay: float, response: float, workers: int, places: int,
    worker_pages_per_second: float, seconds: float, warm_seconds: float,
    slice_of: int = 1, waiting: int = 1, namespace: str = "simulated",
) -> Simulated:  # fmt: skip
    """Play `seconds` of a crawl after `warm_seconds` that are not counted."""
    timeline, tally = Timeline(), Tally()
    shards = DEFAULT_SHARDS // slice_of
    joined = await Shards.found(store, namespace, shards, timeline.clock)
    frontiers = [Frontier(joined, worker=f"w{number}") for number in range(workers)]
    await frontiers[0].crawls.create(_CRAWL, Limits(delay_seconds=delay))
    for start in range(0, hosts, 1000):
        urls = [f"http://host{number}.example/" for number in range(start, min(start + 1000, hosts))]
        await frontiers[0].add(_CRAWL, [f"{url}{number}/" for url in urls for number in range(waiting)])
    joined.store = Counted(store, tally)  # type: ignore[assignment]
    fleet = SimulatedFleet(timeline, tally, BusyStore(timeline, tally, slice_of), response, response if delay else 0.0)
    for frontier in frontiers:
        worker = SimulatedWorker(fleet, frontier, places, 1 / worker_pages_per_second)
        worker.own([frontier.worker for frontier in frontiers], shards)
        timeline.at(0.0, worker.ask)
    await timeline.run(warm_seconds)
    before = replace(tally)
    await timeline.run(warm_seconds + seconds)
    for frontier in frontiers:
        await frontier.close()
    pages = tally.pages - before.pages
    return Simulated(
        pages / seconds,
        (tally.busy_seconds - before.busy_seconds) / seconds,
        pages / max(1, tally.leases - before.leases),
        pages / max(1, tally.calls - before.calls) * 4,
        (tally.empty - before.empty) / pages,
    )
