"""Real workers whose clocks are wrong: the wall clock by minutes, or a monotonic clock of another machine."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.chaos.crawl import LONG, WORKER, CrawlRun, open_crawl
from tests.servers import program

pytestmark = [pytest.mark.chaos, pytest.mark.full]
BOTH = ("pages.db", "pages.jsonl")
FOREIGN_SECONDS = 1_000_000


def wrong_by(offset: str) -> dict[str, str]:
    """An environment in which the wall clock is wrong and no other: what `faketime` sets, for the worker itself."""
    faketime = program("faketime", "apt-get install faketime")
    lines = subprocess.run([faketime, "-f", offset, "env"], capture_output=True, check=True, text=True).stdout
    (library,) = (line.partition("=")[2] for line in lines.splitlines() if line.startswith("LD_PRELOAD="))
    return {"LD_PRELOAD": library, "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


async def all_work(crawl: CrawlRun, *names: str) -> None:
    """All of them at work at once; none is noticed by the site. None is forked: it would start before the others."""
    await crawl.finish()
    judge = await crawl.judge(extra=0)
    assert not judge.repeated(), "a robots.txt was requested twice"
    assert all(crawl.last_report(name).pages for name in names), "one of them did nothing: this test proves nothing"


@pytest.mark.smoke
async def test_workers_with_wrong_wall_clocks_crawl_correctly(tmp_path: Path) -> None:
    fast, slow = wrong_by("+300s"), wrong_by("-300s")
    # More hosts than two workers may hold, so that each of the three gets some.
    async with open_crawl(
        tmp_path, pages=2_000 if LONG else 400, hosts=40, seeds=40, outputs=BOTH, lease_seconds=20.0,
        settings={"worker.hosts": 15},
    ) as crawl:  # fmt: skip
        await all_work(crawl, crawl.start(environ=fast), crawl.start(environ=slow), crawl.start(fork=False))
        # The clocks were as wrong as they should be.
        now = datetime.now(UTC).timestamp()
        off = {round((datetime.fromisoformat(str(row["fetched_at"])).timestamp() - now) / 300) for row in crawl.rows()}
        assert off == {-1, 0, 1}


async def test_a_worker_with_the_monotonic_clock_of_another_machine_crawls_correctly(tmp_path: Path) -> None:
    unshare = program("unshare", "apt-get install util-linux")
    apart = (unshare, "--time", "--monotonic", str(FOREIGN_SECONDS), "--boottime", str(FOREIGN_SECONDS))
    try:
        uptime = subprocess.run([*apart, "cat", "/proc/uptime"], capture_output=True, check=True).stdout
    except subprocess.CalledProcessError as error:
        reason = f"a time namespace needs root and Linux 5.6: {error.stderr.decode().strip()}"
        if os.environ.get("CI") == "true" and os.geteuid() == 0:
            pytest.fail(reason)
        pytest.skip(reason)
    assert float(uptime.split()[0]) > FOREIGN_SECONDS
    async with open_crawl(
        tmp_path, pages=2_000 if LONG else 400, hosts=40, seeds=40, outputs=BOTH, lease_seconds=20.0,
        settings={"worker.hosts": 25},
    ) as crawl:  # fmt: skip
        await all_work(crawl, crawl.start(program=(*apart, *WORKER)), crawl.start(fork=False))
