"""Workers are killed, stopped and frozen in the middle of a crawl."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.chaos.fleet import LONG, fleet
from tests.servers import WAIT_SECONDS, server

pytestmark = [pytest.mark.chaos, pytest.mark.full]


async def test_repeatedly_killed_workers_lose_no_page_and_stay_polite(tmp_path: Path) -> None:
    with server(tmp_path / "store") as store:
        async with fleet(
            tmp_path / "crawl", store.url, pages=20_000 if LONG else 900, hosts=40 if LONG else 12
        ) as crawl:
            rng = random.Random(7)
            for _ in range(4 if LONG else 3):
                crawl.start()
            await crawl.noted("end")
            kills = 0
            while crawl.running() and kills < (100 if LONG else 6):
                await asyncio.sleep(2.0 if LONG else 0.7)
                crawl.kill(rng.choice(sorted(crawl.processes)))
                crawl.start()
                kills += 1
            await crawl.finish(600 if LONG else WAIT_SECONDS)
            judge = await crawl.judge()
            assert kills
            # A worker has at most 4 leases with 4 visits each that it has not acknowledged.
            assert judge.extra_requests <= kills * 16


async def test_stopped_workers_release_everything_and_fetch_nothing_twice(tmp_path: Path) -> None:
    with server(tmp_path / "store") as store:
        # Long leases: if one had to run out, the crawl would not end in time.
        async with fleet(tmp_path / "crawl", store.url, pages=5000 if LONG else 1000, lease_seconds=60) as crawl:
            for _ in range(3):
                crawl.start()
            await crawl.noted("end")
            for _ in range(20 if LONG else 4):
                await asyncio.sleep(0.5)
                name = sorted(crawl.processes)[0]
                crawl.start()
                # One that is still loading has nothing to give back, and no ear for a signal.
                await crawl.noted("ready", name)
                crawl.terminate(name)
            await crawl.finish(50)
            judge = await crawl.judge()
            assert judge.extra_requests == 0
            assert judge.count("released") > 0
            assert judge.count("lost") == 0


@pytest.mark.smoke
async def test_a_worker_frozen_before_a_fetch_sends_nothing_when_it_wakes(tmp_path: Path) -> None:
    with server(tmp_path / "store") as store:
        async with fleet(tmp_path / "crawl", store.url, pages=60, hosts=3, lease_seconds=1.0) as crawl:
            frozen = crawl.start(pause=0.3)
            await crawl.noted("lease", frozen)
            crawl.freeze(frozen)
            crawl.start()
            await asyncio.sleep(3.0)
            crawl.thaw(frozen)
            await crawl.noted("lost", frozen)
            await crawl.finish()
            judge = await crawl.judge()
            events = [event[0] for event in judge.events if event[2] == frozen]
            # It took a lease, did not trust it, and learned that it is lost; nothing was sent in between.
            first = events[: events.index("lost") + 1]
            assert "start" not in first
            assert "untrusted" in first
            assert all(times == 1 for times in judge.recorded.values())
