"""Real workers are frozen, or cut off from the store, for longer than their leases are valid."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from tests.chaos.crawl import LONG, CrawlRun, open_crawl, stopped
from tests.proxy import proxy
from tests.servers import server
from tests.site.responses import Response

pytestmark = [pytest.mark.chaos, pytest.mark.full]
STEPPING = (sys.executable, "-m", "tests.chaos.stepping_worker")
BOTH = ("pages.db", "pages.jsonl")
LEASE_SECONDS = 1.5


@pytest.mark.smoke
async def test_a_worker_frozen_between_lease_and_request_sends_nothing_when_it_wakes(tmp_path: Path) -> None:
    async with open_crawl(tmp_path, pages=90, hosts=6, seeds=6, outputs=BOTH, lease_seconds=LEASE_SECONDS) as crawl:
        # At the first lease: no page was fetched before that would have to be fetched again.
        frozen = crawl.start(
            program=STEPPING, environ={"STEP": "leased", "TIME": "1", "SIGNAL": str(int(signal.SIGSTOP))}
        )
        pid = crawl.workers[frozen].pid
        await crawl.until(lambda: stopped(pid), "it has leased and is frozen")
        assert await crawl.held_by(frozen)
        crawl.start()
        await asyncio.sleep(3 * LEASE_SECONDS)
        crawl.thaw(frozen)
        await crawl.finish()
        judge = await crawl.judge(extra=0)
        assert not crawl.unreasoned(judge)


async def test_a_worker_frozen_with_fetched_pages_cannot_acknowledge_them(tmp_path: Path) -> None:
    async with open_crawl(tmp_path, pages=90, hosts=6, outputs=BOTH, lease_seconds=LEASE_SECONDS) as crawl:
        frozen = crawl.start(
            program=STEPPING, environ={"STEP": "written", "TIME": "4", "SIGNAL": str(int(signal.SIGSTOP))}
        )
        pid = crawl.workers[frozen].pid
        await crawl.until(lambda: stopped(pid), "it has written and is frozen")
        held = await crawl.held_by(frozen)
        assert held
        crawl.start()
        await asyncio.sleep(3 * LEASE_SECONDS)
        crawl.thaw(frozen)
        await crawl.until(lambda: crawl.last_report(frozen).leases_lost, "its acknowledgement is refused")
        await crawl.finish()
        await crawl.judge(extra=held)


@pytest.mark.parametrize("turn", range(5 if LONG else 1))
async def test_a_worker_frozen_during_a_long_transfer_overlaps_at_most_once(tmp_path: Path, turn: int) -> None:
    async with open_crawl(
        tmp_path, pages=40, hosts=4, lease_seconds=LEASE_SECONDS, policy={"timeout_seconds": 60.0}
    ) as crawl:
        slow = crawl.tree.url(20 + turn)
        host, path = slow.split("/", 3)[2], "/" + slow.split("/", 3)[3]
        crawl.site.at(host, path, Response(size=5_000_000, lasting=30.0), Response(size=5_000_000, lasting=0.5))
        frozen = crawl.start()
        await crawl.until(lambda: crawl.site.judge().times(slow), "the long page is requested")
        await asyncio.sleep(0.5)
        crawl.freeze(frozen)
        held = await crawl.held_by(frozen)
        crawl.start()
        await crawl.until(lambda: crawl.site.judge().times(slow) > 1, "its host is taken over")
        crawl.thaw(frozen)
        await crawl.finish()
        judge = await crawl.judge(extra=held, overlaps=1)
        assert judge.crowded(), "nothing was taken over during a transfer: this test proves nothing"
        # What was open when it woke was aborted, not read to its end.
        assert [request.how for request in judge.requests if request.url == slow] == ["gone", "done"]


async def test_a_transfer_longer_than_a_lease_continues_while_the_lease_is_renewed(tmp_path: Path) -> None:
    async with open_crawl(tmp_path, pages=12, hosts=3, lease_seconds=1.0, policy={"timeout_seconds": 60.0}) as crawl:
        slow = crawl.tree.url(7)
        host, path = slow.split("/", 3)[2], "/" + slow.split("/", 3)[3]
        crawl.site.at(host, path, Response(size=500_000, lasting=3.0))
        crawl.start()
        await crawl.finish()
        await crawl.judge(extra=0)


async def cut_off(crawl: CrawlRun, store_port: int, seconds: float) -> None:
    async with proxy(store_port) as store_proxy:
        far = crawl.start(settings={"store.url": f"redis://127.0.0.1:{store_proxy.port}", "store.timeout_seconds": 1.0})
        await crawl.requested(30)
        near = crawl.start()
        await crawl.until(lambda: crawl.last_report(near).worker and crawl.last_report(far).pages, "both work")
        store_proxy.silent = True
        store_proxy.cut()
        await asyncio.sleep(seconds)
        assert await crawl.held_by(far) == 0, "its leases did not run out"
        crawl.check_workers()
        store_proxy.silent = False
        store_proxy.cut()
        # It is whole again: it can do what is left without the other.
        before = crawl.last_report(far).pages
        await crawl.stop(near)
        await crawl.finish()
        assert crawl.last_report(far).pages > before


async def test_other_workers_take_over_the_hosts_of_a_worker_without_the_store(tmp_path: Path) -> None:
    with server(tmp_path / "server") as store:
        async with open_crawl(
            tmp_path, pages=15_000 if LONG else 1600, hosts=12, url=store.url, outputs=BOTH, lease_seconds=2.0
        ) as crawl:
            await cut_off(crawl, store.port, 60.0 if LONG else 5.0)
            await crawl.judge()
