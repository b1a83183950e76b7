"""The server's clock is set. Scripts add the shard's offset to the server's time, so the tests move the offset."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from shoal.frontier import mono
from shoal.frontier.frontier import Frontier
from shoal.model import Limits
from tests.servers import Server

pytestmark = [pytest.mark.chaos, pytest.mark.full]
LEASE_SECONDS = 1.0


@pytest.fixture
async def pair(store: Server) -> AsyncIterator[tuple[Frontier, Frontier]]:
    """Two workers that know what time the store has."""
    async with (
        await Frontier.open(store.url, shards=1, worker="ann", lease_seconds=LEASE_SECONDS) as ann,
        await Frontier.open(store.url, shards=1, worker="bob", lease_seconds=LEASE_SECONDS) as bob,
    ):
        await ann.crawls.create("c", Limits(delay_seconds=0.2))
        await asyncio.gather(ann.lease(), bob.lease())
        yield ann, bob


def meta(frontier: Frontier) -> str:
    return frontier.shards.prefixes[0] + "meta"


def offset(store: Server, frontier: Frontier) -> int:
    return int(store.ask("HGET", meta(frontier), "offset") or 0)


@pytest.mark.parametrize("step_ms", [30_000, -30_000], ids=["ahead", "back"])
async def test_a_clock_step_ends_no_lease_and_no_back_off_early(
    store: Server, pair: tuple[Frontier, Frontier], step_ms: int
) -> None:
    ann, bob = pair
    await ann.add("c", ["http://h.example/1", "http://h.example/2", "http://slow.example/"])
    await ann.hosts.postpone("slow.example", 10.0)
    held = await bob.lease(visits=1)
    assert [lease.host for lease in held] == ["h.example"]
    store.ask("HSET", meta(ann), "offset", step_ms)
    stepped = mono()
    # Held for the longest lease and the lag; and the shard's clock goes on as before.
    taken = await ann.lease(wait_seconds=LEASE_SECONDS + 4.0)
    assert mono() - stepped >= LEASE_SECONDS + 2.0
    assert [lease.host for lease in taken] == ["h.example"]
    assert abs(offset(store, ann)) < 500
    assert (await ann.crawls.count("c")).waiting == 1, "the host that is backing off was asked"


@pytest.mark.smoke
async def test_a_slow_call_is_not_mistaken_for_a_clock_step(store: Server, pair: tuple[Frontier, Frontier]) -> None:
    ann, _ = pair
    epoch = store.ask("HGET", meta(ann), "epoch")
    store.freeze()
    leasing = asyncio.create_task(ann.lease())
    await asyncio.sleep(2.0)
    store.thaw()
    await leasing
    assert store.ask("HGET", meta(ann), "epoch") == epoch


@pytest.mark.smoke
async def test_two_workers_that_see_the_same_clock_step_correct_it_once(
    store: Server, pair: tuple[Frontier, Frontier]
) -> None:
    ann, bob = pair
    store.ask("HSET", meta(ann), "offset", 30_000)
    await asyncio.gather(ann.lease(), bob.lease())
    assert abs(offset(store, ann)) < 1000
