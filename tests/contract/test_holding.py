"""What a worker does with a lease: renew, acknowledge, release; and what happens when the worker dies."""

from __future__ import annotations

import msgspec
import pytest

from shoal.errors import LeaseLost
from shoal.frontier import Done, mono
from shoal.model import Counts, Limits, Visit
from tests.contract.fleet import Fleet, drain, end, names, paths

# Renewing


async def test_a_renewed_lease_is_valid_for_its_full_duration_again(fleet: Fleet) -> None:
    ann, bob = fleet.worker(lease_seconds=10), fleet.worker("bob")
    await ann.crawls.create("c")
    await ann.add("c", paths("a.example", 3))
    (lease,) = await ann.lease()
    for _ in range(3):
        fleet.clock.tick(8)
        (renewed,) = await ann.renew([lease])
        assert renewed is not None
        assert renewed.visits == ()
        assert renewed.trusted_until_mono >= lease.trusted_until_mono
    fleet.clock.tick(9)
    assert await bob.lease() == []
    await ann.acknowledge(lease, [visit.stored() for visit in lease.visits])
    await fleet.check()


async def test_a_lease_is_trusted_for_less_time_than_it_is_valid(fleet: Fleet) -> None:
    ann = fleet.worker(lease_seconds=10)
    await ann.crawls.create("c")
    await ann.add("c", paths("a.example", 1))
    called = mono()
    (lease,) = await ann.lease()
    assert called + 9 <= lease.trusted_until_mono <= mono() + 9


async def test_an_expired_lease_cannot_be_renewed(fleet: Fleet) -> None:
    ann = fleet.worker(lease_seconds=10)
    await ann.crawls.create("c")
    await ann.add("c", [*paths("a.example", 1), *paths("b.example", 1)])
    old = await ann.lease()
    fleet.clock.tick(5)
    (kept,) = await ann.renew(old[:1])
    fleet.clock.tick(6)
    renewed = await ann.renew(old)
    assert kept is not None
    assert [lease is None for lease in renewed] == [False, True]


async def test_renewing_adds_visits_to_a_lease(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths("a.example", 10))
    (lease,) = await ann.lease(visits=2)
    (more,) = await ann.renew([lease], visits=5)
    assert more is not None
    assert names(more.visits) == ["2", "3", "4"]
    assert [visit.number for visit in more.visits] == [3, 4, 5]
    await ann.acknowledge(more, [visit.stored() for visit in (*lease.visits, *more.visits)])
    assert (await ann.crawls.count("c")).stored == 5
    await fleet.check()


async def test_visits_of_a_lost_renewal_are_returned_by_the_next(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths("a.example", 10))
    (lease,) = await ann.lease(visits=2)
    (lost,) = await ann.renew([lease], visits=4)
    (again,) = await ann.renew([lease], visits=4)
    assert lost is not None
    assert again is not None
    assert names(again.visits) == names(lost.visits) == ["2", "3"]


async def test_visits_added_by_renewing_fit_in_the_time_of_a_batch(fleet: Fleet) -> None:
    ann = fleet.worker(batch_seconds=4)
    await ann.crawls.create("c", Limits(delay_seconds=1))
    await ann.add("c", paths("a.example", 20))
    (lease,) = await ann.lease(visits=1)
    (more,) = await ann.renew([lease], visits=20)
    assert more is not None
    assert len(more.visits) == 3


