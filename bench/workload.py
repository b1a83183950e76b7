"""Shoal's side of every measurement: a frontier on a server that is filled, and used as by a worker.

URLs have a path of 39 characters, hosts a name of 18. A batch is 16 hosts with 8 visits each. No crawl has a delay:
in a real crawl, politeness costs only time.
"""

from __future__ import annotations

import asyncio
import random
from types import TracebackType
from typing import Self

from bench.cost import Cost, metered
from bench.server import Server
from shoal import Done, Frontier, Lease, Limits

HOSTS, VISITS = 16, 8
BATCH = HOSTS * VISITS
# 250 URLs for each of 16 shards: one full call to each.
_FILL = 4000
CRAWL = "bench"
PHASES = ("lease", "add", "acknowledge")


def host(number: int) -> str:
    return f"host{number:06d}.example"


def url(number: int, of_host: str) -> str:
    return f"https://{of_host}/articles/2026/page-{number:019d}"


class Workload:
    """One crawl on one server. Every URL that it generates is new."""

    def __init__(self, frontier: Frontier, server: Server) -> None:
        self.frontier = frontier
        self.server = server
        self.pages = 0
        self._random = random.Random(7)

    @classmethod
    async def open(cls, server: Server) -> Self:
        frontier = await Frontier.open(server.url, namespace="b")
        workload = cls(frontier, server)
        # Every script is loaded and every shard knows a crawl before anything is measured.
        await frontier.crawls.create("warm-up", Limits(delay_seconds=0))
        await frontier.add("warm-up", [f"https://warm{n}.example/" for n in range(500)])
        await workload.drain()
        await frontier.crawls.finish("warm-up")
        await frontier.crawls.delete("warm-up")
        await frontier.crawls.create(CRAWL, Limits(delay_seconds=0))
        return workload

    def urls(self, of_host: str, count: int) -> list[str]:
        self.pages += count
        return [url(number, of_host) for number in range(self.pages - count, self.pages)]

    async def fill(self, count: int, hosts: int) -> None:
        """Add this many URLs, the same number to each host, in large calls; adjacent URLs have different hosts."""
        names = [host(number) for number in range(hosts)]
        adding: asyncio.Task[int] | None = None
        first = self.pages
        for start in range(0, count, _FILL):
            numbers = range(first + start, first + min(start + _FILL, count))
            part = [url(number, names[number % hosts]) for number in numbers]
            if adding is not None:
                await adding
            adding = asyncio.create_task(self._add(part))
            # The server processes this part while the next is generated.
            await asyncio.sleep(0)
        if adding is not None:
            await adding
        self.pages = first + count

    async def cycle(self, batches: int, rounds: int) -> dict[str, Cost]:
        """Lease batches, add as many URLs to the same hosts (links of the pages), acknowledge; each phase metered."""
        costs = {phase: Cost() for phase in PHASES}
        for _ in range(rounds):
            self.server.settle()
            held: list[list[Lease]] = []
            with metered(self.server, costs["lease"]):
                for _ in range(batches):
                    held.append(await self.frontier.lease(hosts=HOSTS, visits=VISITS))
            links = [[link for lease in batch for link in self.urls(lease.host, len(lease.visits))] for batch in held]
            with metered(self.server, costs["add"]):
                for part in links:
                    await self._add(part)
            with metered(self.server, costs["acknowledge"]):
                for batch in held:
                    await self.acknowledge(batch)
            for phase in PHASES:
                costs[phase].urls += sum(len(part) for part in links)
        return costs

    async def scatter(self, batches: int, hosts: int) -> Cost:
        """Only add, each batch for 16 hosts at random, so in most shards at once: the most expensive way to add."""
        parts = []
        for _ in range(batches):
            chosen = self._random.sample(range(hosts), HOSTS)
            parts.append([link for number in chosen for link in self.urls(host(number), VISITS)])
        cost = Cost(urls=batches * BATCH)
        with metered(self.server, cost):
            for part in parts:
                await self._add(part)
        return cost

    async def drain(self) -> int:
        """Lease and acknowledge until nothing waits, in large calls."""
        drained = 0
        while batch := await self.frontier.lease(hosts=200, visits=200):
            await self.acknowledge(batch)
            drained += sum(len(lease.visits) for lease in batch)
        return drained

    async def acknowledge(self, batch: list[Lease]) -> None:
        """Acknowledge all visits as stored, with a response time of 50 ms."""
        await self.frontier.acknowledge_all(
            [
                Done(
                    lease=lease,
                    outcomes=[visit.stored() for visit in lease.visits],
                    success=True,
                    response_seconds=0.05,
                )
                for lease in batch
            ]
        )

    async def _add(self, urls: list[str]) -> int:
        added = await self.frontier.add(CRAWL, urls)
        if added.new != len(urls):
            raise RuntimeError(f"Of {len(urls)} new URLs {added.new} were taken: the measurement is void.")
        return added.new

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.frontier.close()
