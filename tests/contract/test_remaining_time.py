"""The remaining time and the waiting hosts, as the store computes them."""

from __future__ import annotations

import pytest

from shoal.model import Limits, Visit
from tests.contract.fleet import Fleet, paths


async def test_a_lease_reports_how_long_the_waiting_visits_of_its_host_take(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=2))
    long, short = fleet.hosts(2)
    await ann.add("c", [*paths(long, 30), *paths(short, 3)])
    leases = {lease.host: lease for lease in await ann.lease(hosts=2, visits=4)}
    assert leases[long].ahead_seconds == pytest.approx(60)
    assert leases[short].ahead_seconds == pytest.approx(6)
    # Leased visits still count, finished ones do not.
    done = leases[long].visits
    await ann.acknowledge(leases[long], [visit.stored() for visit in done], response_seconds=1.0)
    fleet.clock.tick(10)
    again = next(lease for lease in await ann.lease(hosts=2, visits=4) if lease.host == long)
    response = (await ann.hosts.get(long)).mean_response_seconds
    assert response > 0
    assert again.ahead_seconds == pytest.approx((30 - len(done)) * (2 + response), rel=0.01)


async def test_a_lease_that_gets_more_visits_updates_this_time_and_others_do_not(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0.1))
    (host,) = fleet.hosts(1)
    await ann.add("c", [Visit(url=url, priority=n % 3) for n, url in enumerate(paths(host, 30))])
    (lease,) = await ann.lease(visits=2)
    # Of all priorities.
    assert lease.ahead_seconds == pytest.approx(3)
    await ann.acknowledge(lease, [lease.visits[0].stored()])
    (renewed,) = await ann.renew([lease], visits=5)
    assert renewed is not None
    assert renewed.ahead_seconds == pytest.approx(2.9)
    (renewed,) = await ann.renew([lease])
    assert renewed is not None
    assert renewed.ahead_seconds == 0


async def test_slots_share_this_time_and_without_a_delay_it_is_zero(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("quick", Limits(delay_seconds=0))
    await ann.crawls.create("wide", Limits(delay_seconds=1, places=4))
    quick, slow = fleet.hosts(2)
    await ann.add("quick", paths(quick, 20))
    await ann.add("wide", paths(slow, 20))
    await ann.hosts.set_robots(slow)
    ahead = {lease.host: lease.ahead_seconds for lease in await ann.lease(hosts=2, visits=3)}
    assert ahead == {quick: 0, slow: pytest.approx(5)}


async def test_waiting_hosts_are_counted_as_ready_or_cooling(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=5))
    await ann.crawls.create("other", Limits(spider="books"))
    hosts = fleet.hosts(6)
    await ann.add("c", [url for host in hosts[:5] for url in paths(host, 3)])
    await ann.add("other", paths(hosts[5], 3))
    assert await ann.hosts.waiting() == (5, 0)
    assert await ann.hosts.waiting("books") == (1, 0)
    (lease,) = await ann.lease(hosts=1, visits=1)
    assert await ann.hosts.waiting() == (4, 0)
    await ann.acknowledge(lease, [lease.visits[0].stored()])
    await ann.hosts.postpone(next(host for host in hosts[:5] if host != lease.host), 60)
    assert await ann.hosts.waiting() == (3, 2)
    fleet.clock.tick(6)
    assert await ann.hosts.waiting() == (4, 1)
