"""One shard of a cluster loses its last writes, and the others do not: no link of an acknowledged page is lost."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from shoal.frontier import scripts
from shoal.frontier import shards as shards_module
from shoal.frontier.frontier import Frontier
from shoal.frontier.shards import Shards
from shoal.model import Lease, Limits, Visit
from shoal.store import Script
from tests.contract.fleet import Fleet, drain, paths


async def _worker(fleet: Fleet, name: str) -> Frontier:
    """A worker of a cluster. Other stores keep no journal: all their shards lose the same writes."""
    shards = await Shards.found(fleet.store, fleet.shards.namespace, clock_ms=fleet.clock)
    return Frontier(shards, worker=name, lease_seconds=5)


_SERVER = """local function serverRun()
  return redis.call('GET', string.sub(KEYS[1], 1, -5) .. 'process') or '0123456789abcdef'
end
local function unused()"""


@pytest.fixture
async def ann(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Frontier:
    """Scripts read from a key which server process holds their shard: here one process holds all of them."""

    def patched(name: str) -> Script:
        source = scripts.script(name).source
        return Script(name, source.replace("local function serverRun()", _SERVER))

    monkeypatch.setattr(shards_module, "script", patched)
    monkeypatch.setattr(fleet.store, "kind", "cluster")
    ann = await _worker(fleet, "ann")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    return ann


class Copy:
    """A shard as it was, to be put back in place of what it is now, as a stale copy of a server is."""

    def __init__(self, fleet: Fleet, shard: int, dumps: dict[bytes, bytes]) -> None:
        self._fleet = fleet
        self._prefix = fleet.shards.prefixes[shard]
        self._dumps = dumps

    @classmethod
    async def of(cls, fleet: Fleet, shard: int) -> Copy:
        prefix = fleet.shards.prefixes[shard]
        dumps = {name: await fleet.store.command("DUMP", name, key=prefix) for name in await _names(fleet, prefix)}
        return cls(fleet, shard, dumps)

    _processes = itertools.count(1)

    async def put_back(self) -> None:
        store, prefix = self._fleet.store, self._prefix
        for name in await _names(self._fleet, prefix):
            await store.command("DEL", name, key=prefix)
        for name, dump in self._dumps.items():
            await store.command("RESTORE", name, 0, dump, key=prefix)
        await store.command("SET", prefix + "process", f"{next(self._processes):016x}", key=prefix)


async def _names(fleet: Fleet, prefix: str) -> list[Any]:
    found: list[Any] = await fleet.store.command(
        "EVAL", "return redis.call('KEYS', ARGV[1])", 0, prefix + "*", key=prefix
    )
    return found


async def _link(ann: Frontier, lease: Lease, urls: list[str]) -> int:
    """Add the links of a page; returns how many are new."""
    visits = [Visit(url=url, depth=1) for url in urls]
    page = lease.visits[0]
    return (await ann.add("c", visits, found_on=[(lease, page)] * len(visits))).new


async def test_links_to_a_shard_that_lost_them_are_added_again(fleet: Fleet, ann: Frontier) -> None:
    here, there = fleet.hosts(1, shard=0)[0], fleet.hosts(1, shard=1)[0]
    await ann.add("c", paths(here, 1))
    (lease,) = await ann.lease()
    copy = await Copy.of(fleet, 1)
    assert await _link(ann, lease, paths(there, 300)) == 300
    await ann.acknowledge(lease, [lease.visits[0].stored()])
    await copy.put_back()
    counts = await ann.crawls.count("c")
    assert (counts.stored, counts.admitted) == (1, 1), "the links are lost"
    assert not await ann.crawls.finished("c")
    assert (await ann.crawls.count("c")).waiting == 300
    bob = await _worker(fleet, "bob")
    fleet.clock.tick(10)
    assert len(await drain(fleet, bob)) == 300
    assert await bob.crawls.finish("c")


async def test_links_are_kept_for_a_shard_that_loses_them_twice(fleet: Fleet, ann: Frontier) -> None:
    here, there = fleet.hosts(1, shard=0)[0], fleet.hosts(1, shard=1)[0]
    await ann.add("c", paths(here, 1))
    (lease,) = await ann.lease()
    copy = await Copy.of(fleet, 1)
    await _link(ann, lease, paths(there, 3))
    await ann.acknowledge(lease, [lease.visits[0].stored()])
    for _ in range(3):
        await copy.put_back()
        assert not await ann.crawls.finished("c")
        assert (await ann.crawls.count("c")).waiting == 3


async def test_links_confirmed_before_a_loss_and_acknowledged_after_it_are_added_again(
    fleet: Fleet, ann: Frontier
) -> None:
    here, there = fleet.hosts(1, shard=0)[0], fleet.hosts(1, shard=1)[0]
    await ann.add("c", paths(here, 1))
    (lease,) = await ann.lease()
    copy = await Copy.of(fleet, 1)
    await _link(ann, lease, paths(there, 3))
    await copy.put_back()
    assert not await ann.crawls.finished("c")
    await ann.acknowledge(lease, [lease.visits[0].stored()])
    assert not await ann.crawls.finished("c")
    assert (await ann.crawls.count("c")).waiting == 3


async def test_the_links_of_an_abandoned_page_are_kept_although_they_are_known(fleet: Fleet, ann: Frontier) -> None:
    here, there = fleet.hosts(1, shard=0)[0], fleet.hosts(1, shard=1)[0]
    await ann.add("c", paths(here, 1))
    (lease,) = await ann.lease()
    copy = await Copy.of(fleet, 1)
    assert await _link(ann, lease, paths(there, 3)) == 3
    fleet.clock.tick(6)
    bob = await _worker(fleet, "bob")
    (lease,) = await bob.lease(shards=[0])
    assert lease.visits[0].abandoned
    assert await _link(bob, lease, paths(there, 3)) == 0
    await bob.acknowledge(lease, [lease.visits[0].stored()])
    await copy.put_back()
    assert not await bob.crawls.finished("c")
    assert (await bob.crawls.count("c")).waiting == 3


async def test_a_page_whose_acknowledgement_is_lost_brings_its_links_again(fleet: Fleet, ann: Frontier) -> None:
    here, there = fleet.hosts(1, shard=0)[0], fleet.hosts(1, shard=1)[0]
    await ann.add("c", paths(here, 1))
    (lease,) = await ann.lease()
    both = [await Copy.of(fleet, 0), await Copy.of(fleet, 1)]
    await _link(ann, lease, paths(there, 3))
    await ann.acknowledge(lease, [lease.visits[0].stored()])
    for copy in both:
        await copy.put_back()
    assert not await ann.crawls.finished("c")
    counts = await ann.crawls.count("c")
    assert (counts.stored, counts.leased) == (0, 1)


async def test_seeds_that_a_shard_lost_are_added_again(fleet: Fleet, ann: Frontier) -> None:
    here, there = fleet.hosts(1, shard=0)[0], fleet.hosts(1, shard=1)[0]
    await ann.add("c", paths(here, 1))
    copy = await Copy.of(fleet, 1)
    await ann.add("c", paths(there, 3))
    await copy.put_back()
    bob = await _worker(fleet, "bob")
    await drain(fleet, bob)
    fleet.clock.tick(10)
    await bob.crawls.finished("c")
    assert len(await drain(fleet, bob)) == 3


async def test_a_journal_forgets_what_no_shard_can_lose_any_more(fleet: Fleet, ann: Frontier) -> None:
    here, there = fleet.hosts(1, shard=0)[0], fleet.hosts(1, shard=1)[0]
    await ann.add("c", paths(here, 40))
    for number in range(40):
        (lease,) = await ann.lease(visits=1, shards=[0])
        await _link(ann, lease, [f"http://{there}/{number}"])
        await ann.acknowledge(lease, [lease.visits[0].stored()])
        fleet.clock.tick(10)
    lengths = [len(value) for name, value in (await fleet.state()).items() if "}j:1:" in name]
    assert lengths == [12]


async def test_one_server_keeps_no_journal(fleet: Fleet) -> None:
    if fleet.kind == "cluster":
        pytest.skip("a cluster keeps one")
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", [url for host in fleet.hosts(6, shard=None) for url in paths(host, 2)])
    assert not any("}j:" in name for name in await fleet.state())
