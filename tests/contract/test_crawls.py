"""Crawls: made, paused, resumed, stopped, expired, finished, retried, deleted; and what they remember."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shoal.errors import CrawlEnded, CrawlExists, InvalidInput, UnknownCrawl
from shoal.frontier import Frontier
from shoal.model import Counts, Lease, Limits, State, Visit
from shoal.model.crawl_spec import CrawlSpec
from shoal.operations.describe import waiting_for
from shoal.operations.maintenance import Maintainer
from shoal.settings import Settings
from tests.contract.fleet import Fleet, drain, end, names, paths

# What may be left of a deleted crawl: its id, and what belongs to hosts and workers.
_LASTING = ("meta", "workers", "acks", "idle", "keys", "crawls", "crawl:", "h:", "j:", "journal", "rest")


async def test_a_crawl_is_stored_as_it_was_created(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    limits = Limits(
        delay_seconds=2.5, places=3, priority=-4, max_pages=10, max_pages_per_host=5, max_depth=7, order="lifo",
        expires_at=fleet.clock.seconds + 9, dedup_seconds=60, spider="books",
    )  # fmt: skip
    made = await ann.crawls.create("news:2024@home", limits, {"seeds": ["http://a.example/"], "deep": {"a": [1]}})
    seen = await bob.crawls.get("news:2024@home")
    assert seen == made
    assert (seen.limits, seen.state, seen.created_at) == (limits, State.RUNNING, fleet.clock.seconds)
    assert seen.spec == {"seeds": ["http://a.example/"], "deep": {"a": [1]}}


async def test_an_id_can_be_used_once(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    with pytest.raises(CrawlExists, match="is running"):
        await ann.crawls.create("c")
    await ann.crawls.stop("c")
    with pytest.raises(CrawlExists, match="is stopped"):
        await ann.crawls.create("c")
    await ann.crawls.delete("c")
    with pytest.raises(CrawlExists, match="is deleted"):
        await ann.crawls.create("c")
    for frontier in (ann, fleet.worker("bob")):
        with pytest.raises(CrawlEnded, match="deleted"):
            await frontier.add("c", ["http://a.example/"])


async def test_an_unknown_crawl_is_reported_by_name(fleet: Fleet) -> None:
    crawls = fleet.worker().crawls
    for call in (
        crawls.get("x"), crawls.pause("x"), crawls.resume("x"), crawls.stop("x"), crawls.expire("x", 1),
        crawls.delete("x"), crawls.count("x"), crawls.finished("x"), crawls.finish("x"), crawls.retry("x"),
        crawls.failed("x"), crawls.forget("x", ["http://a.example/"]),
    ):  # fmt: skip
        with pytest.raises(UnknownCrawl, match="no crawl 'x'"):
            await call


async def test_all_crawls_are_listed(fleet: Fleet) -> None:
    ann = fleet.worker()
    for number in range(10):
        await ann.crawls.create(f"c{number}")
    await ann.crawls.stop("c3")
    await ann.crawls.delete("c3")
    await ann.crawls.pause("c4")
    listed = {crawl.id: crawl.state async for crawl in ann.crawls.all()}
    assert listed == {f"c{n}": State.PAUSED if n == 4 else State.RUNNING for n in range(10) if n != 3}


async def test_counts_are_summed_over_all_shards(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    hosts = fleet.hosts(10, shard=None)
    await ann.add("c", [url for host in hosts for url in paths(host, 3)])
    leases = await ann.lease(hosts=40, visits=2)
    await end(ann, leases[:4])
    counts = await fleet.worker("bob").crawls.count("c")
    assert counts == Counts(admitted=30, waiting=10, leased=12, stored=8)
    assert (counts.open, counts.ended) == (22, 8)


# Pausing


async def test_a_paused_crawl_gives_no_leases_and_loses_nothing(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    hosts = fleet.hosts(130)
    await ann.add("c", [url for host in hosts for url in paths(host, 2)])
    held = await bob.lease(hosts=10, visits=1, shards=[0])
    assert (await ann.crawls.pause("c")).state is State.PAUSED
    for _ in range(4):
        assert await ann.lease(hosts=100) == []
    await end(bob, held)
    assert (await ann.add("c", paths(hosts[0], 1, start=50))).new == 1
    assert await ann.lease() == []
    await fleet.check()
    await ann.crawls.resume("c")
    made = await drain(fleet, ann, hosts=100)
    assert len(made) == 251
    assert await ann.crawls.finish("c")
    await fleet.check()


async def test_pausing_and_resuming_twice_changes_nothing_more(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    first = await ann.crawls.pause("c")
    assert await ann.crawls.pause("c") == first
    await ann.crawls.resume("c")
    assert (await ann.crawls.resume("c")).state is State.RUNNING


async def test_a_pause_with_a_reason_is_ended_by_that_reason_or_by_an_operator(fleet: Fleet) -> None:
    ann = fleet.worker("ann")
    await ann.crawls.create("c")
    assert (await ann.crawls.resume("c", "output unavailable")).state is State.RUNNING
    paused = await ann.crawls.pause("c", "output unavailable")
    assert (paused.state, paused.why) == (State.PAUSED, "output unavailable")
    assert (await ann.crawls.resume("c", "another reason")).state is State.PAUSED
    # A reason more changes nothing, nor does another limit.
    assert (await ann.crawls.pause("c", "another reason")).why == "output unavailable"
    assert (await ann.crawls.expire("c", 4e9)).why == "output unavailable"
    resumed = await ann.crawls.resume("c", "output unavailable")
    assert (resumed.state, resumed.why) == (State.RUNNING, "")
    await ann.crawls.pause("c", "output unavailable")
    # A pause without a reason must stay.
    assert (await ann.crawls.pause("c")).why == ""
    assert (await ann.crawls.resume("c", "output unavailable")).state is State.PAUSED
    assert (await ann.crawls.resume("c")).state is State.RUNNING


async def test_a_worker_that_has_cached_a_crawl_notices_its_pause(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await bob.add("c", paths("a.example", 5))
    await end(bob, await bob.lease(visits=1))
    await ann.crawls.pause("c")
    assert await bob.lease() == []


# Ending


async def test_stopping_excludes_waiting_visits_and_lets_leased_ones_finish(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths("a.example", 10))
    (lease,) = await ann.lease(visits=4)
    await ann.acknowledge(lease, [lease.visits[0].retry(5)])
    stopped = await ann.crawls.stop("c", why="enough")
    assert (stopped.state, stopped.why, stopped.ended_at) == (State.STOPPED, "enough", fleet.clock.seconds)
    assert (await ann.crawls.count("c")).excluded == 7
    await ann.acknowledge(lease, [lease.visits[1].stored(), lease.visits[2].retry(1), lease.visits[3].failed("late")])
    counts = await ann.crawls.count("c")
    assert (counts.stored, counts.failed, counts.excluded, counts.open) == (1, 1, 8, 0)
    assert counts.reasons == {"excluded:enough": 7, "excluded:stopped": 1, "failed:late": 1}
    assert await ann.lease() == []
    assert await ann.crawls.finished("c")
    await fleet.check()
    with pytest.raises(CrawlEnded, match="stopped and cannot be resumed"):
        await ann.crawls.resume("c")


async def test_a_spider_of_starting_workers_is_not_reported_as_missing(fleet: Fleet) -> None:
    ann = fleet.worker()
    crawl = await ann.crawls.create("c", Limits(delay_seconds=0, spider="Books"))
    await ann.add("c", paths("a.example", 1))
    assert await waiting_for(ann, crawl) == ("waiting: no worker has spider Books",)
    assert await waiting_for(ann, crawl, {"Books"}) == ()


async def test_a_crawl_expires_at_its_time(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0, expires_at=fleet.clock.seconds + 100))
    await bob.add("c", paths("a.example", 5))
    await end(bob, await bob.lease(visits=1))
    fleet.clock.tick(99)
    await end(bob, await bob.lease(visits=1))
    fleet.clock.tick(1)
    assert await bob.lease() == []
    assert (await ann.crawls.get("c")).state is State.EXPIRED
    assert (await ann.crawls.count("c")).reasons == {"excluded:expired": 3}
    with pytest.raises(CrawlEnded, match="expired"):
        await bob.add("c", paths("a.example", 1, start=9))
    assert await ann.crawls.finished("c")
    await fleet.check()


async def test_the_expiry_of_a_crawl_can_be_set_and_removed(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths("a.example", 5))
    assert (await ann.crawls.expire("c", fleet.clock.seconds + 10)).limits.expires_at == fleet.clock.seconds + 10
    await ann.crawls.expire("c", 0)
    fleet.clock.tick(20)
    await end(ann, await ann.lease(visits=1))
    await ann.crawls.expire("c", fleet.clock.seconds + 10)
    fleet.clock.tick(10)
    assert await ann.lease() == []
    assert (await ann.crawls.get("c")).state is State.EXPIRED


async def test_a_crawl_is_reported_as_finished_exactly_when_it_is(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    assert await ann.crawls.finished("c")
    leases: list[Lease] = []
    # A chain that hops over the shards: at every moment one visit is open.
    for host in fleet.hosts(12, shard=None):
        await ann.add("c", [f"http://{host}/"])
        assert not await ann.crawls.finished("c")
        await end(ann, leases)
        assert not await ann.crawls.finished("c")
        leases = await ann.lease()
        assert not await ann.crawls.finish("c")
    await end(ann, leases)
    assert await ann.crawls.finished("c")
    assert await ann.crawls.finish("c")
    crawl = await ann.crawls.get("c")
    assert (crawl.state, crawl.why) == (State.FINISHED, "finished")
    with pytest.raises(CrawlEnded, match="finished"):
        await ann.add("c", ["http://late.example/"])


async def test_a_refused_attempt_to_finish_a_running_crawl_changes_nothing(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", [f"http://{host}/" for host in fleet.hosts(6, shard=None)])
    assert not await ann.crawls.finish("c")
    assert (await ann.crawls.get("c")).state is State.RUNNING
    assert len(await drain(fleet, ann)) == 6


async def test_a_crawl_is_not_finished_if_a_late_visit_arrives_meanwhile(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", [f"http://{host}/" for host in fleet.hosts(6, shard=None)])
    await drain(fleet, ann)
    finished = ann.crawls.finished

    async def finished_then_one_more(crawl_id: str) -> bool:
        result = await finished(crawl_id)
        await bob.add("c", ["http://late.example/"])
        return result

    ann.crawls.finished = finished_then_one_more  # type: ignore[method-assign]
    assert not await ann.crawls.finish("c")
    await fleet.check()
    assert (await bob.crawls.get("c")).state is State.RUNNING
    assert names(await drain(fleet, bob)) == [""]
    assert (await bob.add("c", [f"http://{host}/more" for host in fleet.hosts(6, shard=None)])).new == 6


async def test_failed_visits_are_retried_as_new_admissions(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    hosts = fleet.hosts(5, shard=None)
    urls = [url for host in hosts for url in paths(host, 60)]
    await ann.add("c", [Visit(url=url, priority=len(url) % 3, meta={"u": url}) for url in urls])
    await drain(fleet, ann, how=lambda v: v.failed("HTTP 503"), visits=100)
    assert await ann.crawls.finish("c")
    assert await ann.crawls.retry("c") == 300
    assert (await ann.crawls.get("c")).state is State.RUNNING
    # Each is counted once, as what it is now.
    assert await ann.crawls.count("c") == Counts(admitted=300, waiting=300)
    assert await ann.crawls.failed("c") == []
    await fleet.check()
    made = await drain(fleet, ann, visits=100)
    assert sorted(visit.meta["u"] for visit in made) == sorted(urls)
    assert {visit.retries for visit in made} == {0}
    assert await ann.crawls.retry("c") == 0


async def test_some_failed_visits_are_retried_and_the_others_stay(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    urls = paths("a.example", 250)
    await ann.add("c", urls)
    await drain(fleet, ann, how=lambda v: v.failed("odd" if urls.index(v.url) % 2 else "even"), visits=100)
    # A host that was set aside has a list of its own.
    aside = paths("dead.example", 5)
    await ann.add("c", aside)
    await ann.hosts.postpone("dead.example", 1, failed=True, host_failures=1, reason="no route")
    assert await ann.crawls.finish("c")
    chosen = [urls[0], urls[7], urls[249], aside[1], aside[4]]
    assert await ann.crawls.retry("c", urls=["http://a.example/never", "http://b.example/"]) == 0
    assert await ann.crawls.retry("c", urls=[]) == 0
    assert (await ann.crawls.get("c")).state is State.FINISHED
    assert await ann.crawls.retry("c", urls=chosen) == 5
    assert (await ann.crawls.get("c")).state is State.RUNNING
    left = {*urls, *aside} - {*chosen}
    failed = await bob.crawls.failed("c", 1000)
    assert sorted(visit.url for visit, _ in failed) == sorted(left)
    await fleet.check()
    # By reason, in more than one call, while another worker does the same.
    odd = [visit.url for visit, why in failed if why == "odd"]
    both = await asyncio.gather(*(frontier.crawls.retry("c", reason="odd") for frontier in (ann, bob)))
    assert sum(both) == len(odd) > 100
    assert {why for _, why in await ann.crawls.failed("c", 1000)} == {"even", "no route"}
    await fleet.check()
    await ann.hosts.unblock("dead.example")
    made = await drain(fleet, ann, visits=100)
    assert sorted(visit.url for visit in made) == sorted([*chosen, *odd])
    assert {visit.retries for visit in made} == {0}
    assert await ann.crawls.retry("c") == len(left) - len(odd)
    await fleet.check()


@pytest.mark.parametrize("urls", [None, ["http://a.example/0"]], ids=["all", "some"])
async def test_a_crawl_that_is_finished_during_a_retry_is_reopened(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, urls: list[str] | None
) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", ["http://a.example/0"])
    await drain(fleet, ann, how=lambda v: v.failed("odd"))
    call = ann.shards.call
    finished: list[bool] = []

    async def call_late(name: str, *args: Any, **options: Any) -> Any:
        if name == "retry" and not finished:
            # The crawl is open, and none of its visits is: a process that checks it now finishes it.
            finished.append(await bob.crawls.finish("c"))
        return await call(name, *args, **options)

    monkeypatch.setattr(ann.shards, "call", call_late)
    assert await ann.crawls.retry("c", urls=urls) == 1
    assert finished == [True]
    assert (await bob.crawls.get("c")).state is State.RUNNING
    assert [visit.url for visit in await drain(fleet, bob)] == ["http://a.example/0"]
    await fleet.check()


async def test_a_stopped_crawl_is_not_retried(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    await ann.crawls.stop("c")
    with pytest.raises(CrawlEnded, match="stopped"):
        await ann.crawls.retry("c")


async def test_shards_that_missed_a_change_are_repaired(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", [f"http://{host}/" for host in fleet.hosts(8, shard=None)])
    # The process that stopped it died after the home shard had the change.
    await fleet.run("change", fleet.shards.home("c"), "c", "s", "stopped", "", "", 0)
    assert (await ann.crawls.count("c")).waiting == 8
    bob = fleet.worker("bob")
    await bob.crawls.repair(await bob.crawls.get("c"))
    assert (await ann.crawls.count("c")).excluded == 8
    await fleet.check()


@pytest.mark.parametrize("state", ["p", "s"])
async def test_the_maintainer_repairs_shards_after_a_kill(fleet: Fleet, state: str) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", [f"http://{host}/" for host in fleet.hosts(8, shard=None)])
    maintainer = Maintainer(bob, Settings())
    await maintainer.check()
    # The process that paused or stopped it was killed after the home shard had the change.
    await fleet.run("change", fleet.shards.home("c"), "c", state, "", "", "", 0)
    assert len(await ann.lease(hosts=1)) == 1
    maintainer.check_soon("c")
    await maintainer.check()
    assert await ann.lease(hosts=8) == []
    counts = await ann.crawls.count("c")
    assert (counts.waiting, counts.excluded) == ((7, 0) if state == "p" else (0, 7))
    await fleet.check()


@pytest.mark.parametrize("reason", ["output unavailable", "output away"], ids=["this_version", "version_0_1"])
async def test_the_maintainer_resumes_a_crawl_whose_pausing_worker_is_gone(fleet: Fleet, reason: str) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", spec=CrawlSpec(outputs=("main",)).stored())
    await ann.add("c", [f"http://{fleet.hosts(1)[0]}/"])
    await ann.crawls.pause("c", reason)
    maintainer = Maintainer(ann, Settings())
    for _ in range(4):
        assert (await ann.crawls.get("c")).state is State.PAUSED
        maintainer.check_soon("c")
        await maintainer.check()
    assert (await ann.crawls.get("c")).state is State.RUNNING


async def test_a_shard_that_missed_the_reopening_of_a_crawl_loses_no_link(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    hosts = fleet.hosts(8, shard=None)
    await ann.add("c", [f"http://{host}/" for host in hosts])
    await drain(fleet, ann)
    assert await ann.crawls.finish("c")
    # The process that reopens it has changed only the home shard so far.
    await fleet.run("change", fleet.shards.home("c"), "c", "r", "", "", "", 0)
    assert (await bob.add("c", [f"http://{host}/new" for host in hosts])).new == 8
    assert len(await drain(fleet, ann)) == 8


async def test_a_crawl_that_was_closed_too_early_is_reopened_after_a_kill(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    hosts = fleet.hosts(8, shard=None)
    await ann.add("c", [f"http://{host}/" for host in hosts])
    # The process that finished it was killed before the other shards knew; a visit was added meanwhile.
    await fleet.run("change", fleet.shards.home("c"), "c", "f", "finished", "", "", 0)
    await Maintainer(bob, Settings()).check()
    assert (await ann.crawls.get("c")).state is State.RUNNING
    assert (await ann.crawls.count("c")).waiting == 8
    assert len(await drain(fleet, ann)) == 8
    await fleet.check()


# Deleting


async def _lived(fleet: Fleet, ann: Frontier, limits: Limits) -> None:
    """A crawl with something in every place a visit can be."""
    await ann.crawls.create("c", limits)
    hosts = fleet.hosts(8, shard=None)
    for host in hosts:
        visits = [Visit(url=f"http://{host}/{i}", priority=i % 3, meta={"i": i}) for i in range(12)]
        await ann.add("c", visits)
    leases = await ann.lease(hosts=2, visits=5)
    v = leases[0].visits
    await ann.acknowledge(leases[0], [v[0].stored(revisit_seconds=50), v[1].failed("a"), v[2].retry(9)])
    await ann.hosts.postpone(hosts[5], 1, failed=True, host_failures=1)
    await ann.crawls.pause("c")
    await ann.lease()
    await ann.crawls.resume("c")
    held = await ann.lease(hosts=2, visits=2)
    await ann.release(held)


@pytest.mark.parametrize("limits", [
    Limits(delay_seconds=0),
    Limits(delay_seconds=0, max_pages=40, max_depth=3, dedup_seconds=5),
    Limits(delay_seconds=0, max_pages_per_host=9, order="lifo", spider=""),
], ids=["plain", "pages", "per host"])  # fmt: skip
async def test_deleting_frees_every_key(fleet: Fleet, limits: Limits) -> None:
    ann = fleet.worker(lease_seconds=10)
    await _lived(fleet, ann, limits)
    with pytest.raises(InvalidInput, match="stop it before"):
        await ann.crawls.delete("c")
    await ann.crawls.stop("c")
    fleet.clock.tick(20)
    await ann.lease()
    await ann.lease()
    key = (await ann.crawls.get("c")).key
    await ann.crawls.delete("c")
    left = {name for name in await fleet.keys() if not name.startswith(_LASTING)}
    assert not left
    assert [name for name in await fleet.keys() if key in name] == []


async def test_deleting_a_crawl_does_not_change_other_crawls(fleet: Fleet) -> None:
    ann = fleet.worker(lease_seconds=10)
    await _lived(fleet, ann, Limits(delay_seconds=0))
    await ann.crawls.create("other", Limits(delay_seconds=0))
    urls = [url for host in fleet.hosts(8, shard=None) for url in paths(host, 5)]
    await ann.add("other", urls)
    await ann.crawls.stop("c")
    await ann.crawls.delete("c")
    assert (await ann.add("other", urls)).seen == 40
    fleet.clock.tick(60)
    assert sorted(visit.url for visit in await drain(fleet, ann)) == sorted(urls)
    assert await ann.crawls.count("other") == Counts(admitted=40, stored=40)
    await fleet.check()


async def test_leased_visits_of_a_deleted_crawl_are_dropped(fleet: Fleet) -> None:
    ann = fleet.worker(lease_seconds=10)
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", [*paths("a.example", 5), *paths("b.example", 5)])
    acknowledged, expired = await ann.lease(visits=2)
    await ann.crawls.stop("c")
    await ann.crawls.delete("c")
    await ann.acknowledge(acknowledged, [visit.stored() for visit in acknowledged.visits])
    fleet.clock.tick(10)
    assert await ann.lease() == []
    left = {name for name in await fleet.keys() if not name.startswith(_LASTING)}
    assert not left, expired


async def test_a_host_without_page_budget_is_freed_with_its_crawl(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0, max_pages_per_host=1))
    await ann.add("c", paths("a.example", 5))
    (lease,) = await ann.lease()
    assert len(lease.visits) == 1
    await ann.crawls.stop("c")
    await end(ann, [lease])
    await ann.lease()
    await ann.crawls.delete("c")
    left = {name for name in await fleet.keys() if not name.startswith(_LASTING)}
    assert not left


# Remembering


async def test_a_forgotten_url_can_be_visited_again(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    urls = [url for host in fleet.hosts(6, shard=None) for url in paths(host, 100)]
    await ann.add("c", urls)
    assert await ann.crawls.forget("c", urls[:400]) == 400
    assert await ann.crawls.forget("c", urls[:400]) == 0
    assert (await ann.add("c", urls)).new == 400


async def test_urls_are_remembered_for_the_dedup_lifetime(fleet: Fleet) -> None:
    ann = fleet.worker()
    crawl = await ann.crawls.create("c", Limits(dedup_seconds=100))
    await ann.add("c", paths("a.example", 300))
    fleet.clock.tick(99)
    assert (await ann.add("c", paths("a.example", 300))).seen == 300
    fleet.clock.tick(2)
    # The generation turns: the one before still counts.
    assert (await ann.add("c", ["http://a.example/5", "http://a.example/new"])).letters == "sn"
    fleet.clock.tick(100)
    assert (await ann.add("c", ["http://a.example/5", "http://a.example/new"])).letters == "ns"
    assert await ann.crawls.forget("c", ["http://a.example/5", "http://a.example/new"]) == 2
    await ann.lease()
    sets = {name for name in await fleet.keys() if name.startswith(f"s:{crawl.key}:0")}
    assert not sets


async def test_urls_are_forgotten_after_twice_the_dedup_lifetime(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(dedup_seconds=100))
    await ann.add("c", ["http://a.example/1"])
    fleet.clock.tick(1000)
    assert (await ann.add("c", ["http://a.example/1"])).letters == "n"
