"""A crawl that has reached a limit goes on when the limit is raised, with the URLs that were kept for that."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shoal.errors import CrawlEnded
from shoal.frontier import Frontier
from shoal.frontier.set_aside import forget_depths, readmit
from shoal.model import Limits, State, Visit
from tests.contract.fleet import Fleet, drain, end, paths


async def raise_limits(frontier: Frontier, crawl: str, **limits: Any) -> None:
    known = await frontier.crawls.get(crawl)
    await frontier.crawls.extend(crawl, msgspec.structs.replace(known.limits, **limits), known.spec)
    await readmit(frontier, crawl)


@pytest.mark.parametrize("higher", [60, 0])
async def test_raising_max_pages_resumes_the_visits_that_waited(fleet: Fleet, higher: int) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0, max_pages=20))
    for host in fleet.hosts(12, shard=None):
        await ann.add("c", paths(host, 10))
    await drain(fleet, ann)
    assert (await ann.crawls.get("c")).why == "max pages"
    # Whoever looks for work meets the lists that are kept, and leaves them.
    assert await ann.lease(hosts=100) == []
    await raise_limits(ann, "c", max_pages=higher)
    counts = await ann.crawls.count("c")
    assert (counts.admitted, counts.stored, counts.excluded, counts.waiting) == (120, 20, 0, 100)
    await fleet.check()
    await drain(fleet, ann)
    counts = await ann.crawls.count("c")
    stored = higher or 120
    assert (counts.stored, counts.excluded) == (stored, 120 - stored)
    assert counts.reasons == ({"excluded:max pages": 60} if higher else {})
    assert await ann.crawls.finish("c")
    await fleet.check()


async def test_visits_leased_when_the_limit_was_reached_are_kept_too(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    first, second, third = fleet.hosts(3)
    await ann.add("c", [*paths(first, 3), *paths(second, 3), *paths(third, 1)])
    leases = {lease.host: lease for _ in range(3) for lease in await bob.lease(hosts=3, visits=3)}
    # One host waits for a retry, one is out, and one comes back.
    await end(bob, [leases[third]], lambda visit: visit.retry(1))
    await ann.crawls.end(await ann.crawls.get("c"), "bytes")
    await bob.release([leases[first]])
    await bob.acknowledge(leases[second], [visit.retry(5) for visit in leases[second].visits])
    fleet.clock.tick(10)
    assert await ann.lease(hosts=10) == []
    counts = await ann.crawls.count("c")
    assert (counts.excluded, counts.open, counts.reasons) == (7, 0, {"excluded:bytes": 7})
    await fleet.check()
    await raise_limits(ann, "c")
    assert {visit.url for visit in await drain(fleet, ann)} == {*paths(first, 3), *paths(second, 3), *paths(third, 1)}
    counts = await ann.crawls.count("c")
    assert (counts.admitted, counts.stored, counts.reasons) == (7, 7, {})
    await fleet.check()


async def test_urls_beyond_the_depth_limit_are_added_when_it_is_raised(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0, max_depth=1))
    (host,) = fleet.hosts(1)
    near, middle, far = paths(host, 3)
    await ann.add("c", [Visit(url=near, depth=1)])
    for _ in range(2):
        added = await ann.add("c", [Visit(url=middle, depth=2), Visit(url=far, depth=3)])
        assert added.refused == {"depth": 2}
    assert len(await drain(fleet, ann)) == 1
    assert await ann.crawls.finish("c")
    await raise_limits(ann, "c", max_depth=2)
    assert {visit.url for visit in await drain(fleet, ann)} == {middle}
    await raise_limits(ann, "c", max_depth=None)
    assert {visit.url for visit in await drain(fleet, ann)} == {far}
    assert (await ann.crawls.count("c")).stored == 3
    await fleet.check()


async def test_urls_beyond_the_pages_per_host_are_added_when_the_limit_is_raised(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0, max_pages_per_host=2))
    (host,) = fleet.hosts(1)
    await ann.add("c", paths(host, 6))
    await drain(fleet, ann)
    # This one comes when the host is full.
    await ann.add("c", paths(host, 1, start=6))
    counts = await ann.crawls.count("c")
    assert (counts.stored, counts.reasons) == (2, {"excluded:pages per host": 4})
    assert await ann.crawls.finish("c")
    await raise_limits(ann, "c", max_pages_per_host=5)
    await drain(fleet, ann)
    counts = await ann.crawls.count("c")
    assert (counts.stored, counts.excluded) == (5, counts.admitted - 5)
    await raise_limits(ann, "c", max_pages_per_host=0)
    await drain(fleet, ann)
    counts = await ann.crawls.count("c")
    assert (counts.admitted, counts.stored, counts.reasons) == (7, 7, {})
    await fleet.check()


async def test_urls_beyond_the_limit_of_a_depth_are_added_when_it_is_raised(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0, max_urls_per_depth=2))
    hosts = fleet.hosts(3, shard=None)
    for host in hosts:
        await ann.add("c", [Visit(url=f"http://{host}/{number}", depth=1) for number in range(6)])
    assert len(await drain(fleet, ann)) == 6
    assert await ann.crawls.finish("c")
    await raise_limits(ann, "c", max_urls_per_depth=5)
    assert len(await drain(fleet, ann)) == 9
    await raise_limits(ann, "c", max_urls_per_depth=0)
    assert len(await drain(fleet, ann)) == 3
    counts = await ann.crawls.count("c")
    assert (counts.admitted, counts.stored, counts.reasons) == (18, 18, {})
    await fleet.check()


async def test_another_pass_counts_the_urls_of_a_depth_from_zero(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0, max_urls_per_depth=2))
    visits = [Visit(url=f"http://{host}/{number}", depth=1) for host in fleet.hosts(3, shard=None) for number in (1, 2)]
    assert (await ann.add("c", visits)).new == 6
    await drain(fleet, ann)
    crawl = await ann.crawls.get("c")
    await ann.crawls.forget("c", [visit.url for visit in visits])
    assert (await ann.add("c", visits)).new == 0
    await forget_depths(ann, crawl)
    assert (await ann.add("c", visits)).new == 6
    await fleet.check()


async def test_a_stopped_crawl_is_not_resumed_by_raising_its_limit(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(max_pages=5))
    await ann.crawls.stop("c")
    with pytest.raises(CrawlEnded):
        await raise_limits(ann, "c", max_pages=50)
    assert (await ann.crawls.get("c")).state is State.STOPPED


async def test_a_visit_that_failed_and_was_retried_is_counted_once(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    for host in fleet.hosts(3, shard=None):
        await ann.add("c", paths(host, 4))
    await drain(fleet, ann, how=lambda visit: visit.failed("status 500"))
    assert await ann.crawls.retry("c") == 12
    counts = await ann.crawls.count("c")
    assert (counts.admitted, counts.failed, counts.waiting, counts.reasons) == (12, 0, 12, {})
    await drain(fleet, ann, how=lambda v: v.stored() if v.url.endswith("0") else v.failed("status 404"))
    counts = await ann.crawls.count("c")
    assert (counts.admitted, counts.stored, counts.failed) == (12, 3, 9)
    assert counts.reasons == {"failed:status 404": 9}
    assert await ann.crawls.finish("c")
    await fleet.check()
