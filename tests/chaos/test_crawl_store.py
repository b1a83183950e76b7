"""The store under a real crawl is killed, frozen, full, and loses its scripts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from shoal.frontier.acknowledgement import rejected_keys
from tests.chaos.crawl import LONG, open_crawl
from tests.chaos.small_disk import filled, small_disk
from tests.proxy import proxy
from tests.servers import alive, server

pytestmark = [pytest.mark.chaos, pytest.mark.full]
BOTH = ("pages.db", "pages.jsonl")


def server_pid(folder: Path) -> int:
    """The embedded server's, 0 while there is none."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        pid = int((folder / "store" / "server.lock").read_text())
        return pid if alive(pid) else 0
    return 0


async def test_repeated_kills_of_the_embedded_store_lose_no_page(tmp_path: Path) -> None:
    pages, hosts = (20_000, 40) if LONG else (1_200, 12)
    # No lease expires while the store restarts: a worker that has lost its lease may write its record late.
    async with open_crawl(tmp_path, pages=pages, hosts=hosts, outputs=BOTH, lease_seconds=20.0) as crawl:
        for _ in range(3):
            crawl.start()
        await crawl.requested(2 * hosts)
        kills = held = 0
        while not await crawl.finished() and kills < (1000 if LONG else 4):
            await asyncio.sleep(10.0 if LONG else 2.0)
            await crawl.until(lambda: server_pid(tmp_path / "store"), "the store runs")
            held += sum([await crawl.held_by(name) for name in crawl.workers])
            os.kill(server_pid(tmp_path / "store"), signal.SIGKILL)
            kills += 1
        await crawl.finish(300)
        assert kills >= 3, "there was nothing to kill: this test proves nothing"
        judge = await crawl.judge(extra=held)
        assert not crawl.unreasoned(judge)


@pytest.mark.smoke
async def test_a_crawl_survives_a_store_that_keeps_flushing_its_scripts(tmp_path: Path) -> None:
    with server(tmp_path / "server") as store:
        async with open_crawl(tmp_path, pages=3_000 if LONG else 500, hosts=10, url=store.url, outputs=BOTH) as crawl:
            for _ in range(2):
                crawl.start()
            flushed = 0
            while not await crawl.finished():
                crawl.check_workers()
                store.ask("SCRIPT", "FLUSH")
                flushed += 1
                await asyncio.sleep(1.0 if LONG else 0.1)
            await crawl.finish()
            judge = await crawl.judge(extra=0)
            assert flushed > 10
            assert not judge.repeated()


async def test_workers_wait_for_a_frozen_store_without_busy_retries(tmp_path: Path) -> None:
    with server(tmp_path / "server") as store:
        crawled = open_crawl(tmp_path, pages=500, hosts=10, url=store.url, outputs=BOTH, lease_seconds=30.0)
        async with crawled as crawl, proxy(store.port) as first, proxy(store.port) as second:
            store_proxies = (first, second)
            for store_proxy in store_proxies:
                crawl.start(settings={"store.url": f"redis://127.0.0.1:{store_proxy.port}"})
            await crawl.requested(100)
            await crawl.until(lambda: all(crawl.last_report(name).worker for name in crawl.workers), "both work")
            before = [len(store_proxy.accepted) for store_proxy in store_proxies]
            store.freeze()
            await asyncio.sleep(10.0 if LONG else 8.0)
            store.thaw()
            requested = crawl.request_count()
            await crawl.until(lambda: crawl.request_count() > requested + 5, "they continue")
            await crawl.finish()
            # On a busy machine a worker can be too late to renew a lease, and then its pages are requested again.
            await crawl.judge()
            for store_proxy, was in zip(store_proxies, before, strict=True):
                store_proxy.accepted = store_proxy.accepted[was:]
                assert store_proxy.most_in_a_second() < 5
            assert any(store_proxy.accepted for store_proxy in store_proxies), (
                "nobody tried again: this test proves nothing"
            )


async def test_a_store_frozen_beyond_lease_expiry_repeats_requests_but_loses_no_record(tmp_path: Path) -> None:
    # One worker: what it could not acknowledge it is given again, while the first of it still waits for the outputs.
    with server(tmp_path / "server") as store:
        async with open_crawl(
            tmp_path, pages=1_000 if LONG else 500, hosts=10, seeds=10, url=store.url, outputs=BOTH, lease_seconds=1.0
        ) as crawl:
            crawl.start(settings={"store.timeout_seconds": 1.0})
            for turn in range(1, 5 if LONG else 3):
                await crawl.requested(150 * turn)
                store.freeze()
                await asyncio.sleep(3.0)
                store.thaw()
            await crawl.finish()
            await crawl.judge()


@pytest.mark.smoke
def test_a_page_in_a_batch_under_a_lost_and_a_valid_lease_is_kept() -> None:
    first, second = ("c", "http://a/1"), ("c", "http://a/2")
    assert rejected_keys(["old"], {"old": [first, second], "new": [first]}) == [second]


async def test_a_worker_stops_in_time_while_the_store_is_unavailable(tmp_path: Path) -> None:
    with server(tmp_path / "server") as store:
        async with open_crawl(
            tmp_path, pages=240, hosts=6, url=store.url, outputs=BOTH, lease_seconds=4.0,
            settings={"worker.grace_seconds": 2.0},
        ) as crawl:  # fmt: skip
            name = crawl.start()
            await crawl.requested(60)
            store.freeze()
            try:
                # While the store is unavailable: the worker does not wait for it.
                await crawl.stop(name)
            finally:
                store.thaw()
            crawl.start()
            await crawl.finish()
            await crawl.judge()


async def test_a_store_with_a_full_disk_stops_the_crawl_until_there_is_space(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 24_000_000) as disk:
        async with open_crawl(
            tmp_path, pages=4_000 if LONG else 500, hosts=10, store_folder=disk / "store", outputs=BOTH
        ) as crawl:
            for _ in range(2):
                # Short timeouts, so that the workers soon report what they wait for.
                crawl.start(settings={"store.timeout_seconds": 2.0})
            await crawl.requested(100)
            held = sum([await crawl.held_by(name) for name in crawl.workers])
            with filled(disk):
                await crawl.until(
                    lambda: any(crawl.last_report(worker).trouble for worker in crawl.workers), "a worker reports it"
                )
                # It is not blamed on the store.
                troubles = [crawl.last_report(worker).trouble for worker in crawl.workers]
                assert any(f"no space left on the disk of {disk}" in trouble for trouble in troubles), troubles
                await asyncio.sleep(1.0)
                crawl.check_workers()
                stalled = crawl.request_count()
                await asyncio.sleep(2.0)
                assert crawl.request_count() == stalled, "work continues without a store"
            await crawl.finish()
            await crawl.judge(extra=held + 200)
