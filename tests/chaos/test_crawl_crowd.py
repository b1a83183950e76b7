"""A whole fleet starts at the same moment."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.chaos.crawl import LONG, open_crawl
from tests.servers import server

pytestmark = [pytest.mark.chaos, pytest.mark.full]


async def test_many_workers_that_start_at_once_are_as_polite_as_one(tmp_path: Path) -> None:
    processes, each = (10, 50) if LONG else (4, 10)
    with server(tmp_path / "server") as store:
        async with open_crawl(
            tmp_path, pages=2_000 if LONG else 600, hosts=120, seeds=120, url=store.url, lease_seconds=20.0,
            delay_seconds=0.2,
        ) as crawl:  # fmt: skip
            program = (sys.executable, "-m", "tests.chaos.crowd", str(each))
            names = [crawl.start(program=program) for _ in range(processes)]
            await crawl.until(lambda: all(crawl.last_report(name).worker for name in names), "all have started")
            await crawl.finish()
            judge = await crawl.judge(extra=0)
            assert not judge.repeated(), "a robots.txt was requested twice"
            assert len({row["worker"] for row in crawl.rows()}) > 1
