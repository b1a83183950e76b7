"""Hosts: the effects of operators, robots.txt and failures, for all crawls and all workers."""

from __future__ import annotations

import itertools

import pytest

from shoal.model import Counts, Limits, Visit
from shoal.urls.fingerprint import host_bits
from tests.contract.fleet import Fleet, drain, end, names, paths


async def test_a_host_without_requests_has_no_data(fleet: Fleet) -> None:
    host = await fleet.worker().hosts.get("a.example")
    assert (host.name, host.crawls_waiting, host.leases, host.delay_seconds, host.places) == (
        "a.example",
        0,
        0,
        None,
        None,
    )
    assert (host.gate_at, host.failures, host.blocked, host.robots_known) == (0, 0, "", False)


async def test_a_host_has_the_times_and_results_of_its_requests(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=2))
    await ann.add("c", paths("a.example", 5))
    (lease,) = await ann.lease(visits=1)
    host = await ann.hosts.get("a.example")
    assert (host.crawls_waiting, host.leases) == (1, 1)
    fleet.clock.tick(1)
    done = fleet.clock.seconds
    await ann.acknowledge(lease, [lease.visits[0].stored()], success=True, response_seconds=0.4)
    fleet.clock.tick(5)
    (lease,) = await ann.lease(visits=1)
    await ann.acknowledge(lease, [lease.visits[0].failed("HTTP 500")], success=False, response_seconds=0.8)
    host = await ann.hosts.get("a.example")
    assert host.last_successful_at == pytest.approx(done, abs=0.1)
    assert host.last_finished_at == pytest.approx(fleet.clock.seconds, abs=0.1)
    assert host.gate_at == pytest.approx(fleet.clock.seconds + 2, abs=0.1)
    assert host.mean_response_seconds == pytest.approx(0.5)


async def test_every_spelling_of_a_host_is_one_host(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.hosts.set_delay("a.example", 7)
    for spelling in ("A.EXAMPLE", "a.example.", "a.example:80", "a.example:443"):
        assert (await ann.hosts.get(spelling)).delay_seconds == 7
    assert (await ann.hosts.get("a.example:8080")).delay_seconds is None


async def test_the_delay_of_an_operator_replaces_the_delay_of_the_crawl(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=5))
    await ann.add("c", paths("a.example", 9))
    await ann.hosts.set_delay("a.example", 0.5)
    (lease,) = await ann.lease(visits=1)
    assert lease.delay_seconds == 0.5
    await end(ann, [lease])
    assert (await ann.hosts.set_delay("a.example", 20)).gate_at == pytest.approx(fleet.clock.seconds + 20, abs=0.1)
    fleet.clock.tick(19)
    assert await ann.lease() == []
    assert (await ann.hosts.set_delay("a.example", None)).delay_seconds is None
    (lease,) = await ann.lease(visits=1)
    assert lease.delay_seconds == 5


