"""The store rewrites its file, or loses its scripts, while workers use it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shoal.frontier import Done, Frontier
from shoal.model import Lease, Limits
from tests.chaos.fleet import LONG, fleet
from tests.servers import server

pytestmark = [pytest.mark.chaos, pytest.mark.full]
VISITS = 1_000_000 if LONG else 100_000
HOSTS = 500


async def end(frontier: Frontier, leases: list[Lease]) -> None:
    await frontier.acknowledge_all(
        [Done(lease=lease, outcomes=[visit.stored() for visit in lease.visits]) for lease in leases]
    )


async def test_leases_are_given_while_the_store_rewrites_its_file(tmp_path: Path) -> None:
    with server(tmp_path / "store", options={"maxmemory": "1gb", "auto-aof-rewrite-percentage": "0"}) as store:
        async with await Frontier.open(store.url, shards=4) as frontier:
            await frontier.crawls.create("c", Limits(delay_seconds=0.0))
            for first in range(0, VISITS, 4000):
                numbers = range(first, first + 4000)
                await frontier.add("c", [f"http://h{n % HOSTS}.example/a/page/of/some/length/{n}" for n in numbers])

            # On a busy machine, a rewrite may end before the first call: it counts if calls were made meanwhile.
            during, rounds = 0, 0
            while during < (20 if LONG else 3):
                rounds += 1
                assert rounds < 100, "leasing waits for the end of a rewrite"
                store.ask("BGREWRITEAOF")
                meanwhile = False
                while True:
                    leases = await frontier.lease(hosts=8, visits=2)
                    assert leases
                    await end(frontier, leases)
                    if store.info("persistence")["aof_rewrite_in_progress"] == "0":
                        break
                    # The rewrite ran before these calls, and still runs after them.
                    meanwhile = True
                during += meanwhile
            counts = await frontier.crawls.count("c")
            assert counts.admitted == VISITS == counts.stored + counts.waiting


@pytest.mark.smoke
async def test_workers_survive_a_store_that_keeps_flushing_its_scripts(tmp_path: Path) -> None:
    with server(tmp_path / "store") as store:
        async with fleet(tmp_path / "crawl", store.url, pages=10_000 if LONG else 500, lease_seconds=30.0) as crawl:
            for _ in range(2):
                crawl.start()
            await crawl.noted("end")
            flushes = 0
            while crawl.running():
                store.ask("SCRIPT", "FLUSH")
                flushes += 1
                await asyncio.sleep(1.0 if LONG else 0.05)
            await crawl.finish()
            judge = await crawl.judge()
            assert flushes > 5
            assert judge.extra_requests == 0
            assert judge.count("lost") == 0