async def test_renewing_adds_no_visits_of_paused_crawls_or_blocked_hosts(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", [*paths("a.example", 5), *paths("b.example", 5)])
    leases = {lease.host: lease for lease in await ann.lease(visits=1)}
    await ann.hosts.block("b.example")
    (more,) = await ann.renew([leases["b.example"]], visits=5)
    assert more is not None
    assert more.visits == ()
    await ann.crawls.pause("c")
    (more,) = await ann.renew([leases["a.example"]], visits=5)
    assert more is not None
    assert more.visits == ()
    await fleet.check()


# Acknowledging


async def test_every_outcome_is_counted_with_its_reason(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths("a.example", 6))
    (lease,) = await ann.lease()
    v = lease.visits
    outcomes = [v[0].stored(), v[1].failed("HTTP 500"), v[2].failed("HTTP 500"), v[3].excluded("robots"), v[4].retry(9)]
    await ann.acknowledge(lease, outcomes)
    reasons = {"failed:HTTP 500": 2, "excluded:robots": 1}
    expected = Counts(admitted=6, leased=1, later=1, stored=1, failed=2, excluded=1, reasons=reasons)
    assert await ann.crawls.count("c") == expected
    assert not await ann.crawls.finished("c")
    await fleet.check()


async def test_a_slot_is_free_after_the_last_visit_of_its_lease(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths("a.example", 4))
    (lease,) = await ann.lease(visits=2)
    await ann.acknowledge(lease, [lease.visits[0].stored()])
    assert await ann.lease() == []
    await ann.acknowledge(lease, [lease.visits[1].stored()])
    assert len(await ann.lease()) == 1


async def test_a_visit_is_acknowledged_once(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths("a.example", 2))
    (lease,) = await ann.lease()
    await ann.acknowledge(lease, [lease.visits[0].stored(), lease.visits[0].stored()])
    await ann.acknowledge(lease, [lease.visits[0].failed("late")])
    assert await ann.crawls.count("c") == Counts(admitted=2, leased=1, stored=1)
    await fleet.check()


async def test_a_retry_is_leased_when_it_is_due_and_marked_as_a_retry(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", [Visit(url="http://a.example/1", depth=2, priority=4, meta={"a": 1})])
    (visit,) = await end(ann, await ann.lease(), lambda v: v.retry(30))
    assert (await ann.crawls.count("c")).later == 1
    fleet.clock.tick(29)
    assert await ann.lease() == []
    fleet.clock.tick(1)
    (again,) = await end(ann, await ann.lease())
    assert again.retries == 1
    assert (again.url, again.depth, again.priority, again.meta) == (visit.url, 2, 4, {"a": 1})
    assert await ann.crawls.count("c") == Counts(admitted=1, stored=1)


async def test_a_revisit_is_a_new_admission(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths("a.example", 1))
    await end(ann, await ann.lease(), lambda v: v.stored(revisit_seconds=3600))
    assert await ann.crawls.count("c") == Counts(admitted=2, later=1, stored=1)
    assert not await ann.crawls.finished("c")
    fleet.clock.tick(3599)
    assert await ann.lease() == []
    fleet.clock.tick(1)
    await end(ann, await ann.lease())
    assert await ann.crawls.count("c") == Counts(admitted=2, stored=2)
    assert await ann.crawls.finished("c")


async def test_a_stale_acknowledgement_counts_nothing_and_only_delays_the_gate(fleet: Fleet) -> None:
    ann, bob = fleet.worker(lease_seconds=10), fleet.worker("bob", lease_seconds=10)
    await ann.crawls.create("c", Limits(delay_seconds=1))
    await ann.add("c", paths("a.example", 3))
    (stale,) = await ann.lease(visits=1)
    fleet.clock.tick(12)
    await end(bob, await bob.lease(visits=1))
    counts = await ann.crawls.count("c")
    gate = (await ann.hosts.get("a.example")).gate_at
    with pytest.raises(LeaseLost, match="Worker ann lost leases: 1"):
        await ann.acknowledge(stale, [stale.visits[0].failed("late")], finished_ago_seconds=11)
    assert (await ann.hosts.get("a.example")).gate_at == gate
    fleet.clock.tick(5)
    with pytest.raises(LeaseLost):
        await ann.acknowledge(stale, [stale.visits[0].failed("late")])
    assert await ann.crawls.count("c") == counts
    # Its request ended just now, so the host gets no request before the delay is over.
    assert (await ann.hosts.get("a.example")).gate_at == pytest.approx(fleet.clock.seconds + 1, abs=0.2)
    fleet.clock.tick(0.8)
    assert await bob.lease() == []
    fleet.clock.tick(0.2)
    assert len(await bob.lease()) == 1
    await fleet.check()


async def test_a_stale_acknowledgement_delays_urls_that_are_added_later(fleet: Fleet) -> None:
    ann, bob = fleet.worker(lease_seconds=10), fleet.worker("bob", lease_seconds=10)
    await ann.crawls.create("c", Limits(delay_seconds=1))
    await ann.add("c", paths("a.example", 1))
    (stale,) = await ann.lease()
    fleet.clock.tick(12)
    await end(bob, await bob.lease())
    fleet.clock.tick(5)
    with pytest.raises(LeaseLost):
        await ann.acknowledge(stale, [stale.visits[0].stored()])
    await ann.add("c", ["http://a.example/new"])
    fleet.clock.tick(0.8)
    assert await bob.lease() == []


async def test_a_lost_lease_among_many_keeps_the_others(fleet: Fleet) -> None:
    ann, bob = fleet.worker(lease_seconds=10), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    hosts = fleet.hosts(4, shard=None)
    await ann.add("c", [f"http://{host}/" for host in hosts])
    leases = await ann.lease()
    fleet.clock.tick(5)
    kept = [lease for lease in await ann.renew(leases[1:]) if lease is not None]
    fleet.clock.tick(6)
    assert len(kept) == 3
    await bob.lease()
    with pytest.raises(LeaseLost, match="leases: 1"):
        await ann.acknowledge_all([Done(lease=lease, outcomes=[v.stored() for v in lease.visits]) for lease in leases])
    assert (await ann.crawls.count("c")).stored == 3
    await fleet.check()


async def test_a_lease_with_the_token_of_another_host_is_lost(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths("a.example", 1))
    (lease,) = await ann.lease()
    with pytest.raises(LeaseLost):
        await ann.acknowledge(msgspec.structs.replace(lease, host="b.example"), [lease.visits[0].stored()])
    assert (await ann.crawls.count("c")).leased == 1


async def test_failed_visits_are_listed_with_their_reasons(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    hosts = fleet.hosts(6, shard=None)
    await ann.add("c", [Visit(url=f"http://{host}/x?a b", priority=2, meta={"h": host}) for host in hosts])
    await end(ann, await ann.lease(hosts=50), lambda v: v.failed(f"cannot reach {v.meta['h']}"))
    failed = await ann.crawls.failed("c")
    assert {(visit.url, why) for visit, why in failed} == {
        (f"http://{host}/x?a%20b", f"cannot reach {host}") for host in hosts
    }
    assert {(visit.priority, visit.crawl) for visit, _ in failed} == {(2, "c")}
    assert len(await ann.crawls.failed("c", most=4)) == 4


# Releasing


@pytest.mark.parametrize("order", ["fifo", "lifo"])
async def test_released_visits_keep_their_order(fleet: Fleet, order: str) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0, order=order))
    await ann.add("c", [Visit(url=f"http://a.example/{i}", priority=i // 4) for i in range(8)])
    (lease,) = await ann.lease(visits=6)
    await ann.release([lease])
    await fleet.check()
    (again,) = await ann.lease(visits=8)
    assert names(again.visits)[:6] == names(lease.visits)
    assert {visit.expiries + visit.retries + visit.blames for visit in again.visits} == {0}


async def test_kept_visits_stay_leased_while_their_slot_is_free(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=1))
    await ann.add("c", paths("a.example", 4))
    (lease,) = await ann.lease(visits=2)
    await ann.release([lease], keep=[lease.visits[0]], finished_ago_seconds=0)
    await fleet.check()
    assert await bob.lease() == []
    fleet.clock.tick(1)
    (other,) = await bob.lease(visits=10)
    assert names(other.visits) == ["1", "2"]
    await ann.acknowledge(lease, [lease.visits[0].stored()], finished_ago_seconds=1)
    await end(bob, [other])
    assert (await ann.crawls.count("c")).stored == 3
    await fleet.check()


async def test_releasing_a_lost_lease_is_not_an_error(fleet: Fleet) -> None:
    ann = fleet.worker(lease_seconds=5)
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths("a.example", 2))
    leases = await ann.lease()
    fleet.clock.tick(6)
    await ann.lease()
    state = await fleet.state()
    await ann.release(leases)
    assert await fleet.state() == state


# Dying


async def test_an_expired_lease_goes_to_another_worker_after_the_delay(fleet: Fleet) -> None:
    ann, bob = fleet.worker(lease_seconds=10), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=3))
    await ann.add("c", paths("a.example", 2))
    (lease,) = await ann.lease()
    fleet.clock.tick(12.9)
    assert await bob.lease() == []
    fleet.clock.tick(0.1)
    (other,) = await bob.lease()
    assert names(other.visits) == names(lease.visits)
    assert other.visits[0].expiries == 1
    with pytest.raises(LeaseLost):
        await ann.acknowledge(lease, [lease.visits[0].stored()])
    await fleet.check()