async def test_a_crawl_delay_in_robots_txt_may_exceed_the_delay_of_an_operator(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    await ann.add("c", paths("a.example", 9))
    await ann.hosts.set_delay("a.example", 0.5)
    host = await ann.hosts.set_robots("a.example", crawl_delay_seconds=9)
    assert (host.robots_known, host.crawl_delay_seconds) == (True, 9)
    assert (await ann.lease())[0].delay_seconds == 9


async def test_an_operator_can_set_the_number_of_slots_of_a_host(fleet: Fleet) -> None:
    ann, bob, cy = fleet.worker(), fleet.worker("bob"), fleet.worker("cy")
    await ann.crawls.create("c", Limits(delay_seconds=0, places=5))
    await ann.hosts.set_robots("a.example")
    assert (await ann.hosts.set_places("a.example", 2)).places == 2
    await ann.add("c", paths("a.example", 30))
    leased = [len(await frontier.lease(visits=1)) for frontier in (ann, bob, cy)]
    assert leased == [1, 1, 0]
    assert (await ann.hosts.set_places("a.example", None)).places is None
    assert len(await cy.lease(visits=1)) == 1


async def test_no_worker_leases_a_postponed_host(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths("a.example", 3))
    assert not await ann.hosts.postpone("a.example", 60)
    # A shorter back-off does not take back a longer one.
    await bob.hosts.postpone("a.example", 1)
    assert (await ann.hosts.get("a.example")).backoff_until == pytest.approx(fleet.clock.seconds + 60)
    fleet.clock.tick(59)
    assert await bob.lease() == []
    await ann.add("c", paths("a.example", 3, start=10))
    assert await bob.lease() == []
    fleet.clock.tick(1)
    assert len(await bob.lease()) == 1
    await fleet.check()


async def test_a_host_that_never_responds_is_given_up_and_can_be_retried(fleet: Fleet) -> None:
    ann = fleet.worker()
    for crawl in ("one", "two"):
        await ann.crawls.create(crawl, Limits(delay_seconds=0))
        await ann.add(crawl, [*paths("dead.example", 300), *paths("live.example", 2)])
    for failure in range(1, 4):
        aside = await ann.hosts.postpone("dead.example", 1, failed=True, host_failures=3, reason="no route")
        assert aside == (failure == 3)
        assert (await ann.hosts.get("dead.example")).failures == failure
    for crawl in ("one", "two"):
        reasons = {"failed:no route": 300}
        assert await ann.crawls.count(crawl) == Counts(admitted=302, waiting=2, failed=300, reasons=reasons)
    await drain(fleet, ann)
    assert await ann.crawls.finish("one")
    await fleet.check()
    failed = await ann.crawls.failed("one", most=1000)
    assert {why for _, why in failed} == {"no route"}
    assert {visit.url for visit, _ in failed} == set(paths("dead.example", 300))
    assert await ann.crawls.retry("one") == 300
    await ann.hosts.unblock("dead.example")
    made = await drain(fleet, ann)
    assert sorted(names(made), key=int) == [str(i) for i in range(300)]
    assert await ann.crawls.finished("one")
    assert (await ann.crawls.count("one")).stored == 302
    await fleet.check()


async def test_a_success_resets_the_count_of_failures(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths("a.example", 3))
    await ann.hosts.postpone("a.example", 0, failed=True)
    (lease,) = await ann.lease(visits=1)
    await ann.acknowledge(lease, [lease.visits[0].stored()], success=True)
    assert (await ann.hosts.get("a.example")).failures == 0


async def test_blocking_a_host_fails_its_waiting_visits_and_unblocking_allows_retries(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", [*paths("a.example", 5), *paths("b.example", 1)])
    leases = {lease.host: lease for lease in await ann.lease(visits=2)}
    assert (await ann.hosts.block("a.example", "asked us to stop")).blocked == "asked us to stop"
    counts = await ann.crawls.count("c")
    assert (counts.failed, counts.leased, counts.waiting) == (3, 3, 0)
    assert counts.reasons == {"failed:asked us to stop": 3}
    # Visits that its holder could not make any more fail too, they do not wait forever.
    await ann.release([leases["a.example"]])
    assert (await ann.crawls.count("c")).failed == 5
    assert await bob.lease() == []
    await fleet.check()
    host = await ann.hosts.unblock("a.example")
    assert (host.blocked, host.failures, host.backoff_until) == ("", 0, 0)
    assert await bob.lease() == []
    assert await ann.crawls.retry("c") == 5
    made = await drain(fleet, bob)
    assert len(made) == 5
    await fleet.check()


async def test_a_retry_of_a_blocked_host_fails_again(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths("a.example", 1))
    (lease,) = await ann.lease()
    await ann.hosts.block("a.example")
    await ann.acknowledge(lease, [lease.visits[0].retry(5)])
    assert not await ann.crawls.finished("c")
    fleet.clock.tick(5)
    assert await ann.lease() == []
    assert await ann.crawls.finished("c")
    assert (await ann.crawls.count("c")).failed == 1


async def test_blocking_twice_and_unblocking_once_unblocks(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    await ann.hosts.block("a.example", "first")
    await ann.hosts.block("a.example", "second")
    await ann.hosts.unblock("a.example")
    await ann.hosts.unblock("a.example")
    assert (await ann.add("c", ["http://a.example/"])).letters == "n"
    await ann.hosts.block("b.example")
    assert (await ann.add("c", ["http://b.example/"])).letters == "b"


async def test_a_host_without_waiting_visits_is_forgotten_a_day_after_its_gate(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=10))
    quiet, kept = fleet.hosts(2)
    key = {host: fleet.shards.prefixes[fleet.shards.of(host)] + "h:" + host for host in (quiet, kept)}
    await ann.hosts.set_delay(kept, 5)
    await ann.add("c", [*paths(quiet, 1), *paths(kept, 1)])
    await end(ann, await ann.lease())
    assert 86_400_000 < await fleet.store.command("PTTL", key[quiet], key=key[quiet]) <= 86_410_000
    assert await fleet.store.command("PTTL", key[kept], key=key[kept]) == -1
    await ann.add("c", [f"http://{quiet}/again"])
    fleet.clock.tick(20)
    await ann.lease()
    assert await fleet.store.command("PTTL", key[quiet], key=key[quiet]) == -1


async def test_a_visit_may_be_queued_under_another_host_than_that_of_its_url(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=1))
    names = [f"http://name-{number}.example/a?b=1" for number in range(3)]
    added = await ann.add("c", [Visit(url=url, host="192.0.2.7", depth=1) for url in names])
    assert added.new == 3
    (lease,) = await ann.lease(visits=3)
    assert lease.host == "192.0.2.7"
    assert [visit.url for visit in lease.visits] == names[:2]
    assert await ann.lease() == []
    assert (await ann.add("c", [Visit(url=names[0], host="192.0.2.7")])).seen == 1
    await fleet.check()


async def test_a_visit_under_an_address_is_not_taken_for_the_one_under_its_name(fleet: Fleet) -> None:
    address = "192.0.2.7"
    # Fingerprints contain ten bits of the host: one name in 1,024 has those of the address.
    candidates = (f"name-{number}.example" for number in itertools.count())
    name = next(candidate for candidate in candidates if host_bits(candidate) == host_bits(address))
    url = f"http://{name}/"
    ann = fleet.worker()
    await ann.crawls.create("c")
    assert (await ann.add("c", [url])).new == 1
    assert (await ann.add("c", [Visit(url=url, host=address)])).new == 1
    assert (await ann.add("c", [url, Visit(url=url, host=address)])).seen == 2
    await fleet.check()
