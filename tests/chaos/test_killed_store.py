"""The store is killed repeatedly under a running fleet, keeps all confirmed writes, or loses the last ones."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.fleet import LONG, Fleet, fleet
from tests.chaos.slow_disk import slow_disk
from tests.proxy import proxy
from tests.servers import WAIT_SECONDS, Options, Server, server, wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.full]
EVERYSEC: Options = {"appendfsync": "everysec", "auto-aof-rewrite-percentage": "0"}
LEASE_SECONDS = 1.5
# Leasing is held for the longest lease and two seconds after a restart that may have lost writes.
HOLD_SECONDS = LEASE_SECONDS + 2.0
# Not strict: it takes a page on its way to the sink at the moment of the loss. test_corners.py shows it every time.
UNWRITTEN_BYTES = 10_000
SLOW_CRAWL: dict[str, Any] = {
    "pages": 8000 if LONG else 450,
    "delay_seconds": 0.07,
    "lease_seconds": LEASE_SECONDS,
    # The time between the links and the acknowledgement of a page: the store may lose the one and keep the other.
    "delivery": 0.3,
}


def metas(store: Server, field: str) -> list[int]:
    """A field of `meta` of every shard that has been leased from."""
    keys = [key for key in store.ask("KEYS", "chaos{*}meta") if b"{store}" not in key]
    return [int(store.ask("HGET", key, field) or 0) for key in keys]


@pytest.mark.smoke
async def test_killing_a_store_that_syncs_every_write_has_no_effect(tmp_path: Path) -> None:
    with server(tmp_path / "store") as store:
        async with fleet(tmp_path / "crawl", store.url, pages=20_000 if LONG else 900) as crawl:
            for _ in range(3):
                crawl.start()
            await crawl.noted("end")
            kills = 0
            while crawl.running() and kills < (60 if LONG else 5):
                await asyncio.sleep(10.0 if LONG else 0.5)
                store.restart()
                kills += 1
            await crawl.finish(600 if LONG else WAIT_SECONDS)
            judge = await crawl.judge()
            assert max(metas(store, "epoch")) > 1
            # No epoch was treated as a loss. A short hold is allowed: a busy worker may have no reading of the clock.
            assert set(metas(store, "unsafe")) == {0}
            # Nothing was lost, so nothing is fetched again but what the leases that ran out meanwhile held.
            assert judge.extra_requests <= kills * 3 * 16


async def kill_and_hold(crawl: Fleet, store: Server, kills: int, rng: random.Random, disk_seconds: float = 0.0) -> int:
    """kill -9 again and again, with time to work between the holds. Returns how often it happened."""
    done = 0
    while crawl.running() and done < kills:
        work = rng.uniform(0.8, 2.0) * (3 if LONG else 1)
        if disk_seconds:
            with slow_disk(store.pid, disk_seconds):
                await asyncio.sleep(HOLD_SECONDS * (done > 0) + work)
                # Writes that were acknowledged and not yet on disk are lost now.
                wait_until(
                    lambda: int(store.info("persistence")["aof_buffer_length"]) > UNWRITTEN_BYTES, "it is behind"
                )
                store.kill()
        else:
            await asyncio.sleep(HOLD_SECONDS * (done > 0) + work)
            store.kill()
        store.start()
        done += 1
    return done


async def test_killing_a_store_that_syncs_every_second_loses_no_page(tmp_path: Path) -> None:
    with server(tmp_path / "store", options=EVERYSEC) as store:
        async with fleet(tmp_path / "crawl", store.url, **SLOW_CRAWL) as crawl:
            store.ask("WAITAOF", 1, 0, 5000)
            for _ in range(3):
                crawl.start()
            await crawl.noted("end")
            kills = 20 if LONG else 2
            assert await kill_and_hold(crawl, store, kills, random.Random(1)) == kills
            await crawl.finish(600 if LONG else WAIT_SECONDS)
            await crawl.judge()
            assert max(metas(store, "epoch")) > 1


async def test_a_store_on_a_slow_disk_loses_its_last_writes_but_no_page_and_no_politeness(tmp_path: Path) -> None:
    with server(tmp_path / "store", options=EVERYSEC) as store:
        async with fleet(tmp_path / "crawl", store.url, **SLOW_CRAWL) as crawl:
            store.ask("WAITAOF", 1, 0, 5000)
            for _ in range(3):
                crawl.start()
            await crawl.noted("end")
            kills = 12 if LONG else 2
            assert await kill_and_hold(crawl, store, kills, random.Random(2), disk_seconds=1.5) == kills
            await crawl.finish(600 if LONG else WAIT_SECONDS)
            judge = await crawl.judge()
            assert judge.extra_requests > 0, "the disk was not slow enough: this test proves nothing"


@pytest.mark.parametrize("middle", [False, True], ids=["at_any_byte", "in_the_middle_of_a_record"])
async def test_a_store_restarted_from_a_truncated_file_holds_leases_and_loses_no_page(
    tmp_path: Path, middle: bool
) -> None:
    with server(tmp_path / "store", options=EVERYSEC) as store:
        async with fleet(tmp_path / "crawl", store.url, **SLOW_CRAWL) as crawl:
            (part,) = (tmp_path / "store").glob("appendonlydir/*.incr.aof")
            for _ in range(3):
                crawl.start()
            await crawl.noted("end")
            for round_ in range(6 if LONG else 1):
                await asyncio.sleep(1.0 + HOLD_SECONDS * (round_ > 0))
                kept = part.stat().st_size
                await asyncio.sleep(0.4)
                store.kill()
                assert part.stat().st_size > kept
                with part.open("r+b") as file:
                    file.truncate(middle_of_a_record(part, kept) if middle else kept)
                store.start()
                if not crawl.running():
                    break
            await crawl.finish(300 if LONG else WAIT_SECONDS)
            judge = await crawl.judge()
            assert judge.extra_requests > 0, "the cut took nothing away: this test proves nothing"
            assert max(metas(store, "epoch")) > 1


def middle_of_a_record(part: Path, near: int) -> int:
    """A place in the file, near this one, that is inside the text of a command."""
    data = part.read_bytes()
    at = data.rindex(b"$4\r\nHSET\r\n", 0, near)
    return at + 6


async def test_workers_wait_for_a_store_that_is_frozen_for_seconds(tmp_path: Path) -> None:
    with server(tmp_path / "store") as store:
        crawled = fleet(tmp_path / "crawl", store.url, pages=800, lease_seconds=20.0)
        async with crawled as crawl, proxy(store.port) as first, proxy(store.port) as second:
            store_proxies = (first, second)
            for store_proxy in store_proxies:
                crawl.start(url=f"redis://127.0.0.1:{store_proxy.port}")
            await crawl.noted("end")
            await asyncio.sleep(0.5)
            before = [len(store_proxy.accepted) for store_proxy in store_proxies]
            store.freeze()
            await asyncio.sleep(10.0 if LONG else 7.0)
            store.thaw()
            assert crawl.running(), "a worker gave up, or there was nothing left to do"
            await crawl.finish()
            judge = await crawl.judge()
            assert judge.extra_requests == 0
            assert all(len(store_proxy.accepted) > was for store_proxy, was in zip(store_proxies, before, strict=True))
            assert max(store_proxy.most_in_a_second() for store_proxy in store_proxies) < 5
            assert all(times == 1 for times in judge.recorded.values())
