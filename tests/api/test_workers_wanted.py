"""`workers_wanted`: how many workers the hosts that can be served now can keep busy."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shoal.api.fleet_stats import workers_wanted
from shoal.frontier import Frontier
from shoal.model.limits import Limits
from shoal.settings import Settings, StoreSettings
from tests.api.process import ApiProcess, serve_api
from tests.contract.fleet import end
from tests.servers import server


@pytest.mark.parametrize(
    ("open_visits", "ready", "leased", "expected"),
    [
        (0, 0, 0, 0),
        # Hosts of a crawl that was just paused are still there: nothing is to be done for them.
        (0, 50, 0, 0),
        (1, 0, 0, 1),
        # A queue behind one host gives a second worker nothing to do.
        (1_000_000, 1, 0, 1),
        (1_000_000, 0, 1, 1),
        (400, 150, 50, 1),
        (400, 151, 50, 2),
        (10**9, 9_000, 1_000, 50),
    ],
)
def test_the_number_of_wanted_workers_depends_on_hosts_and_not_on_urls(
    open_visits: int, ready: int, leased: int, expected: int
) -> None:
    assert expected == workers_wanted(
        open_visits=open_visits, hosts_ready=ready, hosts_leased=leased, hosts_per_worker=200
    )


def test_the_number_of_wanted_workers_follows_the_hosts_that_can_be_leased(tmp_path: Path) -> None:
    async def check(api: ApiProcess, url: str) -> None:
        def stats() -> tuple[int, int, int, int]:
            stats = api.client.stats()
            metrics = api.ask("GET", "/metrics").raw.decode()
            assert f"\nshoal_workers_wanted {float(stats['workers_wanted'])}\n" in metrics
            assert f"\nredis_queue_length {float(stats['redis_queue_length'])}\n" in metrics
            return stats["workers_wanted"], stats["hosts_ready"], stats["hosts_leased"], stats["redis_queue_length"]

        async with await Frontier.from_settings(Settings(store=StoreSettings(url=url)), worker="ann") as ann:
            assert stats() == (0, 0, 0, 0)
            await ann.crawls.create("one", Limits(delay_seconds=600))
            # Five hosts with two URLs each, for workers of two hosts (api's own settings).
            await ann.add("one", [f"http://h{host}.example/{page}" for host in range(5) for page in range(2)])
            assert stats() == (3, 5, 0, 10)
            leases = await ann.lease(hosts=3, visits=1)
            assert stats() == (3, 2, 3, 7)
            # A worker reports how many hosts it holds.
            await ann.workers.beat({"hosts": 10})
            assert stats() == (1, 2, 3, 7)
            await ann.workers.beat({"hosts": 1})
            assert stats() == (5, 2, 3, 7)
            # Cooling hosts need no worker.
            await end(ann, leases, lambda visit: visit.stored())
            assert stats() == (2, 2, 0, 7)
            await end(ann, await ann.lease(hosts=2, visits=1), lambda visit: visit.stored())
            assert stats() == (1, 0, 0, 5)
            await ann.crawls.pause("one")
            assert stats() == (0, 0, 0, 5)

    with (
        server(tmp_path / "valkey") as store,
        serve_api(tmp_path / "api", "--store", store.url, settings="[worker]\nhosts = 2\n") as api,
    ):
        asyncio.run(check(api, store.url))
