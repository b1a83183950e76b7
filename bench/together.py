"""The cost to the store of calls that several workers make at the same time.

Calls that arrive together share a write to the disk, so a small batch is cheaper than if one worker makes one call
after the other (bench/polite.py). A call for a lease that finds no host writes nothing; a fleet with more workers than
hosts makes many of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bench.cost import Cost, metered
from bench.figures import Figure
from bench.server import Server
from bench.size import Size
from bench.workload import CRAWL, Workload
from shoal import Done, Frontier

_HOSTS = 20_000
_WORKERS, _TIMES = 16, 40
_MODIFIED = "Sun, 15 Nov 2026 22:21:00 GMT"


async def together(size: Size) -> list[Figure]:
    waiting = size.of(200_000)
    with Server(durable=False) as server:
        async with await Workload.open(server) as workload:
            server.persist()
            empty = [await _fleet(workload, _lease_nothing) for _ in range(size.repeats)]
            await workload.fill(waiting, _HOSTS)
            batches = [await _fleet(workload, _batch_of_one) for _ in range(size.repeats)]
    note = f"{_WORKERS} workers at once"
    return [
        Figure(
            name="a batch of one page: server CPU", unit="us", values=[cost.server_us for cost in batches],
            note=f"{note}, {waiting:,} waiting: lease, add, remember, acknowledge",
        ),
        Figure(
            name="a lease call that finds nothing: server CPU", unit="us",
            values=[cost.server_seconds / cost.sent * 1e6 for cost in empty], note=note,
        ),
    ]  # fmt: skip


async def _fleet(workload: Workload, act: Callable[[Workload, Frontier], Awaitable[None]]) -> Cost:
    frontiers = [await Frontier.open(workload.server.url, namespace="b", worker=f"w{n}") for n in range(_WORKERS)]
    cost = Cost(urls=_WORKERS * _TIMES)

    async def work(frontier: Frontier) -> None:
        for _ in range(_TIMES):
            await act(workload, frontier)

    workload.server.settle()
    with metered(workload.server, cost):
        await asyncio.gather(*map(work, frontiers))
    for frontier in frontiers:
        await frontier.close()
    return cost


async def _lease_nothing(workload: Workload, frontier: Frontier) -> None:
    if await frontier.lease(hosts=4, visits=1):
        raise RuntimeError("A host was leased: the measurement is void.")


async def _batch_of_one(workload: Workload, frontier: Frontier) -> None:
    (lease,) = await frontier.lease(hosts=1, visits=1)
    await frontier.add(CRAWL, workload.urls(lease.host, 1))
    await frontier.validators.remember(CRAWL, [(lease.visits[0].url, _MODIFIED)])
    outcomes = [lease.visits[0].stored()]
    await frontier.acknowledge_all([Done(lease=lease, outcomes=outcomes, success=True, response_seconds=0.05)])
