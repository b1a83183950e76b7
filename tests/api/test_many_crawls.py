"""Fifty crawls over twenty hosts that they share, on two groups of workers, some paused, stopped, expired.

The site's log judges politeness and fairness, the counts and the output's rows that nothing was lost or made twice.
"""

from __future__ import annotations

import contextlib
import sqlite3
import statistics
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from shoal.errors import CrawlEnded
from tests.api.process import serve_api
from tests.servers import wait_until
from tests.site.responses import Responses, page
from tests.system.crawls import open_crawls
from tests.system.shell import LOCAL, Shell

pytestmark = pytest.mark.full

CRAWLS, HOSTS, PAGES, DELAY = 50, 20, 12, 0.1
PRIORITIES = (5, 0, -5)
PAUSED, STOPPED, EXPIRED = range(5), range(5, 10), range(10, 13)


def test_crawls_that_share_hosts_get_their_shares_and_exact_counts(tmp_path: Path) -> None:
    output = tmp_path / "all.db"
    toml = f'[outputs]\nmain = "{output}"\n'
    with (
        open_crawls(tmp_path, hosts=HOSTS, workers=0, settings={"outputs": {"main": str(output)}}) as crawls,
        serve_api(tmp_path / "served", "--folder", tmp_path / "store", settings=toml) as api,
    ):
        site, client = crawls.site, api.client
        hosts = site.take(HOSTS)
        seeds = {}
        for crawl in range(CRAWLS):
            urls = [f"http://{hosts[(crawl * 7 + n % 2) % HOSTS]}/{crawl}/{n}" for n in range(PAGES)]
            seeds[crawl] = urls[0]
            for n, url in enumerate(urls):
                host, _, path = url.removeprefix("http://").partition("/")
                site.send(Responses(host, f"/{path}", (page(*urls[n + 1 :]),)))
        for crawl, seed in seeds.items():
            request = {"priority": PRIORITIES[crawl % 3], "scope": "any", "delay_seconds": DELAY, "outputs": ["main"]}
            if crawl in EXPIRED:
                # The first before anybody works, the others while they do, or after it.
                request["expires_at"] = time.time() + (0.05 if crawl == EXPIRED[0] else 3.0)
            client.submit(seeds=[seed], name=f"c{crawl}", **request)
        for crawl in PAUSED:
            client.pause(f"c{crawl}")
        client.stop(f"c{STOPPED[0]}")
        assert site.requests() == []

        shell = Shell(tmp_path / "served")
        try:
            crawls.start_workers(2)
            shell.start("worker", "--folder", tmp_path / "store", "--workers", 2, *LOCAL)
            wait_until(lambda: len(client.workers()) == 4, "both groups are there")
            wait_until(lambda: len(site.requests()) > 40, "they work")
            for crawl in STOPPED[1:]:
                # One of a high priority may be through already.
                with contextlib.suppress(CrawlEnded):
                    client.stop(f"c{crawl}")
            others = [crawl for crawl in range(CRAWLS) if crawl not in PAUSED]
            for crawl in others:
                client.wait(f"c{crawl}", timeout_seconds=120)
            wait_until(lambda: client.stats()["counts"]["leased"] == 0, "what was leased has ended")
            requested = Counter(request.path.split("/")[1] for request in site.requests() if not request.is_robots)
            assert not any(str(crawl) in requested for crawl in [*PAUSED, STOPPED[0], EXPIRED[0]])
            _judge_shares(site.requests())
            for crawl in PAUSED:
                client.resume(f"c{crawl}")
            for crawl in PAUSED:
                client.wait(f"c{crawl}", timeout_seconds=60)
        finally:
            shell.close()

        statuses = {crawl: client.crawl(f"c{crawl}") for crawl in range(CRAWLS)}
        requests = [request for request in site.requests() if not request.is_robots]
        judge = site.judge()
        assert judge.crowded() == []
        assert judge.hasty(DELAY) == []
        assert judge.repeated() == {}
        with sqlite3.connect(output) as rows:
            stored = Counter(dict(rows.execute("SELECT crawl, count(*) FROM pages WHERE error = '' GROUP BY crawl")))
            stored += Counter(
                dict(rows.execute("SELECT crawl, count(*) FROM pages WHERE error IS NULL GROUP BY crawl"))
            )
        assert any(statuses[crawl]["state"] == "stopped" for crawl in STOPPED[1:]), "none was stopped in the middle"
        for crawl, status in statuses.items():
            counts = status["counts"]
            assert counts["admitted"] == counts["stored"] + counts["failed"] + counts["excluded"], status
            assert counts["stored"] == stored[f"c{crawl}"], status
            assert counts["stored"] == sum(request.path.startswith(f"/{crawl}/") for request in requests), status
            expected = {"finished"}
            if crawl in (STOPPED[0], EXPIRED[0]):
                expected = {"stopped"} if crawl in STOPPED else {"expired"}
            elif crawl in STOPPED or crawl in EXPIRED:
                expected |= {"stopped"} if crawl in STOPPED else {"expired"}
            assert status["state"] in expected, status
            if status["state"] == "finished":
                assert counts["stored"] == counts["admitted"] == PAGES, status


def _judge_shares(requests: list) -> None:
    """Higher priorities come first in the mean; nobody waits until all of them are done."""
    when = defaultdict(list)
    for request in requests:
        if not request.is_robots:
            crawl = int(request.path.split("/")[1])
            if crawl not in STOPPED and crawl not in EXPIRED:
                when[PRIORITIES[crawl % 3]].append(request.began)
    high, usual, low = (when[priority] for priority in PRIORITIES)
    assert statistics.median(high) < statistics.median(low)
    assert min(low) < max(high)
    assert min(usual) < max(high)
