"""kill -9 of Scrapy processes: Shoal loses nothing, scrapy-redis loses items under the same kills."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.scrapy.processes import Project, needs_scrapy_redis, project
from tests.servers import Server, server, wait_until
from tests.site.responses import Response, page
from tests.site.site import Site, serving
from tests.site.tree import Tree

pytestmark = [pytest.mark.chaos, pytest.mark.full]

_SHORT = {"SHOAL_FRONTIER_LEASE_SECONDS": 3}
_KILLS = 3
_EVERY_SECONDS = 3.0


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with serving(tmp_path / "site", hosts=6) as served:
        yield served


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Server]:
    with server(tmp_path / "store") as valkey:
        yield valkey


@dataclass
class Killed:
    """Two processes; every three seconds one of them, at random, is killed, and another takes its place."""

    tree: Tree
    here: Project
    store: Server
    kills: int = 0
    rng: random.Random = field(default_factory=lambda: random.Random(7))

    def start(self) -> None:
        self.here.start("tree", start=self.tree.url(0))

    def kill_one(self) -> None:
        if living := self.here.living():
            self.rng.choice(living).kill()
            self.kills += 1
        self.start()

    def go_on(self) -> bool:
        """Whether a process is working. As long as the queue of scrapy-redis is not empty, one has to be."""
        if not self.here.living() and self.store.ask("ZCARD", "tree:requests"):
            self.start()
        return bool(self.here.living())

    def table(self) -> dict[str, str]:
        with sqlite3.connect(f"{self.here.folder / 'kept'}.db") as database:
            return dict(database.execute("SELECT key, title FROM items"))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Killed]]:
    """A crawl on Shoal and one on scrapy-redis, at the same time and under the same kills."""
    needs_scrapy_redis()
    folder = tmp_path_factory.mktemp("killed")
    pipelines = {
        "ITEM_PIPELINES": json.dumps(
            {f"tests.scrapy.pipelines.{name}": 300 for name in ("KeyedPipeline", "JsonLinesPipeline")}
        )
    }
    # Each process of scrapy-redis keeps the delay for itself: two of them send as many requests as the fleet on Shoal.
    theirs = {
        "SCHEDULER": "scrapy_redis.scheduler.Scheduler", "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
        "SCHEDULER_PERSIST": 1, "DOWNLOAD_DELAY": 0.16,
    }  # fmt: skip
    with contextlib.ExitStack() as stack:
        site = stack.enter_context(serving(folder / "site", hosts=4))
        sides = {}
        for name, settings in (("shoal", {**_SHORT, "DOWNLOAD_DELAY": 0.08}), ("scrapy-redis", theirs)):
            store = stack.enter_context(server(folder / f"store of {name}"))
            here = stack.enter_context(project(folder / name, REDIS_URL=store.url, **pipelines, **settings))
            sides[name] = Killed(site.plant(220, site.take(2)), here, store)
        for side in sides.values():
            for _ in range(2):
                side.start()
        for side in sides.values():
            side.here.wait_for_items(1)
        for _ in range(_KILLS):
            time.sleep(_EVERY_SECONDS)
            for side in sides.values():
                side.kill_one()
        deadline = time.monotonic() + 90
        while sum(side.go_on() for side in sides.values()):
            assert time.monotonic() < deadline, [side.here.processes[-1].output()[-2000:] for side in sides.values()]
            time.sleep(0.05)
        yield sides


def test_no_item_is_lost_when_a_process_is_killed_every_three_seconds(killed: dict[str, Killed]) -> None:
    ours = killed["shoal"]
    assert ours.kills == _KILLS
    assert ours.table() == {url: f"Page {url.rpartition('/')[2]}" for url in ours.tree.walk()}
    # Items of a page that was in hand at a kill may come again: the table has them once.
    assert sum(ours.here.keys().values()) < 1.5 * len(ours.tree.walk())


def test_scrapy_redis_loses_items_under_the_same_kills(killed: dict[str, Killed]) -> None:
    theirs = killed["scrapy-redis"]
    assert theirs.tree.walk() - theirs.table().keys(), "this test finds no loss where something is lost for certain"


@pytest.mark.smoke
def test_leases_of_a_killed_process_are_reaped_at_once_on_the_same_machine(site: Site, tmp_path: Path) -> None:
    """Its leases would last for ten minutes."""
    host = site.take(1)[0]
    url = site.at(host, "/", page("/slow"))
    site.at(host, "/slow", Response(fault="silent"), page(title="At last"))
    with project(tmp_path / "project", SHOAL_FRONTIER_LEASE_SECONDS=600) as here:
        first = here.start("tree", start=url)
        wait_until(lambda: any(request.path == "/slow" for request in site.requests(host)), "it requests the page")
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
    settings: dict[str, Any] = {
        "REDIS_URL": store.url,
        "REDIS_START_URLS_AS_SET": int(kind == "set"),
        "CONCURRENT_REQUESTS": 4,
        **_SHORT,
    }
    with project(tmp_path / "project", MAX_IDLE_TIME_BEFORE_CLOSE=1, **settings) as here:
        started = [here.start("feeding")]
        wait_until(lambda: "Reading start URLs" in started[0].output(), "it reads")
        store.ask(push, "feeding:start_urls", *urls)
        for _ in range(2):
            # In the middle of taking them, wherever that is.
            left = store.ask(length, "feeding:start_urls")
            wait_until(lambda: not left or store.ask(length, "feeding:start_urls") < left, "it takes")  # noqa: B023
            started[-1].kill()
            started.append(here.start("feeding"))
        started[-1].end()
        assert set(here.keys()) == set(urls)
        assert store.ask(length, "feeding:start_urls") == 0
