"""`finished` is exact although shards are read one by one: first all that has ended, then all that was admitted."""

from __future__ import annotations

import random

import pytest

from shoal.frontier.frontier import Frontier
from shoal.frontier.shards import Shards
from shoal.model import Limits, Visit
from shoal.store import Store
from tests.servers import Server

pytestmark = pytest.mark.full

SHARDS = 4
HOSTS = [f"h{number}.example" for number in range(12)]
READS = 400


class Chain:
    """One page that leads to one other, over all shards, for ever: never finished while it goes on."""

    def __init__(self, frontier: Frontier, key: str) -> None:
        self.frontier = frontier
        self.key = key
        self.hops = 0

    async def hop(self) -> None:
        (lease,) = await self.frontier.lease(hosts=1, visits=1)
        self.hops += 1
        await self.frontier.add("chain", [Visit(url=f"http://{random.choice(HOSTS)}/{self.hops}")])
        await self.frontier.acknowledge(lease, [lease.visits[0].stored()])

    async def count(self, shard: int) -> tuple[int, int]:
        """Admitted and ended in one shard, read in one call."""
        reply = await self.frontier.shards.call("count", shard, (self.key,))
        return (reply[3], sum(reply[7:10])) if reply[0] == 0 else (0, 0)

    async def read(self, *, one_pass: bool) -> bool:
        """Whether the crawl seems finished, to somebody who reads slowly while it goes on."""
        admitted = ended = 0
        for counts_ended, counts_admitted in [(True, True)] if one_pass else [(True, False), (False, True)]:
            for shard in random.sample(range(SHARDS), SHARDS):
                for _ in range(random.randrange(3)):
                    await self.hop()
                a, e = await self.count(shard)
                ended += e * counts_ended
                admitted += a * counts_admitted
        return admitted == ended


@pytest.mark.model
@pytest.mark.parametrize("one_pass", [False, True])
async def test_only_reading_ended_counts_first_never_reports_finished_too_early(
    model_server: Server, one_pass: bool
) -> None:
    async with await Store.open(model_server.url) as store:
        shards = await Shards.found(store, f"chain{int(one_pass)}", SHARDS)
        frontier = Frontier(shards, worker="reader")
        crawl = await frontier.crawls.create("chain", Limits(delay_seconds=0))
        await frontier.add("chain", ["http://h0.example/"])
        chain = Chain(frontier, crawl.key)
        random.seed(7)
        await chain.hop()
        wrong = sum([await chain.read(one_pass=one_pass) for _ in range(READS)])
        assert (wrong > 0) == one_pass, f"{wrong} of {READS} reads called a running crawl finished"
