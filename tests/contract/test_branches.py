"""Branches: visits that a crawl's spider sends to another spider still belong to the crawl."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.errors import CrawlEnded, InvalidInput
from shoal.frontier import Frontier, dump, load
from shoal.frontier.shards import Shards
from shoal.model import Limits, State
from shoal.store import Store
from tests.contract.fleet import Fleet, end, paths


async def _crawl(fleet: Fleet) -> tuple[str, str]:
    ann = fleet.worker()
    await ann.crawls.create("news", Limits(delay_seconds=0, spider="lister"), {"reach": "any"})
    return "news", await ann.crawls.branch("news", "reader")


async def test_a_branch_is_created_once_with_the_limits_of_its_crawl(fleet: Fleet) -> None:
    crawl, branch = await _crawl(fleet)
    bob = fleet.worker("bob")
    assert await bob.crawls.branch(crawl, "reader") == branch == "news:reader"
    made = await bob.crawls.get(branch)
    assert (made.limits.spider, made.limits.delay_seconds, made.spec) == (
        "reader",
        0,
        {"reach": "any", "parent": crawl},
    )
    assert await bob.crawls.branches(crawl) == [branch]
    assert await bob.crawls.branch(crawl, "lister") == crawl
    assert await bob.crawls.branches(branch) == []


async def test_the_visits_of_a_branch_go_to_workers_that_have_its_spider(fleet: Fleet) -> None:
    crawl, branch = await _crawl(fleet)
    ann = fleet.worker()
    await ann.add(crawl, paths("a.example", 2))
    await ann.add(branch, paths("b.example", 3))
    assert {lease.host for lease in await ann.lease(spiders=["lister"])} == {"a.example"}
    assert await ann.lease(spiders=[""]) == []
    leases = await fleet.worker("bob").lease(spiders=["reader"])
    assert [(visit.crawl, lease.host) for lease in leases for visit in lease.visits] == [(branch, "b.example")] * 3


async def test_a_crawl_is_finished_when_its_branches_are_finished(fleet: Fleet) -> None:
    crawl, branch = await _crawl(fleet)
    ann = fleet.worker()
    await ann.add(crawl, ["http://a.example/list"])
    (lease,) = await ann.lease(spiders=["lister"])
    await ann.add(branch, ["http://b.example/page"])
    await end(ann, [lease])
    assert not await ann.crawls.finish(crawl)
    # The other way round, too: what a branch finds may lead back.
    (lease,) = await ann.lease(spiders=["reader"])
    await ann.add(crawl, ["http://a.example/list2"])
    await end(ann, [lease])
    assert not await ann.crawls.finish(crawl)
    assert (await ann.crawls.get(branch)).state is State.RUNNING
    fleet.clock.tick(1)
    await end(ann, await ann.lease(spiders=["lister"]))
    counts = await ann.crawls.count(crawl)
    assert (counts.admitted, counts.stored, counts.open) == (3, 3, 0)
    assert await ann.crawls.finish(crawl)
    assert (await ann.crawls.get(branch)).state is State.FINISHED
    with pytest.raises(CrawlEnded):
        await ann.add(branch, ["http://b.example/late"])
    await fleet.check()


async def test_pausing_resuming_and_stopping_a_crawl_applies_to_its_branches(fleet: Fleet) -> None:
    crawl, branch = await _crawl(fleet)
    ann = fleet.worker()
    await ann.add(branch, paths("b.example", 3))
    await ann.crawls.pause(crawl)
    assert await ann.lease(spiders=["reader"]) == []
    # One that is made meanwhile begins as its crawl is.
    other = await fleet.worker("bob").crawls.branch(crawl, "painter")
    assert (await ann.crawls.get(other)).state is State.PAUSED
    await ann.crawls.resume(crawl)
    assert {(await ann.crawls.get(name)).state for name in (crawl, branch, other)} == {State.RUNNING}
    await ann.crawls.stop(crawl)
    assert {(await ann.crawls.get(name)).state for name in (crawl, branch, other)} == {State.STOPPED}
    assert (await ann.crawls.count(crawl)).excluded == 3
    await ann.crawls.delete(crawl)
    assert [crawl.id async for crawl in ann.crawls.all()] == []
    await fleet.check()


async def test_failed_visits_of_a_branch_are_listed_and_retried_with_its_crawl(fleet: Fleet) -> None:
    crawl, branch = await _crawl(fleet)
    ann = fleet.worker()
    await ann.add(branch, ["http://b.example/page"])
    (lease,) = await ann.lease(spiders=["reader"])
    await end(ann, [lease], lambda visit: visit.failed("broken"))
    assert await ann.crawls.finish(crawl)
    assert [(visit.url, why) for visit, why in await ann.crawls.failed(crawl)] == [("http://b.example/page", "broken")]
    assert await ann.crawls.retry(crawl, urls=["http://b.example/page"]) == 1
    assert {(await ann.crawls.get(name)).state for name in (crawl, branch)} == {State.RUNNING}
    assert await ann.crawls.retry(crawl) == 0
    await fleet.check()


async def test_a_branch_with_an_invalid_name_does_not_harm_its_crawl(fleet: Fleet) -> None:
    ann = fleet.worker()
    long = "n" * 125
    for name in (long, "news"):
        await ann.crawls.create(name, Limits(delay_seconds=0, spider="lister"))
    await ann.crawls.create("news:reader", Limits(delay_seconds=0, spider="reader"))
    for name in (long, "news"):
        with pytest.raises(InvalidInput):
            await ann.crawls.branch(name, "reader")
        assert await fleet.worker("bob").crawls.branches(name) == []
        await ann.add(name, ["http://a.example/"])
        await ann.crawls.stop(name)
        assert (await ann.crawls.count(name)).excluded == 1
    # Another crawl whose name only looks like that of a branch.
    assert (await ann.crawls.get("news:reader")).state is State.RUNNING
    with pytest.raises(CrawlEnded):
        await fleet.worker("cyd").crawls.branch("news", "painter")


async def test_a_crawl_with_a_branch_that_ended_at_a_limit_can_be_retried_and_deleted(
    fleet: Fleet,
) -> None:
    crawl, branch = await _crawl(fleet)
    ann = fleet.worker()
    await ann.add(crawl, ["http://a.example/"])
    await end(ann, await ann.lease(spiders=["lister"]), lambda visit: visit.failed("broken"))
    await ann.crawls.end(await ann.crawls.get(branch), "max pages")
    assert await ann.crawls.finish(crawl)
    assert await ann.crawls.retry(crawl) == 1
    assert (await ann.crawls.get(branch)).state is State.FINISHED
    # The process that stops it dies in between: one branch keeps running.
    left = await ann.crawls.branch(crawl, "painter")
    await ann.crawls._changes.change(crawl, State.STOPPED, why="stopped")
    assert (await ann.crawls.get(left)).state is State.RUNNING
    await ann.crawls.delete(crawl)
    assert [crawl.id async for crawl in ann.crawls.all()] == []
    await fleet.check()


async def test_crawls_cached_long_ago_are_read_from_the_store_again(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.frontier.crawl_records._MOST_CACHED", 3)
    ann = fleet.worker()
    for number in range(6):
        await ann.crawls.create(f"c{number}", Limits(delay_seconds=0))
    assert len(ann.crawls._by_id) == len(ann.crawls._by_key) == 3
    assert (await ann.add("c0", ["http://a.example/"])).new == 1


async def test_a_dump_contains_a_crawl_with_its_branches(fleet: Fleet, tmp_path: Path) -> None:
    crawl, branch = await _crawl(fleet)
    ann = fleet.worker()
    await ann.add(crawl, ["http://a.example/list"])
    await end(ann, await ann.lease(spiders=["lister"]))
    await ann.add(branch, paths("b.example", 3))
    lines = [line async for line in dump(fleet.shards)]
    async with await Store.open(folder=tmp_path / "other") as other:
        new = Frontier(await Shards.found(other, "other", 3, fleet.clock), worker="bob")
        await load(new.shards, lines)
        assert await new.crawls.branches(crawl) == [branch]
        assert not await new.crawls.finish(crawl)
        await end(new, await new.lease(spiders=["reader"]))
        assert await new.crawls.finish(crawl)
        assert (await new.crawls.count(crawl)).stored == 4
        assert (await new.crawls.get(branch)).state is State.FINISHED
