"""max_pages: exactly that many are stored when they exist, over all shards and through failures and deaths."""

from __future__ import annotations

import pytest

from shoal.frontier import Frontier
from shoal.model import Limits, Outcome, State, Visit
from tests.contract.fleet import Fleet, drain, end, paths


async def _filled(fleet: Fleet, ann: Frontier, pages: int, urls: int = 10) -> None:
    await ann.crawls.create("c", Limits(delay_seconds=0, max_pages=pages))
    for host in fleet.hosts(12, shard=None):
        await ann.add("c", paths(host, urls))


@pytest.mark.parametrize("pages", [1, 7, 40, 119])
async def test_exactly_max_pages_pages_are_stored(fleet: Fleet, pages: int) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await _filled(fleet, ann, pages)
    made = 0
    while (await ann.crawls.get("c")).state is State.RUNNING:
        for frontier in (ann, bob):
            made += len(await end(frontier, await frontier.lease(hosts=3, visits=3)))
        fleet.clock.tick(0.5)
    counts = await ann.crawls.count("c")
    assert (counts.stored, made) == (pages, pages)
    assert counts.reasons == {"excluded:max pages": 120 - pages}
    crawl = await ann.crawls.get("c")
    assert (crawl.state, crawl.why) == (State.FINISHED, "max pages")
    await fleet.check()


async def test_a_crawl_with_fewer_pages_than_its_limit_ends_when_all_are_stored(fleet: Fleet) -> None:
    ann = fleet.worker()
    await _filled(fleet, ann, 1000)
    assert len(await drain(fleet, ann)) == 120
    assert await ann.crawls.finish("c")


async def test_visits_that_fail_do_not_count_as_pages(fleet: Fleet) -> None:
    ann = fleet.worker()
    await _filled(fleet, ann, 50)
    tried: set[str] = set()

    def now_and_then(visit: Visit) -> Outcome:
        number = int(visit.url.rpartition("/")[2])
        if number % 3 == 0:
            return visit.failed("broken")
        if number % 3 == 1 and visit.url not in tried:
            tried.add(visit.url)
            return visit.retry(1)
        return visit.excluded("robots") if number == 5 else visit.stored()

    await drain(fleet, ann, how=now_and_then, visits=3)
    counts = await ann.crawls.count("c")
    assert counts.stored == 50
    assert (await ann.crawls.get("c")).state is State.FINISHED
    await fleet.check()


async def test_page_budget_is_not_lost_with_a_worker_that_dies(fleet: Fleet) -> None:
    ann, supervisor = fleet.worker(), fleet.worker("boss")
    await _filled(fleet, ann, 60)
    for death in range(6):
        victim = fleet.worker(f"victim{death}", lease_seconds=5)
        leases = await victim.lease(hosts=4, visits=3)
        await end(victim, leases[:1])
        if death % 2:
            await supervisor.reap(victim.worker)
        else:
            fleet.clock.tick(6)
    await drain(fleet, ann)
    assert (await ann.crawls.count("c")).stored == 60
    await fleet.check()


async def test_page_budget_drawn_by_a_worker_that_dies_before_passing_it_on_is_not_lost(fleet: Fleet) -> None:
    ann = fleet.worker()
    await _filled(fleet, ann, 60)
    home = fleet.shards.home("c")
    # Half of the page budget is drawn for shards that never receive it.
    for shard in range(fleet.shards.count):
        status, granted, _left = await fleet.run("draw", home, "c", shard, 0, 0, 10)
        assert (status, granted) == (0, 10)
        # The same call again grants nothing more.
        assert (await fleet.run("draw", home, "c", shard, 0, 0, 10))[1] == 10
    await drain(fleet, ann, visits=2)
    assert (await ann.crawls.count("c")).stored == 60
    assert (await ann.crawls.get("c")).why == "max pages"
    await fleet.check()


async def test_page_budget_that_a_shard_cannot_use_moves_to_one_that_can(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0, max_pages=40))
    poor, rich = fleet.hosts(1, shard=0)[0], fleet.hosts(1, shard=3)[0]
    await ann.add("c", [*paths(poor, 10), *paths(rich, 100)])
    # All pages are granted to the shard that has ten URLs, and they fail.
    await fleet.run("draw", fleet.shards.home("c"), "c", 0, 0, 0, 40)
    key = (await ann.crawls.get("c")).key
    await fleet.run("allow", 0, key, 40, "0")
    await drain(fleet, ann, how=lambda v: v.failed("down") if poor in v.url else v.stored(), visits=20)
    counts = await ann.crawls.count("c")
    assert (counts.stored, counts.failed) == (40, 10)
    await fleet.check()


async def test_a_crawl_without_page_budget_does_not_block_hosts_of_other_crawls(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("few", Limits(delay_seconds=0, max_pages=1))
    await ann.crawls.create("many", Limits(delay_seconds=0))
    for host in ("a.example", "b.example", "c.example"):
        await ann.add("few", paths(host, 5))
    # The only page is leased, and its worker is slow.
    (held,) = await bob.lease(hosts=1, visits=1)
    for host in ("a.example", "b.example", "c.example"):
        await ann.add("many", paths(host, 5))
    await drain(fleet, ann, visits=3)
    counts = await ann.crawls.count("many")
    assert counts.stored >= 10
    await end(bob, [held])
    await drain(fleet, ann, visits=3)
    assert (await ann.crawls.count("many")).stored == 15
    assert (await ann.crawls.count("few")).stored == 1
    await fleet.check()


async def test_two_crawls_with_limits_have_separate_page_budgets(fleet: Fleet) -> None:
    ann = fleet.worker()
    for crawl, pages in (("one", 13), ("two", 31)):
        await ann.crawls.create(crawl, Limits(delay_seconds=0, max_pages=pages))
        for host in fleet.hosts(6, shard=None):
            await ann.add(crawl, paths(host, 8))
    await drain(fleet, ann, visits=3)
    assert [(await ann.crawls.count(crawl)).stored for crawl in ("one", "two")] == [13, 31]
    await fleet.check()
