"""The outputs of a real crawl are locked, or their disk is full."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.crawl import LONG, CrawlRun, open_crawl
from tests.chaos.small_disk import filled, small_disk

pytestmark = [pytest.mark.chaos, pytest.mark.full]
BOTH = ("pages.db", "pages.jsonl")
MEMORY_BYTES = 600_000_000


@contextlib.contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    """Another program has the database for itself; it can still read what is in it."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=20)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("ROLLBACK")


async def watch(crawl: CrawlRun, stored: int, seconds: float) -> None:
    """While the output takes nothing, nothing more is counted as stored, and memory is bounded."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        crawl.check_workers()
        counts = await crawl.counts()
        assert counts.stored <= stored, f"{counts.stored} pages are acknowledged, {stored} are stored"
        for name in crawl.workers:
            assert crawl.memory_bytes(name) < MEMORY_BYTES
        await asyncio.sleep(0.2)


async def test_a_crawl_waits_for_a_locked_database_and_stores_every_page_once(tmp_path: Path) -> None:
    # Large pages, and no pause between them: a worker without a bound would take them all in.
    async with open_crawl(
        tmp_path, pages=4_000 if LONG else 700, hosts=20, seeds=20, size=300_000, delay_seconds=0.01,
        lease_seconds=2.0, policy={"delay_factor": 0.0},
    ) as crawl:  # fmt: skip
        for _ in range(3 if LONG else 1):
            crawl.start()
        await crawl.until(lambda: len(crawl.rows()) > 20, "pages are stored")
        with locked(crawl.outputs[0]) as connection:
            (stored,) = connection.execute("SELECT count(*) FROM pages").fetchone()
            await watch(crawl, stored, 60.0 if LONG else 8.0)
            requested = crawl.request_count()
            assert requested < crawl.tree.pages, "all pages were taken in: this test proves nothing of the bound"
            await asyncio.sleep(1.0)
            assert crawl.request_count() == requested, "work is taken on although nothing can be stored"
            assert any(crawl.last_report(name).trouble for name in crawl.workers), "nobody says what they wait for"
        await crawl.finish()
        judge = await crawl.judge(extra=0)
        assert not crawl.unreasoned(judge)


@pytest.mark.smoke
async def test_a_worker_whose_output_is_locked_stops_in_time(tmp_path: Path) -> None:
    async with open_crawl(
        tmp_path, pages=600, hosts=20, seeds=20, size=300_000, delay_seconds=0.01, lease_seconds=600.0,
        policy={"delay_factor": 0.0}, settings={"worker.grace_seconds": 1.0},
    ) as crawl:  # fmt: skip
        name = crawl.start()
        await crawl.until(lambda: len(crawl.rows()) > 20, "pages are stored")
        with locked(crawl.outputs[0]):
            await crawl.until(lambda: crawl.last_report(name).trouble, "it reports what it waits for")
            # It is full and takes nothing more.
            requested = -1
            while requested != crawl.request_count():
                requested = crawl.request_count()
                await asyncio.sleep(1.0)
            assert requested < 600
            # While the output is locked: it does not wait for it.
            await crawl.stop(name)
            assert await crawl.held_by(name) == 0, "it left with leases that now have to run out"
        crawl.start()
        await crawl.finish()
        await crawl.judge()


async def test_a_crawl_waits_for_outputs_on_a_full_disk_and_stores_every_page_once(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 120_000_000) as disk:
        async with open_crawl(
            tmp_path, pages=2_000 if LONG else 500, hosts=10, seeds=10, size=20_000, outputs=BOTH,
            output_folder=disk, lease_seconds=2.0,
        ) as crawl:  # fmt: skip
            for _ in range(2):
                crawl.start()
            await crawl.until(lambda: len(crawl.rows()) > 20, "pages are stored")
            with filled(disk):
                await crawl.until(
                    lambda: any(crawl.last_report(worker).trouble for worker in crawl.workers), "a worker reports it"
                )
                troubles = [
                    crawl.last_report(worker).trouble for worker in crawl.workers if crawl.last_report(worker).trouble
                ]
                assert all("no space left" in sentence for sentence in troubles), troubles
                # Rows are counted before the store is read: acknowledged pages were stored before.
                await watch(crawl, (await crawl.counts()).stored + 50, 3.0)
                before = (await crawl.counts()).stored
                assert before <= len(crawl.rows())
                await asyncio.sleep(1.0)
                assert (await crawl.counts()).stored == before
            await crawl.finish()
            judge = await crawl.judge(extra=0)
            assert not crawl.unreasoned(judge)
