"""Limits that change while a crawl is open: in every shard, for its branches, and for nothing else."""

from __future__ import annotations

import pytest

from shoal.errors import InvalidLimit
from shoal.model import Limits, State
from tests.contract.fleet import Fleet, end, paths


async def test_the_next_lease_has_the_new_delay_and_number_of_slots(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0), {"mine": 1})
    for host in fleet.hosts(3, shard=None):
        await ann.add("c", paths(host, 3))
        await ann.hosts.set_robots(host)
    await end(ann, await ann.lease(hosts=10, visits=1))
    changed = await fleet.worker("bob").crawls.relimit("c", delay_seconds=2.5, places=2)
    assert changed.limits == Limits(delay_seconds=2.5, places=2)
    assert (changed.state, changed.spec) == (State.RUNNING, {"mine": 1})
    fleet.clock.tick(3)
    leases = await ann.lease(hosts=10, visits=1) + await fleet.worker("bob").lease(hosts=10, visits=1)
    assert {lease.delay_seconds for lease in leases} == {2.5}
    assert len(leases) == 2 * len({lease.host for lease in leases}) == 6
    await fleet.check()


async def test_branches_get_the_new_limits_and_keep_their_spiders(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("news", Limits(spider="lister"))
    branch = await ann.crawls.branch("news", "reader")
    await ann.crawls.pause("news")
    await ann.crawls.relimit("news", delay_seconds=7, order="lifo")
    for name, spider in (("news", "lister"), (branch, "reader")):
        seen = await fleet.worker("bob").crawls.get(name)
        assert seen.limits == Limits(delay_seconds=7, order="lifo", spider=spider)
        assert seen.state is State.PAUSED


async def test_an_invalid_limit_changes_nothing(fleet: Fleet) -> None:
    ann = fleet.worker()
    made = await ann.crawls.create("c")
    with pytest.raises(InvalidLimit, match="places"):
        await ann.crawls.relimit("c", places=0, delay_seconds=3)
    assert await ann.crawls.get("c") == made
