"""The estimates of `shoal plan` match the real frontier within 10 %, in simulated crawls.

The store's speed is that of the plan's own figures, so that the comparison is about the formula and not about this
machine: how many calls, leases and visits a page takes, how large batches get, how long places are taken, whose turn it
is. The crawls are those of docs/guides/planning.md, shortened. A rate does not depend on how many pages are to come, so
a few seconds of a crawl after its beginning stand for all of it. Large ones are played as one slice of many (see
tests/system/simulation.py), with as many hosts as keep the workers busy: further ones would only wait.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shoal.operations.plan import WORKER_PAGES_PER_SECOND, Plan, plan
from shoal.settings import WorkerSettings
from shoal.store import Store
from tests.servers import server
from tests.system.fleet_sizes import nodes_for, play
from tests.system.simulation import Simulated, simulate

pytestmark = pytest.mark.full

SLICES = 4


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    # Its own time is not measured: it need not wait for a disk.
    with server(tmp_path, options={"appendonly": "no"}) as valkey:
        async with await Store.open(valkey.url) as opened:
            yield opened


async def played(
    store: Store, made: Plan, *, seconds: float, warm_seconds: float, hosts: int = 0, slice_of: int = 1
) -> Simulated:
    """The crawl of a plan, with fewer hosts if so many are enough."""
    workers = max(1, made.workers // slice_of)
    # Where workers cannot be divided, those that are left are as much stronger.
    strength = made.workers / slice_of / workers
    return await simulate(
        store, hosts=(hosts or made.hosts) // slice_of, delay=made.delay_seconds, response=made.response_seconds,
        workers=workers, places=round(WorkerSettings().hosts * strength),
        worker_pages_per_second=WORKER_PAGES_PER_SECOND * strength, seconds=seconds, warm_seconds=warm_seconds,
        slice_of=slice_of, waiting=2 * made.visits_per_lease - 1,
    )  # fmt: skip


@pytest.mark.smoke
async def test_50_million_pages_of_one_site_are_limited_by_politeness(store: Store) -> None:
    made = plan(pages=50_000_000, hosts=1, delay=1, response=0.2, page_bytes=40_000, workers=3)
    seen = await played(store, made, seconds=60, warm_seconds=3)
    assert made.limit == "politeness"
    assert seen.pages_per_second == pytest.approx(made.pages_per_second, rel=0.1)
    # Three workers for one host: they sleep, and send no more than a few empty calls per page.
    assert seen.empty_leases_per_page < 10


async def test_10_thousand_sites_are_limited_by_8_workers(store: Store) -> None:
    made = plan(pages=100_000_000, hosts=10_000, delay=1, response=0.2, page_bytes=40_000, workers=8)
    seen = await played(store, made, seconds=3, warm_seconds=3, slice_of=SLICES)
    assert made.limit == "workers"
    assert seen.pages_per_second * SLICES == pytest.approx(made.pages_per_second, rel=0.1)


async def test_1_billion_pages_are_limited_by_the_store(store: Store) -> None:
    made = plan(pages=1_000_000_000, hosts=1_000_000, delay=1, response=0.2, page_bytes=40_000)
    enough = round(1.5 * made.pages_per_second * (made.delay_seconds + made.response_seconds))
    seen = await played(store, made, seconds=3, warm_seconds=3, hosts=enough, slice_of=SLICES)
    assert made.limit == "store"
    assert seen.pages_per_second * SLICES == pytest.approx(made.pages_per_second, rel=0.1)
    assert seen.store_busy > 0.95


async def test_the_suggested_number_of_workers_reaches_the_rate_that_politeness_allows(store: Store) -> None:
    made = plan(pages=10**7, hosts=2000, delay=1, response=0.2, page_bytes=40_000)
    seen = await played(store, made, seconds=2.4, warm_seconds=2.4)
    assert made.limit == "politeness"
    assert seen.pages_per_second == pytest.approx(made.pages_per_second, rel=0.1)


async def test_a_lease_of_two_visits_occupies_a_worker_during_the_delay_between_them(store: Store) -> None:
    made = plan(pages=10**7, hosts=3200, delay=0.5, response=0.4, page_bytes=40_000, workers=8)
    # The first lease of a host is longer, since its response time is not known yet.
    seen = await played(store, made, seconds=3.6, warm_seconds=8, slice_of=SLICES)
    assert (made.visits_per_lease, made.limit) == (2, "workers")
    assert made.worker_pages_per_second == pytest.approx(WorkerSettings().hosts / 0.65)
    assert seen.pages_per_lease == pytest.approx(2, rel=0.1)
    assert seen.pages_per_second * SLICES == pytest.approx(made.pages_per_second, rel=0.1)


async def test_slow_servers_are_limited_by_slots(store: Store) -> None:
    made = plan(pages=10**7, hosts=8000, delay=1, response=1.5, page_bytes=40_000, workers=8)
    seen = await played(store, made, seconds=6, warm_seconds=6, slice_of=SLICES)
    assert (made.visits_per_lease, made.limit) == (1, "workers")
    assert seen.pages_per_second * SLICES == pytest.approx(made.pages_per_second, rel=0.1)


async def test_200_workers_lose_little_on_as_many_servers_as_the_plan_finds_useful(store: Store) -> None:
    fleet = await play(store, 200, nodes_for(200), seconds=2.4)
    assert fleet.efficiency >= 0.9
    # The store is what more workers would wait for.
    assert fleet.store_busy > 0.95
