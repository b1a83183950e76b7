"""kill -9 of Scrapy processes: on Shoal nothing is lost, on scrapy-redis under the same kills something is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scrapy.processes import Project, needs_scrapy_redis, project
from tests.servers import Server, server, wait_until
from tests.site.answers import Answer, page
from tests.site.site import Site, serving
from tests.site.tree import Tree

pytestmark = pytest.mark.chaos

_SHORT = {"SHOAL_FRONTIER_LEASE_SECONDS": 3}
# Slow enough for a kill to come in the middle: Scrapy then has requests in hand that wait for their turn.
_DELAY = {"DOWNLOAD_DELAY": 0.02}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with serving(tmp_path / "site", hosts=6) as one:
        yield one


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Server]:
    with server(tmp_path / "store") as one:
        yield one


def _crawl_under_kills(here: Project, tree: Tree) -> None:
    """Two processes; one after the other is killed in the middle of its work, and another takes its place.

    Those of scrapy-redis also close by themselves when the queue is empty for a moment; they are started again.
    """
    for _ in range(2):
        here.start("tree", start=tree.url(0))
    for kill in range(3):
        deadline = time.monotonic() + 60
        while len(here.kept()) < 30 * (kill + 1):
            assert time.monotonic() < deadline, here.processes[-1].said()[-2000:]
            if not here.living():
                here.start("tree", start=tree.url(0))
            time.sleep(0.01)
        for one in here.living()[:1]:
            one.kill()
        here.start("tree", start=tree.url(0))
    for one in here.processes:
        one.end()


def test_no_item_is_lost_when_processes_are_killed(site: Site, store: Server, tmp_path: Path) -> None:
    tree = site.plant(200, site.take(4))
    with project(tmp_path / "project", REDIS_URL=store.url, **_SHORT, **_DELAY) as here:
        _crawl_under_kills(here, tree)
        assert set(here.keys()) == tree.walk()
        # Items of a page that was in hand at a kill may come again: a store that goes by their key has them once.
        assert sum(here.keys().values()) < 1.5 * len(tree.walk())


def test_scrapy_redis_loses_items_under_the_same_kills(site: Site, store: Server, tmp_path: Path) -> None:
    needs_scrapy_redis()
    tree = site.plant(200, site.take(4))
    theirs = {
        "SCHEDULER": "scrapy_redis.scheduler.Scheduler", "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
        "SCHEDULER_PERSIST": 1, "REDIS_URL": store.url, **_DELAY,
    }  # fmt: skip
    with project(tmp_path / "project", **theirs) as here:
        _crawl_under_kills(here, tree)
        assert tree.walk() - set(here.keys()), "this kill test finds nothing where something is lost for certain"


def test_what_a_killed_process_held_is_taken_back_at_once_on_the_same_machine(site: Site, tmp_path: Path) -> None:
    """Its leases would last for ten minutes."""
    host = site.take(1)[0]
    url = site.at(host, "/", page("/slow"))
    site.at(host, "/slow", Answer(fault="silent"), page(title="At last"))
    with project(tmp_path / "project", SHOAL_FRONTIER_LEASE_SECONDS=600) as here:
        first = here.start("tree", start=url)
        wait_until(lambda: any(one.path == "/slow" for one in site.requests(host)), "it asks for the page", 30)
        first.kill()
        here.crawl("tree", start=url)
        assert set(here.keys()) == {url, f"{url}slow"}


@pytest.mark.parametrize("kind", ["list", "set"])
def test_a_start_url_is_in_the_frontier_before_it_leaves_its_key(
    kind: str, site: Site, store: Server, tmp_path: Path
) -> None:
    host = site.take(1)[0]
    site.at(host, "*", page())
    urls = [f"http://{host}/{number}" for number in range(60)]
    push, length = ("RPUSH", "LLEN") if kind == "list" else ("SADD", "SCARD")
    settings = {
        "REDIS_URL": store.url,
        "REDIS_START_URLS_AS_SET": int(kind == "set"),
        "CONCURRENT_REQUESTS": 4,
        **_SHORT,
    }
    with project(tmp_path / "project", MAX_IDLE_TIME_BEFORE_CLOSE=1, **settings) as here:
        started = [here.start("feeding")]
        wait_until(lambda: "Reading start URLs" in started[0].said(), "it reads", 30)
        store.ask(push, "feeding:start_urls", *urls)
        for _ in range(2):
            # In the middle of taking them, wherever that is.
            left = store.ask(length, "feeding:start_urls")
            wait_until(lambda: not left or store.ask(length, "feeding:start_urls") < left, "it takes", 30)  # noqa: B023
            started[-1].kill()
            started.append(here.start("feeding"))
        started[-1].end()
        assert set(here.keys()) == set(urls)
        assert store.ask(length, "feeding:start_urls") == 0
