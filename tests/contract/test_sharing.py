"""Crawls that share hosts: turns, weights, and that no crawl blocks another."""

from __future__ import annotations

from collections import Counter

import pytest

from shoal.frontier import Frontier
from shoal.model import Limits, Visit
from tests.contract.fleet import Fleet, drain, end, paths


async def _first(fleet: Fleet, worker: Frontier, most: int, visits: int = 8) -> list[Visit]:
    """The first requests of a host, leased in batches."""
    made: list[Visit] = []
    while len(made) < most:
        leases = await worker.lease(visits=visits)
        made += await end(worker, leases)
        fleet.clock.tick(0.1)
    return made[:most]


@pytest.mark.parametrize("batch", [3, 50])
async def test_two_equal_crawls_take_turns_on_a_host(fleet: Fleet, batch: int) -> None:
    ann = fleet.worker()
    for crawl in ("one", "two"):
        await ann.crawls.create(crawl, Limits(delay_seconds=0))
        await ann.add(crawl, paths("a.example", 240))
    turns = Counter(visit.crawl for visit in await _first(fleet, ann, 200, batch))
    assert abs(turns["one"] - 100) <= 10, turns
    await fleet.check()


async def test_a_crawl_that_starts_later_gets_no_extra_turns(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("early", Limits(delay_seconds=0))
    await ann.add("early", paths("a.example", 400))
    await _first(fleet, ann, 150)
    await ann.crawls.create("late", Limits(delay_seconds=0))
    await ann.add("late", paths("a.example", 240))
    turns = Counter(visit.crawl for visit in await _first(fleet, ann, 200))
    assert abs(turns["early"] - 100) <= 10, turns


async def test_turns_stay_fair_when_a_crawl_repeatedly_runs_out_of_urls(fleet: Fleet) -> None:
    ann = fleet.worker()
    for crawl in ("one", "two"):
        await ann.crawls.create(crawl, Limits(delay_seconds=0))
    await ann.add("one", paths("a.example", 400))
    for start in range(0, 200, 20):
        # Crawl two runs dry again and again, as one does that finds its links page by page.
        await ann.add("two", paths("a.example", 20, start))
        await _first(fleet, ann, 40)
    turns = Counter({crawl: (await ann.crawls.count(crawl)).stored for crawl in ("one", "two")})
    assert abs(turns["one"] - turns["two"]) <= 20, turns


async def test_turns_are_weighted_by_priority(fleet: Fleet) -> None:
    ann = fleet.worker()
    for crawl, priority in (("plain", 0), ("twice", 1), ("half", -1)):
        await ann.crawls.create(crawl, Limits(delay_seconds=0, priority=priority))
        await ann.add(crawl, paths("a.example", 240))
    turns = Counter(visit.crawl for visit in await _first(fleet, ann, 210))
    assert abs(turns["twice"] - 120) <= 10
    assert abs(turns["plain"] - 60) <= 10
    assert abs(turns["half"] - 30) <= 10


@pytest.mark.full
async def test_a_hundred_crawls_on_one_host_each_get_their_turn(fleet: Fleet) -> None:
    ann = fleet.worker()
    for number in range(100):
        await ann.crawls.create(f"c{number}", Limits(delay_seconds=0))
        await ann.add(f"c{number}", paths("a.example", 3))
    await fleet.check()
    turns = Counter(visit.crawl for visit in await _first(fleet, ann, 100, 10))
    assert set(turns.values()) == {1}
    await drain(fleet, ann, visits=50)
    for number in (0, 50, 99):
        assert (await ann.crawls.count(f"c{number}")).stored == 3
        assert await ann.crawls.finish(f"c{number}")
    await fleet.check()


async def test_the_largest_delay_and_the_fewest_slots_apply(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("quick", Limits(delay_seconds=0.1, places=3))
    await ann.crawls.create("slow", Limits(delay_seconds=5, places=1))
    await ann.hosts.set_robots("a.example")
    await ann.add("quick", paths("a.example", 10))
    await ann.add("slow", paths("a.example", 10))
    (lease,) = await ann.lease()
    assert lease.delay_seconds == 5
    assert await bob.lease() == []
    await end(ann, [lease])
    fleet.clock.tick(4.9)
    assert await bob.lease() == []
    fleet.clock.tick(0.1)
    assert len(await bob.lease()) == 1


async def test_a_slow_crawl_that_joins_slows_the_next_request(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("quick", Limits(delay_seconds=0.1))
    await ann.crawls.create("slow", Limits(delay_seconds=5))
    await ann.add("quick", paths("a.example", 10))
    await end(ann, await ann.lease(visits=1))
    await ann.add("slow", paths("a.example", 1))
    fleet.clock.tick(4.9)
    assert await ann.lease() == []
    fleet.clock.tick(0.1)
    assert len(await ann.lease()) == 1


async def test_the_largest_delay_of_a_hundred_crawls_applies(fleet: Fleet) -> None:
    ann = fleet.worker()
    for number in range(100):
        await ann.crawls.create(f"c{number}", Limits(delay_seconds=5 if number == 99 else 0.1))
        await ann.add(f"c{number}", paths("a.example", 3))
    (lease,) = await ann.lease()
    assert lease.delay_seconds == 5


@pytest.mark.parametrize("how", ["paused", "stopped", "nobody can run it"])
async def test_a_crawl_that_does_not_run_does_not_block_hosts_of_other_crawls(fleet: Fleet, how: str) -> None:
    ann = fleet.worker()
    hosts = fleet.hosts(12, shard=None)
    spider = "unheard-of" if how == "nobody can run it" else ""
    await ann.crawls.create("idle", Limits(delay_seconds=0, priority=5, spider=spider))
    await ann.crawls.create("live", Limits(delay_seconds=0))
    for host in hosts:
        await ann.add("idle", paths(host, 5))
        await ann.add("live", paths(host, 5))
    if how == "paused":
        await ann.crawls.pause("idle")
    elif how == "stopped":
        await ann.crawls.stop("idle")
    made = await drain(fleet, ann)
    assert Counter(visit.crawl for visit in made) == {"live": 60}
    assert await ann.crawls.finished("live")
    await fleet.check()


async def test_many_crawls_without_workers_do_not_hide_one_with_a_worker(fleet: Fleet) -> None:
    ann = fleet.worker()
    for number in range(70):
        await ann.crawls.create(f"idle{number}", Limits(delay_seconds=0, spider="unheard-of"))
        await ann.add(f"idle{number}", paths("a.example", 1))
    await ann.crawls.create("live", Limits(delay_seconds=0))
    await ann.add("live", paths("a.example", 5))
    made = await drain(fleet, ann)
    assert Counter(visit.crawl for visit in made) == {"live": 5}


@pytest.mark.full
async def test_many_paused_crawls_do_not_hide_one_that_runs(fleet: Fleet) -> None:
    ann = fleet.worker()
    for number in range(130):
        await ann.crawls.create(f"idle{number}", Limits(delay_seconds=0))
        await ann.add(f"idle{number}", paths("a.example", 1))
    await ann.crawls.create("live", Limits(delay_seconds=0))
    await ann.add("live", paths("a.example", 5))
    for number in range(130):
        await ann.crawls.pause(f"idle{number}")
    made = await drain(fleet, ann)
    assert Counter(visit.crawl for visit in made) == {"live": 5}
    for number in range(130):
        await ann.crawls.resume(f"idle{number}")
    made = await drain(fleet, ann, visits=50)
    assert len(made) == 130
    await fleet.check()


async def test_a_busy_crawl_does_not_delay_another_on_its_own_hosts(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("big", Limits(delay_seconds=0, priority=3))
    await ann.crawls.create("small", Limits(delay_seconds=0, priority=-3))
    for host in fleet.hosts(20):
        await ann.add("big", paths(host, 50))
    small = fleet.hosts(21)[-1]
    await ann.add("small", paths(small, 1))
    seen = []
    for _ in range(8):
        seen += await end(ann, await ann.lease(hosts=1, visits=1, shards=[0]))
        fleet.clock.tick(0.01)
    assert "small" in {visit.crawl for visit in seen}


async def test_of_crawls_added_together_the_one_with_the_higher_priority_goes_first(fleet: Fleet) -> None:
    ann = fleet.worker()
    for crawl, priority in (("low", -5), ("high", 5), ("usual", 0)):
        await ann.crawls.create(crawl, Limits(delay_seconds=0, priority=priority))
        await ann.add(crawl, paths("a.example", 1))
    assert [visit.crawl for visit in await _first(fleet, ann, 3)] == ["high", "usual", "low"]
    await fleet.check()