async def test_a_visit_whose_leases_keep_expiring_fails(fleet: Fleet) -> None:
    ann = fleet.worker(lease_seconds=1, expiries=3)
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths("a.example", 1))
    expiries = []
    for _ in range(3):
        (lease,) = await ann.lease()
        expiries.append(lease.visits[0].expiries)
        fleet.clock.tick(1)
    assert await ann.lease() == []
    assert expiries == [0, 1, 2]
    ((visit, why),) = await ann.crawls.failed("c")
    assert (visit.url, why) == ("http://a.example/0", "lease expired")
    assert await ann.crawls.finished("c")


async def test_the_leases_of_a_dead_worker_are_reaped_at_once(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=1))
    hosts = fleet.hosts(6, shard=None)
    await ann.add("c", [url for host in hosts for url in paths(host, 3)])
    await ann.lease(visits=2)
    assert await bob.reap("ann") == 6
    await fleet.check()
    # Its last requests may have been open until just now.
    fleet.clock.tick(0.9)
    assert await bob.lease() == []
    fleet.clock.tick(0.1)
    leases = await bob.lease(hosts=24)
    assert len(leases) == 6
    assert {visit.expiries for lease in leases for visit in lease.visits} == {1}
    assert await bob.reap("ann") == 0


async def test_reaping_one_worker_does_not_affect_another(fleet: Fleet) -> None:
    ann, joann = fleet.worker(), fleet.worker("jo.ann")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    first, second = fleet.hosts(2)
    await ann.add("c", paths(first, 1))
    await ann.lease()
    await ann.add("c", paths(second, 1))
    (kept,) = await joann.lease()
    assert await ann.reap("ann") == 1
    await joann.acknowledge(kept, [kept.visits[0].stored()])


