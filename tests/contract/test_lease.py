"""lease: which worker gets which host, when, and with which visits."""

from __future__ import annotations

from collections import Counter

import pytest

from shoal.model import Limits, Visit
from tests.contract.fleet import Fleet, drain, end, names, paths


async def test_an_empty_frontier_gives_no_leases(fleet: Fleet) -> None:
    assert await fleet.worker().lease() == []


async def test_a_lease_names_its_host_delay_and_visits(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0.5))
    await ann.add("c", paths("a.example", 3))
    (lease,) = await ann.lease()
    assert (lease.host, lease.delay_seconds, lease.shard) == ("a.example", 0.5, fleet.shards.of("a.example"))
    assert names(lease.visits) == ["0", "1", "2"]
    assert [visit.number for visit in lease.visits] == [1, 2, 3]
    assert (await ann.crawls.count("c")).leased == 3
    await fleet.check()


async def test_a_host_has_one_holder(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths("a.example", 20))
    assert len(await ann.lease(visits=2)) == 1
    assert await bob.lease() == []
    assert await ann.lease() == []


async def test_hosts_of_every_shard_are_leased_in_one_call(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    hosts = fleet.hosts(12, shard=None)
    await ann.add("c", [f"http://{host}/" for host in hosts])
    leases = await ann.lease(hosts=48)
    assert sorted(lease.host for lease in leases) == sorted(hosts)


async def test_a_worker_can_lease_from_some_shards_only(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    here, there = fleet.hosts(1, shard=1) + fleet.hosts(1, shard=2)
    await ann.add("c", [f"http://{here}/", f"http://{there}/"])
    assert [lease.host for lease in await ann.lease(shards=[1])] == [here]


async def test_a_host_with_a_higher_priority_goes_first(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    low, plain, high = fleet.hosts(3)
    for host, priority in ((low, -1), (plain, 0), (high, 1)):
        await ann.add("c", [Visit(url=f"http://{host}/", priority=priority)])
    order = [(await ann.lease(hosts=1, shards=[0]))[0].host for _ in range(3)]
    assert order == [high, plain, low]


async def test_the_priority_of_a_crawl_counts_for_its_hosts(fleet: Fleet) -> None:
    ann = fleet.worker()
    first, second = fleet.hosts(2)
    await ann.crawls.create("low", Limits(priority=-2))
    await ann.crawls.create("high", Limits(priority=2))
    await ann.add("low", [f"http://{first}/"])
    await ann.add("high", [f"http://{second}/"])
    assert (await ann.lease(hosts=1, shards=[0]))[0].host == second


async def test_a_host_moves_up_when_a_visit_of_higher_priority_is_added(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    first, second = fleet.hosts(2)
    await ann.add("c", [f"http://{first}/", f"http://{second}/"])
    await ann.add("c", [Visit(url=f"http://{second}/urgent", priority=9)])
    (lease,) = await ann.lease(hosts=1, shards=[0])
    assert (lease.host, names(lease.visits)[0]) == (second, "urgent")
    await fleet.check()


async def test_within_a_host_the_highest_priority_goes_first(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", [Visit(url=f"http://a.example/{p}", priority=p) for p in (0, 5, -3, 1, 1000000, -9)])
    (lease,) = await ann.lease()
    assert names(lease.visits) == ["1000000", "5", "1", "0", "-3", "-9"]
    assert [visit.priority for visit in lease.visits] == [1000000, 5, 1, 0, -3, -9]


@pytest.mark.parametrize(("order", "expected"), [("fifo", "01234"), ("lifo", "43210")])
async def test_within_a_priority_the_order_is_that_of_the_crawl(fleet: Fleet, order: str, expected: str) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0, order=order))
    await ann.add("c", paths("a.example", 3))
    await ann.add("c", paths("a.example", 2, start=3))
    made = await drain(fleet, ann, visits=2)
    assert "".join(names(made)) == expected


async def test_one_lease_in_four_comes_from_a_lower_class(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    hosts = fleet.hosts(30)
    for priority, group in ((1, hosts[:20]), (0, hosts[20:25]), (-1, hosts[25:])):
        await ann.add("c", [Visit(url=f"http://{host}/", priority=priority) for host in group])
    priorities: list[int] = []
    for _ in range(8):
        (lease,) = await ann.lease(hosts=1, shards=[0])
        priorities.append(lease.visits[0].priority)
    assert (priorities.count(1), priorities.count(0), priorities.count(-1)) == (6, 1, 1)
    # The same holds when many hosts are taken at once.
    many = [lease.visits[0].priority for lease in await ann.lease(hosts=8, shards=[0])]
    assert (many.count(1), many.count(0), many.count(-1)) == (6, 1, 1)


async def test_a_worker_never_gets_visits_of_spiders_it_lacks(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("plain", Limits(delay_seconds=0))
    await ann.crawls.create("books", Limits(delay_seconds=0, spider="books"))
    for host in ("a.example", "b.example"):
        await ann.add("plain", paths(host, 3))
        await ann.add("books", paths(host, 3))
    made = await end(ann, await ann.lease())
    made += await drain(fleet, ann)
    assert {visit.crawl for visit in made} == {"plain"}
    assert len(made) == 6
    made = await drain(fleet, bob, spiders=("books", "films"))
    assert {visit.crawl for visit in made} == {"books"}
    assert len(made) == 6
    await fleet.check()


async def test_a_worker_with_both_spiders_gets_both(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("plain", Limits(delay_seconds=0))
    await ann.crawls.create("books", Limits(delay_seconds=0, spider="books"))
    for crawl in ("plain", "books"):
        await ann.add(crawl, paths("a.example", 3))
    (lease,) = await ann.lease(spiders=("", "books"))
    assert sorted(visit.crawl for visit in lease.visits) == ["books"] * 3 + ["plain"] * 3


async def test_renewing_does_not_bring_visits_of_spiders_the_holder_lacks(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("plain", Limits(delay_seconds=0))
    await ann.crawls.create("books", Limits(delay_seconds=0, spider="books"))
    for crawl in ("plain", "books"):
        await ann.add(crawl, paths("a.example", 5))
    (lease,) = await ann.lease(visits=1)
    (more,) = await ann.renew([lease], visits=100)
    assert more is not None
    assert {visit.crawl for visit in more.visits} == {"plain"}


# Places


async def test_a_host_has_one_lease_until_its_robots_txt_is_known(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0, places=2))
    await ann.add("c", paths("a.example", 20))
    assert len(await ann.lease(visits=1)) == 1
    assert await bob.lease(visits=1) == []
    await ann.hosts.set_robots("a.example")
    assert len(await bob.lease(visits=1)) == 1


async def test_a_host_with_a_crawl_delay_has_one_lease(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=1, places=4))
    await ann.add("c", paths("a.example", 20))
    await ann.hosts.set_robots("a.example", crawl_delay_seconds=3)
    (lease,) = await ann.lease()
    assert lease.delay_seconds == 3
    assert await bob.lease() == []


async def test_two_slots_go_to_different_workers_first(fleet: Fleet) -> None:
    ann, bob, cy = fleet.worker(), fleet.worker("bob"), fleet.worker("cy")
    await ann.crawls.create("c", Limits(delay_seconds=1, places=2))
    await ann.hosts.set_robots("a.example")
    await ann.add("c", paths("a.example", 20))
    assert len(await ann.lease()) == 1
    assert await ann.lease() == []
    assert len(await bob.lease()) == 1
    assert await cy.lease() == []
    await fleet.check()


async def test_a_single_worker_takes_the_second_slot_after_a_moment(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=1, places=2))
    await ann.hosts.set_robots("a.example")
    await ann.add("c", paths("a.example", 20))
    assert len(await ann.lease()) == 1
    fleet.clock.tick(0.2)
    assert len(await ann.lease()) == 1
    assert await ann.lease() == []


async def test_a_single_worker_takes_the_remaining_slots_together(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=1, places=5))
    for host in ("a.example", "b.example"):
        await ann.hosts.set_robots(host)
        await ann.add("c", paths(host, 20))
    assert sorted(lease.host for lease in await ann.lease(hosts=20)) == ["a.example", "b.example"]
    fleet.clock.tick(0.2)
    rest = Counter(lease.host for lease in await ann.lease(hosts=20))
    assert rest == {"a.example": 4, "b.example": 4}
    assert await ann.lease(hosts=20) == []
    await fleet.check()


async def test_each_slot_keeps_its_own_delay(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=1, places=2))
    await ann.hosts.set_robots("a.example")
    await ann.add("c", paths("a.example", 20))
    first, second = await ann.lease(), await bob.lease()
    await end(ann, first)
    fleet.clock.tick(0.5)
    await end(bob, second)
    assert await ann.lease() == []
    fleet.clock.tick(0.5)
    assert len(await ann.lease()) == 1
    assert await bob.lease() == []
    fleet.clock.tick(0.5)
    assert len(await bob.lease()) == 1


async def test_the_visits_of_a_host_are_shared_by_its_slots(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0, places=2))
    await ann.hosts.set_robots("a.example")
    await ann.add("c", paths("a.example", 6))
    (first,), (second,) = await ann.lease(visits=100), await bob.lease(visits=100)
    assert (len(first.visits), len(second.visits)) == (3, 2)


# Time


async def test_the_delay_counts_from_the_end_of_the_request(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=1))
    await ann.add("c", paths("a.example", 5))
    (lease,) = await ann.lease(visits=1)
    fleet.clock.tick(20)
    await ann.acknowledge(lease, [lease.visits[0].stored()])
    fleet.clock.tick(0.9)
    assert await ann.lease(visits=1) == []
    fleet.clock.tick(0.1)
    (lease,) = await ann.lease(visits=1)
    # The request ended 600 ms before it is acknowledged.
    fleet.clock.tick(5)
    await ann.acknowledge(lease, [lease.visits[0].stored()], finished_ago_seconds=0.6)
    fleet.clock.tick(0.3)
    assert await ann.lease() == []
    fleet.clock.tick(0.1)
    assert len(await ann.lease()) == 1


