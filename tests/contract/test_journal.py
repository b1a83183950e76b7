"""One shard of a cluster loses its last writes, and the others do not: no link of an acknowledged page is lost."""

from __future__ import annotations

import itertools
import os
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
    names: list[Any] = await fleet.store.command(
        "EVAL", "return redis.call('KEYS', ARGV[1])", 0, prefix + "*", key=prefix
    )
    return names


async def _link(ann: Frontier, lease: Lease, urls: list[str]) -> int:
    """Add the links of a page; returns how many are new."""
    visits = [Visit(url=url, depth=1) for url in urls]
    page = lease.visits[0]
    return (await ann.add("c", visits, found_on=[(lease, page)] * len(visits))).new


async def test_links_that_a_shard_lost_are_added_again(fleet: Fleet, ann: Frontier) -> None:
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


async def test_the_links_of_an_abandoned_page_stay_in_the_journal_although_they_are_known(
    fleet: Fleet, ann: Frontier
) -> None:
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


async def test_a_page_whose_acknowledgement_is_lost_adds_its_links_again(fleet: Fleet, ann: Frontier) -> None:
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


@pytest.mark.parametrize("name", ["ann", "bob"])
async def test_one_shard_loses_an_acknowledgement_and_another_later_loses_its_links(
    fleet: Fleet, ann: Frontier, name: str
) -> None:
    """The page is visited again between the two, when its links are known: by the same worker or by a new one."""
    here, there = fleet.hosts(1, shard=0)[0], fleet.hosts(1, shard=1)[0]
    await ann.add("c", paths(here, 1))
    both = [await Copy.of(fleet, 0), await Copy.of(fleet, 1)]
    (lease,) = await ann.lease()
    assert await _link(ann, lease, paths(there, 3)) == 3
    await ann.acknowledge(lease, [lease.visits[0].stored()])
    await both[0].put_back()
    assert not await ann.crawls.finished("c")
    fleet.clock.tick(10)
    worker = ann if name == "ann" else await _worker(fleet, "bob")
    (lease,) = await worker.lease(shards=[0])
    assert not lease.visits[0].abandoned
    assert await _link(worker, lease, paths(there, 3)) == 0
    await worker.acknowledge(lease, [lease.visits[0].stored()])
    await both[1].put_back()
    assert not await worker.crawls.finished("c")
    assert (await worker.crawls.count("c")).waiting == 3


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


async def test_many_and_long_links_are_kept_in_the_journal(fleet: Fleet, ann: Frontier) -> None:
    here, there = fleet.hosts(1, shard=0)[0], fleet.hosts(1, shard=1)[0]
    await ann.add("c", paths(here, 1))
    (lease,) = await ann.lease()
    copy = await Copy.of(fleet, 1)
    large = Visit(url=f"http://{there}/large", method="POST", body=os.urandom(9_000_000))
    many = [Visit(url=f"http://{there}/{'a' * 1000}{number}") for number in range(3000)]
    page = lease.visits[0]
    added = await ann.add("c", [large, *many], found_on=[(lease, page)] * 3001, max_bytes=10_000_000)
    assert added.new == 3001
    await ann.acknowledge(lease, [page.stored()])
    await copy.put_back()
    assert not await ann.crawls.finished("c")
    assert (await ann.crawls.count("c")).waiting == 3001


async def test_a_journal_drops_links_that_no_shard_can_lose_any_more(fleet: Fleet, ann: Frontier) -> None:
    here, there = fleet.hosts(1, shard=0)[0], fleet.hosts(1, shard=1)[0]
    await ann.add("c", paths(here, 40))
    # Adding does not notice that another process holds the shard, leasing does.
    assert not await ann.lease(shards=[1])
    for number in range(40):
        (lease,) = await ann.lease(visits=1, shards=[0])
        await _link(ann, lease, [f"http://{there}/{number}"])
        await ann.acknowledge(lease, [lease.visits[0].stored()])
        fleet.clock.tick(10)
    prefix = fleet.shards.prefixes[0] + "j:"
    journals = {name: value for name, value in (await fleet.state()).items() if name.startswith(prefix)}
    assert [*journals] == [f"{prefix}0123456789abcdef"]
    (entries,) = journals.values()
    # 12 entries of the last two minutes. Old ones are removed by every eighth.
    assert 12 <= len(entries) < 20


@pytest.mark.parametrize("change", ["pause", "resume", "stop"])
async def test_a_home_shard_that_lost_a_change_of_a_crawl_is_brought_up_to_date(
    fleet: Fleet, ann: Frontier, change: str
) -> None:
    home = ann.shards.home("c")
    here = fleet.hosts(1, shard=(home + 1) % fleet.shards.count)[0]
    await ann.add("c", paths(here, 2))
    if change == "resume":
        await ann.crawls.pause("c")
    copy = await Copy.of(fleet, home)
    await getattr(ann.crawls, change)("c")
    await copy.put_back()
    fleet.clock.tick(10)
    # As the maintainer of a crawl does.
    bob = await _worker(fleet, "bob")
    await bob.crawls.repair(await bob.crawls.get("c"))
    state = (await bob.crawls.get("c")).state
    assert state.value == {"pause": "running", "resume": "paused", "stop": "stopped"}[change]
    if state.open:
        await bob.crawls.resume("c")
        assert len(await drain(fleet, bob)) == 2
        # The first check may find links to add again.
        assert await bob.crawls.finish("c") or await bob.crawls.finish("c")


async def test_a_crawl_whose_creation_was_lost_does_not_stop_workers(fleet: Fleet, ann: Frontier) -> None:
    home = ann.shards.home("lost")
    copy = await Copy.of(fleet, home)
    await ann.crawls.create("lost", Limits(delay_seconds=0))
    lost, other = fleet.hosts(2, shard=(home + 1) % fleet.shards.count)
    await ann.add("lost", paths(lost, 2))
    await copy.put_back()
    fleet.clock.tick(10)
    bob = await _worker(fleet, "bob")
    await bob.add("c", paths(other, 2))
    assert {visit.crawl for visit in await drain(fleet, bob)} == {"c"}


@pytest.mark.parametrize("lost", ["home", "other"])
async def test_a_shard_that_lost_moves_of_page_budget_does_not_block_a_crawl(
    fleet: Fleet, ann: Frontier, lost: str
) -> None:
    await ann.crawls.create("p", Limits(delay_seconds=0, max_pages=10))
    home = ann.shards.home("p")
    shards = [shard for shard in range(fleet.shards.count) if shard != home][:2]
    first, second = (fleet.hosts(1, shard=shard)[0] for shard in shards)
    await ann.add("p", [*paths(first, 30), *paths(second, 30)])
    copy = await Copy.of(fleet, home if lost == "home" else shards[0])
    # This host gets pages and stores some of them.
    (lease,) = await ann.lease(hosts=1, visits=2, shards=shards[:1])
    await ann.acknowledge(lease, [visit.stored() for visit in lease.visits])
    await copy.put_back()
    assert not await ann.crawls.finished("p")
    while (await ann.crawls.get("p")).state.open:
        fleet.clock.tick(10)
        await drain(fleet, ann)
    assert (await ann.crawls.count("p")).stored == 10


async def test_one_server_keeps_no_journal(fleet: Fleet) -> None:
    if fleet.kind == "cluster":
        pytest.skip("a cluster keeps one")
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", [url for host in fleet.hosts(6, shard=None) for url in paths(host, 2)])
    assert not any("}j:" in name for name in await fleet.state())