async def test_the_third_worker_a_visit_kills_fails_it_as_poison(fleet: Fleet) -> None:
    supervisor = fleet.worker("boss")
    await supervisor.crawls.create("c", Limits(delay_seconds=0))
    await supervisor.add("c", paths("a.example", 3))
    for death in range(3):
        victim = fleet.worker(f"victim{death}")
        (lease,) = await victim.lease()
        guilty = next(visit for visit in lease.visits if visit.url.endswith("/0"))
        assert guilty.blames == death
        await supervisor.reap(victim.worker, token=lease.token, number=guilty.number)
    counts = await supervisor.crawls.count("c")
    assert (counts.failed, counts.waiting, counts.reasons) == (1, 2, {"failed:poison": 1})
    made = await drain(fleet, supervisor)
    assert names(made) == ["1", "2"]
    assert {visit.blames for visit in made} == {0}
    assert await supervisor.crawls.finished("c")


async def test_reaping_many_leases_takes_them_all(fleet: Fleet) -> None:
    ann, supervisor = fleet.worker(), fleet.worker("boss")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    hosts = fleet.hosts(250)
    await ann.add("c", [f"http://{host}/" for host in hosts])
    assert len(await ann.lease(hosts=250, shards=[0])) == 250
    assert await supervisor.reap("ann") == 250
    assert (await ann.crawls.count("c")).leased == 0
    await fleet.check()
