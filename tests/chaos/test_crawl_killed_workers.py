"""Real workers are killed and stopped in the middle of a crawl: repeatedly, and at each step of a visit."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from pathlib import Path

import pytest

from tests.chaos.crawl import LONG, CrawlRun, open_crawl
from tests.site.responses import Response, page

pytestmark = [pytest.mark.chaos, pytest.mark.full]
STEPPING = (sys.executable, "-m", "tests.chaos.stepping_worker")
BOTH = ("pages.db", "pages.jsonl")


@pytest.mark.parametrize("reap", [False, True], ids=["their_leases_run_out", "their_supervisor_takes_back"])
async def test_repeatedly_killed_workers_lose_no_page_and_stay_polite(tmp_path: Path, reap: bool) -> None:
    pages, hosts = (20_000, 40) if LONG else (1_500 if reap else 1_000, 20)
    async with open_crawl(tmp_path, pages=pages, hosts=hosts, outputs=BOTH, lease_seconds=2.0) as crawl:
        rng = random.Random(11)
        for _ in range(4):
            crawl.start()
        await crawl.requested(2 * hosts)
        kills = unacknowledged = 0
        while not await crawl.finished():
            await asyncio.sleep(2.0 if LONG else 1.0)
            if await crawl.finished() or kills >= (1000 if LONG else 5):
                break
            crawl.check_workers()
            unacknowledged += await crawl.kill(rng.choice(sorted(crawl.workers)), reap=reap)
            crawl.start()
            kills += 1
        await crawl.finish(300)
        assert kills >= 3, "there was nothing to kill: this test proves nothing"
        judge = await crawl.judge(extra=unacknowledged)
        assert not crawl.unreasoned(judge)


async def test_stopped_workers_release_everything_and_no_page_is_fetched_twice(tmp_path: Path) -> None:
    # Long leases, and a long grace: if one had to run out, nothing would end in time.
    pages, hosts = (5_000, 20) if LONG else (700, 20)
    settings = {"worker.grace_seconds": 600.0}
    async with open_crawl(
        tmp_path, pages=pages, hosts=hosts, outputs=BOTH, lease_seconds=600.0, settings=settings
    ) as crawl:
        names = [crawl.start() for _ in range(4)]
        await crawl.requested(2 * hosts)
        for turn in range(30 if LONG else 5):
            await asyncio.sleep(0.5)
            crawl.start()
            name = names.pop(0) if names else sorted(crawl.workers)[turn % 4]
            await crawl.stop(name)
        await crawl.finish(200)
        judge = await crawl.judge(extra=0)
        assert not judge.repeated()
        assert {row["attempt"] for row in crawl.rows()} == {1}, "a lease ran out"


async def test_a_stopping_worker_starts_no_request_when_a_delay_ends(tmp_path: Path) -> None:
    settings = {"worker.grace_seconds": 600.0}
    async with open_crawl(
        tmp_path, pages=3, hosts=3, delay_seconds=3.0, lease_seconds=600.0, settings=settings
    ) as crawl:
        first = crawl.start()
        await crawl.until(lambda: crawl.site.judge(*crawl.tree.hosts).requests, "robots.txt is requested")
        await crawl.stop(first)
        requests = crawl.site.judge(*crawl.tree.hosts).requests
        assert all(request.is_robots for request in requests), [*map(str, requests)]
        crawl.start()
        await crawl.finish()
        await crawl.judge(extra=0)


@pytest.mark.smoke
async def test_a_stopping_worker_aborts_requests_that_exceed_its_grace_period(tmp_path: Path) -> None:
    settings = {"worker.grace_seconds": 1.0}
    async with open_crawl(
        tmp_path, pages=12, hosts=3, delay_seconds=1.0, lease_seconds=600.0, settings=settings,
        policy={"timeout_seconds": 600.0},
    ) as crawl:  # fmt: skip
        slow = crawl.tree.url(7)
        host, path = slow.split("/", 3)[2], "/" + slow.split("/", 3)[3]
        crawl.site.at(host, path, Response(fault="silent"))
        first = crawl.start()
        await crawl.until(lambda: crawl.site.judge(host).times(slow), "the slow page is requested")
        await crawl.stop(first)
        crawl.site.at(host, path, page())
        crawl.start()
        await crawl.finish()
        judge = await crawl.judge(extra=1)
        assert [request.how for request in judge.requests if request.url == slow] == ["gone", "done"]
        # Its lease did not run out: it was given back.
        assert {row["attempt"] for row in crawl.rows()} == {1}


async def die_at(crawl: CrawlRun, step: str, time: int, *, reap: bool) -> int:
    name = crawl.start(program=STEPPING, environ={"STEP": step, "TIME": str(time), "SIGNAL": str(int(signal.SIGKILL))})
    process = crawl.workers.pop(name)
    await crawl.until(lambda: process.poll() is not None, f"{name} reaches {step!r} for the {time}. time")
    assert process.returncode == -signal.SIGKILL, f"it ended with {process.returncode}: {crawl.errors(name)}"
    return await crawl.bury(name, process, reap=reap)


@pytest.mark.parametrize("step", ["leased", "fetched", "added", "written", "acknowledged", "settled"])
async def test_a_worker_killed_at_a_step_loses_nothing_and_stores_nothing_twice(tmp_path: Path, step: str) -> None:
    async with open_crawl(tmp_path, pages=60, hosts=6, outputs=BOTH, delay_seconds=0.05, lease_seconds=1.0) as crawl:
        unacknowledged = 0
        # Later ones find more on their way than the first page. Some leases run out, others are taken back at once.
        for time, reap in ((1, True), (2, False), (3, True)):
            unacknowledged += await die_at(crawl, step, time, reap=reap)
        crawl.start()
        await crawl.finish()
        judge = await crawl.judge(extra=unacknowledged)
        assert not crawl.unreasoned(judge)
