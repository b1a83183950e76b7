"""The store has no memory left, or would evict keys."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from shoal.errors import StoreFull, StoreRefused
from shoal.frontier import Done, Frontier
from shoal.model import Limits, Visit
from tests.chaos.fleet import LONG
from tests.servers import Server, server

pytestmark = pytest.mark.chaos
MEGABYTES = 64 if LONG else 8
HOSTS = 200
BATCH = 2000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Server]:
    with server(tmp_path / "store", options={"maxmemory": f"{MEGABYTES}mb"}) as valkey:
        yield valkey


@pytest.fixture
async def frontier(store: Server) -> AsyncIterator[Frontier]:
    async with await Frontier.open(store.url, shards=4, worker="ann", lease_seconds=5.0) as opened:
        await opened.crawls.create("c", Limits(delay_seconds=0.0))
        yield opened


def urls(numbers: range) -> list[str]:
    return [f"http://h{number % HOSTS}.example/a/page/of/some/length/{number}" for number in numbers]


async def fill(frontier: Frontier) -> tuple[set[str], set[str], str]:
    """Add URLs until the store refuses. Returns those it accepted, those it may have accepted, and the message."""
    accepted: set[str] = set()
    for first in itertools.count(0, BATCH):
        assert first < 5_000_000, "the store is never full"
        batch = urls(range(first, first + BATCH))
        try:
            added = await frontier.add("c", batch)
        except StoreFull as error:
            return accepted, set(batch), str(error)
        assert added.new == BATCH
        accepted.update(batch)
    raise AssertionError("unreachable")


def squeeze(store: Server) -> None:
    """Leave no doubt that the store is full, now and after a restart."""
    limit = str(int(store.info("memory")["used_memory"]) * 3 // 4)
    store.ask("CONFIG", "SET", "maxmemory", limit)
    store.argv[store.argv.index("--maxmemory") + 1] = limit


async def drain(frontier: Frontier) -> set[str]:
    """Visit everything there is."""
    visited: set[str] = set()
    while not await frontier.crawls.finished("c"):
        leases = await frontier.lease(hosts=100, visits=50, wait_seconds=1.0)
        await frontier.acknowledge_all(
            [Done(lease=lease, outcomes=[visit.stored() for visit in lease.visits]) for lease in leases]
        )
        for lease in leases:
            urls_ = {visit.url for visit in lease.visits}
            assert not urls_ & visited, "visited twice"
            visited |= urls_
    return visited


@pytest.mark.full
async def test_a_full_store_refuses_new_urls_drains_and_accepts_them_again(store: Server, frontier: Frontier) -> None:
    accepted, perhaps, message = await fill(frontier)
    assert "no memory left" in message
    assert "maxmemory" in message
    assert len(accepted) > (1_000_000 if LONG else 50_000)
    squeeze(store)
    with pytest.raises(StoreFull):
        await frontier.add("c", ["http://h0.example/one/more"])

    # A worker that dies now is reaped, a visit that fails is kept, all in a store that is full.
    (lost,) = await frontier.lease(hosts=1, visits=50)
    assert await frontier.reap("ann") == 1
    (lease,) = await frontier.lease(hosts=1, visits=50)
    await frontier.release([lease])
    (failed,) = await frontier.lease(hosts=1, visits=1)
    await frontier.acknowledge(failed, [failed.visits[0].failed("broken")])

    visited = await drain(frontier) | {failed.visits[0].url}
    assert accepted <= visited, f"{len(accepted - visited)} accepted URLs are lost"
    counts = await frontier.crawls.count("c")
    assert counts.admitted == len(visited) == counts.stored + 1
    # The batch that was refused may have been taken in part; the rest goes in now.
    again = await frontier.add("c", sorted(perhaps))
    assert again.new == len(perhaps - visited)
    assert await drain(frontier) == perhaps - visited
    assert lost.visits


async def test_a_crawl_can_be_stopped_in_a_full_store(store: Server, frontier: Frontier) -> None:
    await frontier.add("c", urls(range(2 * BATCH)))
    squeeze(store)
    assert (await frontier.crawls.pause("c")).state.value == "paused"
    assert (await frontier.crawls.resume("c")).state.value == "running"
    assert (await frontier.crawls.stop("c")).state.value == "stopped"


async def test_a_full_store_that_is_restarted_drains(store: Server, frontier: Frontier) -> None:
    await frontier.add("c", urls(range(2 * BATCH)))
    squeeze(store)
    await asyncio.to_thread(store.restart)
    assert await frontier.lease(wait_seconds=2.0)


async def test_a_crawl_with_a_limit_of_pages_drains_in_a_full_store(store: Server, frontier: Frontier) -> None:
    await frontier.crawls.create("limited", Limits(delay_seconds=0.0, max_pages=100))
    await frontier.add("limited", [Visit(url=url) for url in urls(range(200))])
    await frontier.add("c", urls(range(2 * BATCH)))
    squeeze(store)
    stored = 0
    while not await frontier.crawls.finished("limited"):
        leases = await frontier.lease(wait_seconds=1.0)
        for lease in leases:
            await frontier.acknowledge(lease, [visit.stored() for visit in lease.visits])
            stored += sum(visit.crawl == "limited" for visit in lease.visits)
    assert stored == 100


async def test_a_store_that_deletes_keys_to_make_room_is_refused(tmp_path: Path) -> None:
    options = {"maxmemory": "64mb", "maxmemory-policy": "allkeys-lru"}
    with server(tmp_path / "store", options=options) as store:
        with pytest.raises(StoreRefused, match=r"allkeys-lru.*set maxmemory-policy to noeviction") as refused:
            await Frontier.open(store.url)
        assert str(refused.value).count(". ") == 0
        assert store.ask("DBSIZE") == 0
