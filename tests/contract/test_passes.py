"""A finished crawl visited again: each URL is admitted once per pass, even if a process is killed while adding."""

from __future__ import annotations

import time
from contextlib import aclosing
from pathlib import Path

from shoal.frontier import Frontier
from shoal.frontier.crawl_facts import Feed
from shoal.model import CrawlSpec, Limits, Record, State, Visit
from shoal.operations.maintenance import Maintainer
from shoal.operations.revisit import reopen, revisits
from shoal.settings import Settings
from shoal.sinks import check_output, open_sink
from tests.contract.fleet import Fleet, drain, paths


def visit(url: str, number: int) -> Visit:
    return Visit(url=url, found="revisit", meta={"pass": number})


async def stored(output: str, urls: list[str], at: float) -> None:
    sink = open_sink(output, worker="w")
    await sink.open()
    await sink.write([Record(crawl="c", url=url, status=200, fetched_at=at) for url in urls], b"")
    await sink.close()


async def feed(frontier: Frontier, policy: CrawlSpec, named: dict[str, str], batches: int = 1000) -> int:
    """Feed a pass as the command does, or only so many batches, as if the command were killed then."""
    now = (await frontier.crawls.facts.read("c")).revisit
    assert now.under_way
    new = 0
    async with aclosing(revisits(frontier, "c", policy, now, named=named)) as revisited:
        async for visits in revisited:
            new += (await frontier.add("c", visits)).new
            batches -= 1
            if not batches:
                return new
    await frontier.crawls.facts.finish_feed("c", Feed.PASS)
    return new


async def test_a_url_is_admitted_once_in_each_pass_and_links_to_it_are_known(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    urls = paths("a.example", 300)
    await ann.crawls.create("c")
    assert (await ann.add("c", urls)).new == 300
    assert (await ann.add("c", [visit(url, 1) for url in urls])).new == 300
    assert (await bob.add("c", [visit(url, 1) for url in urls])).new == 0
    assert (await bob.add("c", urls)).new == 0
    assert (await ann.add("c", [visit(url, 2) for url in urls])).new == 300
    # Without its number it is the URL itself; and a number is the business of revisits alone.
    assert (await ann.add("c", [Visit(url=url, found="revisit") for url in urls])).new == 0
    assert (await ann.add("c", [Visit(url=url, meta={"pass": 3}) for url in urls])).new == 0


async def test_a_url_can_be_forgotten_in_one_pass_only(fleet: Fleet) -> None:
    ann = fleet.worker()
    urls = paths("a.example", 300)
    await ann.crawls.create("c")
    await ann.add("c", urls)
    await ann.add("c", [visit(url, 1) for url in urls])
    assert await ann.crawls.forget("c", urls, passed=2) == 0
    assert await ann.crawls.forget("c", urls, passed=1) == 300
    assert await ann.crawls.forget("c", urls, passed=1) == 0
    assert (await ann.add("c", urls)).new == 0


async def test_a_visit_that_is_requeued_under_its_ip_address_keeps_its_pass(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    there = Visit(url="http://a.example/", host="192.0.2.1", meta={"address": True})
    again = Visit(url="http://a.example/", host="192.0.2.1", found="revisit", meta={"address": True, "pass": 1})
    assert [(await ann.add("c", [visit])).new for visit in (there, there, again, again)] == [1, 0, 1, 0]


async def test_a_pass_killed_at_any_point_is_resumed(fleet: Fleet, tmp_path: Path) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    urls = [f"http://h{number % 60}.example/{number}" for number in range(1200)]
    output = check_output(str(tmp_path / "pages.db"))
    policy = CrawlSpec(seeds=(urls[0],), outputs=("mine",))
    named = {"mine": output}
    await ann.crawls.create("c", Limits(delay_seconds=0), spec=policy.stored())
    await ann.add("c", urls)
    await stored(output, urls, time.time() - 60)
    for number in (1, 2):
        await drain(fleet, ann, hosts=60, visits=30)
        assert await ann.crawls.finish("c")
        assert not (await ann.crawls.facts.read("c")).feeding
        crawl, _ = await reopen(ann, await ann.crawls.get("c"), policy, named=named)
        assert crawl.state.open
        assert (await ann.crawls.facts.read("c")).feeding
        first = await feed(ann, policy, named, batches=2)
        assert 0 < first < 1200
        # A page that was found in this pass, and stored, before the pass is resumed.
        await bob.add("c", [f"http://a.example/late{number}"])
        await stored(output, [f"http://a.example/late{number}"], time.time() + 1)
        assert await feed(bob, policy, named) == 1200 - first
        assert not (await bob.crawls.facts.read("c")).revisit.under_way
        # For the next pass it is one of the others; here it shall be none.
        await stored(output, [f"http://a.example/late{number}"], time.time() + 3600)
    await drain(fleet, ann, hosts=60, visits=30)
    assert (await ann.crawls.count("c")).stored == 1200 + 2


async def test_a_feed_that_is_started_and_finished_twice_counts_once(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    for _ in range(3):
        await ann.crawls.facts.start_feed("c", Feed.SEEDS)
        first = (await ann.crawls.facts.read("c")).seeds
        assert first.under_way
        assert abs(first.started_at - time.time()) < 60
        await ann.crawls.facts.start_feed("c", Feed.SEEDS)
        assert (await ann.crawls.facts.read("c")).seeds == first
        await ann.crawls.facts.finish_feed("c", Feed.SEEDS)
        assert not (await ann.crawls.facts.read("c")).seeds.under_way
        # The call is repeated because its reply was lost.
        await ann.crawls.facts.finish_feed("c", Feed.SEEDS)
        assert not (await ann.crawls.facts.read("c")).seeds.under_way


async def test_the_maintainer_does_not_finish_a_crawl_that_still_gets_seeds(fleet: Fleet) -> None:
    ann = await fleet.join("ann")
    await ann.crawls.create("c", Limits(delay_seconds=0), spec=CrawlSpec().stored())
    await ann.add("c", ["http://a.example/"])
    await ann.crawls.facts.start_feed("c", Feed.SEEDS)
    (lease,) = await ann.lease()
    await ann.acknowledge(lease, [visit.stored() for visit in lease.visits])
    assert await ann.crawls.finished("c")
    await Maintainer(ann, Settings()).check()
    assert (await ann.crawls.get("c")).state is State.RUNNING
    await ann.crawls.facts.finish_feed("c", Feed.SEEDS)
    await Maintainer(ann, Settings()).check()
    assert (await ann.crawls.get("c")).state is State.FINISHED
    await ann.close()
