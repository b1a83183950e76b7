"""How often a request of the API waits for the store. Each wait is time in which other requests come first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shoal.api.fleet_stats import CrawlTotals, read_stats
from shoal.model import Limits
from shoal.model.crawl_spec import CrawlSpec
from shoal.operations.describe import describe
from shoal.store.connection import Connection
from tests.contract.fleet import Fleet


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """The calls that were sent while no other waited for its reply."""
    started: list[Connection] = []
    send = Connection.send

    def counted(self: Connection, packed: bytes, count: int) -> asyncio.Future[list[Any]]:
        if not self._batches:
            started.append(self)
        return send(self, packed, count)

    monkeypatch.setattr(Connection, "send", counted)
    return started


async def test_a_crawl_is_described_in_three_rounds_whatever_the_number_of_shards(
    fleet: Fleet, rounds: list[Connection]
) -> None:
    ann = fleet.worker()
    spec = CrawlSpec(seeds=("http://a.example/",), outputs=("x.db",)).stored()
    await ann.crawls.create("c", Limits(delay_seconds=0), spec=spec)
    await ann.add("c", [f"http://{host}/" for host in fleet.hosts(20, None)])
    servers = len({fleet.store.server_of(prefix + "meta") for prefix in fleet.shards.prefixes})
    rounds.clear()
    described = await describe(ann, await ann.crawls.get("c"))
    assert described.counts.waiting == 20
    assert len(rounds) <= 3 * servers


async def test_the_fleet_is_read_in_few_rounds(fleet: Fleet, rounds: list[Connection]) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    servers = len({fleet.store.server_of(prefix + "meta") for prefix in fleet.shards.prefixes})
    rounds.clear()
    stats = await read_stats(ann, CrawlTotals(ann), lease_seconds=30, hosts_per_worker=10)
    assert stats.crawls == {"running": 1}
    # A few for each figure, none for a single shard.
    assert len(rounds) <= 11 * servers
