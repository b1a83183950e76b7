"""A cluster whose slots move while workers use it: nothing is lost, nothing is done twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from shoal.frontier import Done, Frontier
from shoal.frontier.shards import Shards
from shoal.model import Limits
from shoal.store import Store, slot_of
from tests.servers import WAIT_SECONDS, Cluster

TREE = 500


async def test_every_shard_moves_once_under_load(valkey_cluster: Cluster, namespace: str) -> None:
    await _crawl_while(valkey_cluster, namespace, partial(_move_all, valkey_cluster))


@pytest.mark.parametrize("nodes", ["valkey_cluster", pytest.param("redis_cluster", marks=pytest.mark.variant)])
async def test_every_shard_moves_key_by_key_under_load(
    nodes: str, request: pytest.FixtureRequest, namespace: str
) -> None:
    cluster: Cluster = request.getfixturevalue(nodes)
    await _crawl_while(cluster, namespace, partial(_move_all_keys, cluster))
    for node in cluster.nodes:
        # No key is on a node that does not hold its slot.
        for key in node.ask("KEYS", f"{namespace}*"):
            assert cluster.owner(slot_of(key.decode())) is node


async def _crawl_while(cluster: Cluster, namespace: str, move: Callable[[Shards], Awaitable[None]]) -> None:
    """Crawl a tree with three workers until all shards have moved; each page must be made once."""
    made: Counter[str] = Counter()
    moved, over = asyncio.Event(), asyncio.Event()

    async def work(name: str) -> int:
        async with await Store.open(cluster.url) as store:
            worker = Frontier(await Shards.found(store, namespace), worker=name)
            while not over.is_set():
                leases = await worker.lease(hosts=4, visits=4, wait_seconds=0.2)
                links = []
                for visit in (visit for lease in leases for visit in lease.visits):
                    made[visit.url] += 1
                    number = int(visit.url.rpartition("/")[2])
                    links += [_url(child) for child in (2 * number, 2 * number + 1) if child <= TREE]
                await worker.add("c", links)
                await worker.acknowledge_all(
                    [Done(lease=lease, outcomes=[visit.stored() for visit in lease.visits]) for lease in leases]
                )
                if moved.is_set() and not leases and await worker.crawls.finished("c"):
                    over.set()
            await worker.close()
            return worker.epochs

    async with await Store.open(cluster.url) as store:
        shards = await Shards.found(store, namespace, 4)
        supervisor = Frontier(shards, worker="boss")
        await supervisor.crawls.create("c", Limits(delay_seconds=0))
        await supervisor.add("c", [_url(1)])
        workers = [asyncio.create_task(work(f"w{number}")) for number in range(3)]
        moving = asyncio.ensure_future(move(shards))
        pages = TREE
        # The load continues until the last slot has moved.
        while not moving.done() or pages < 2 * TREE:
            pages += (await supervisor.add("c", [_url(number) for number in range(pages + 1, pages + 21)])).new
            await asyncio.sleep(0.01)
        await moving
        moved.set()
        await asyncio.wait_for(asyncio.gather(*workers), WAIT_SECONDS)
        assert len(made) == pages
        assert set(made.values()) == {1}
        counts = await supervisor.crawls.count("c")
        assert (counts.admitted, counts.stored, counts.open) == (pages, pages, 0)
        assert await supervisor.crawls.finish("c")


async def _move_all(cluster: Cluster, shards: Shards) -> None:
    for prefix in shards.prefixes:
        slot = slot_of(prefix)
        source = await asyncio.to_thread(cluster.owner, slot)
        target = cluster.nodes[(cluster.nodes.index(source) + 1) % 3]
        await asyncio.to_thread(cluster.move, slot, slot, target)
        assert await asyncio.to_thread(cluster.owner, slot) is target


async def _move_all_keys(cluster: Cluster, shards: Shards) -> None:
    for prefix in shards.prefixes:
        slot = slot_of(prefix)
        source = await asyncio.to_thread(cluster.owner, slot)
        target = cluster.nodes[(cluster.nodes.index(source) + 1) % 3]
        await asyncio.to_thread(cluster.move_keys, slot, target)
        assert await asyncio.to_thread(cluster.owner, slot) is target


def _url(number: int) -> str:
    return f"http://h{number % 40}.example/{number}"
