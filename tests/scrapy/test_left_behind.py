"""What runs leave in the store: no more after many runs than after three."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.api.fleet_stats import CrawlTotals
from shoal.frontier import Frontier
from tests.scrapy.processes import Project, project
from tests.servers import Server
from tests.site.responses import Response, page
from tests.site.site import Site

pytestmark = pytest.mark.full
# More in `make chaos`, which takes longer.
RUNS = 30 if os.environ.get("CHAOS_LONG") == "1" else 8


@pytest.fixture
def here(store: Server, tmp_path: Path) -> Iterator[Project]:
    settings: dict[str, Any] = {"REDIS_URL": store.url, "FILES_STORE": tmp_path / "files"}
    settings |= {"FILES_EXPIRES": 0, "ROBOTSTXT_OBEY": 1}
    with project(tmp_path / "project", **settings) as opened:
        yield opened


def _keys(store: Server) -> list[str]:
    """Keys that never expire."""
    names = [name.decode() for name in store.ask("KEYS", "*")]
    return [name for name in names if store.ask("TTL", name) == -1]


async def test_many_runs_leave_as_many_keys_as_three(site: Site, store: Server, here: Project) -> None:
    """In a store of one shard, so that it does not depend on the shards that crawls have their records in."""
    (here.folder / "shoal.toml").write_text("[store]\nshards = 1\n")
    (host,) = site.take(1)
    url = site.at(host, "/", page(body=f'<img src="http://{host}/a.png">'))
    site.at(host, "/a.png", Response(body="image", type="image/png"))
    counts = []
    for number in range(1, RUNS + 1):
        here.crawl("with_files", start=url)
        counts.append(len(_keys(store)))
        assert len(here.items()) == number
    assert counts[-1] == counts[2], counts
    async with await Frontier.open(store.url) as frontier:
        totals = CrawlTotals(frontier)
        await totals.read()
        # A page and a file in each run.
        assert totals.with_deleted.stored == 2 * RUNS


async def test_a_crawl_with_its_own_arguments_is_deleted_after_the_days_to_keep_it(
    site: Site, store: Server, here: Project
) -> None:
    (host,) = site.take(1)
    url = site.at(host, "/", page())
    here.crawl("tree", start=url, day="1")
    (here.folder / "shoal.toml").write_text("[frontier]\nkeep_days = 0.00000001\n")
    here.crawl("tree", start=url, day="2")
    async with await Frontier.open(store.url) as frontier:
        (left,) = [crawl.id async for crawl in frontier.crawls.all()]
    first, second = (re.findall(r"Crawl (\S+) in", process.output())[0] for process in here.processes)
    assert left == second
    assert not [name for name in _keys(store) if name.endswith(first)]


async def test_a_process_that_closes_releases_a_lease_that_arrives_late(
    site: Site, store: Server, here: Project
) -> None:
    first, second = site.take(2)
    site.at(second, "/", page())
    (process,) = here.crawl("closing", start=site.at(first, "/", page(f"http://{second}/")))
    assert "Spider closed (closed during a lease)" in process.output()
    async with await Frontier.open(store.url) as frontier:
        (crawl,) = [crawl.id async for crawl in frontier.crawls.all()]
        counts = await frontier.crawls.count(crawl)
    assert (counts.leased, counts.waiting) == (0, 1)