async def test_a_lease_without_a_request_causes_no_delay(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=10))
    await ann.add("c", paths("a.example", 3))
    (lease,) = await ann.lease(visits=1)
    await ann.acknowledge(lease, [lease.visits[0].excluded("robots")], finished_ago_seconds=None)
    assert len(await ann.lease()) == 1


async def test_urls_that_are_added_later_wait_for_the_delay_too(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=1))
    await ann.add("c", ["http://a.example/1"])
    await end(ann, await ann.lease())
    await ann.add("c", ["https://a.example/2"])
    fleet.clock.tick(0.9)
    assert await ann.lease() == []
    fleet.clock.tick(0.1)
    assert len(await ann.lease()) == 1


@pytest.mark.parametrize(("delay", "visits"), [(0, 8), (0.25, 8), (0.5, 4), (1, 2), (1.5, 1), (30, 1)])
async def test_a_lease_holds_as_many_visits_as_fit_in_its_time(fleet: Fleet, delay: float, visits: int) -> None:
    ann = fleet.worker(batch_seconds=2.0)
    await ann.crawls.create("c", Limits(delay_seconds=delay))
    await ann.add("c", paths("a.example", 20))
    (lease,) = await ann.lease(visits=8)
    assert len(lease.visits) == visits


async def test_slow_responses_make_a_batch_smaller(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0.1))
    await ann.add("c", paths("a.example", 60))
    (lease,) = await ann.lease(visits=20)
    assert len(lease.visits) == 20
    await ann.acknowledge(lease, [v.stored() for v in lease.visits], response_seconds=0.9)
    fleet.clock.tick(1)
    (lease,) = await ann.lease(visits=20)
    assert len(lease.visits) == 2


async def test_a_delay_by_response_time_applies_to_the_whole_fleet(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0.1))
    await ann.add("c", paths("a.example", 60))
    (lease,) = await ann.lease()
    await ann.acknowledge(lease, [v.stored() for v in lease.visits], delay_seconds=4)
    fleet.clock.tick(3.9)
    assert await bob.lease() == []
    fleet.clock.tick(0.1)
    (lease,) = await bob.lease()
    assert lease.delay_seconds == 4
