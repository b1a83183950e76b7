"""A coordinator before it starts, after it stops, and with crawls whose spiders no worker has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.errors import InvalidInput
from tests.servers import wait_until
from tests.site.responses import page
from tests.site.site import Site

LOCAL = {"fetch.allow_networks": "127.0.0.0/8"}
SPIDERS = """
import shoal

class One(shoal.Spider):
    def parse(self, page):
        yield {"title": page.title}

class Two(One):
    pass
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spiders.py").write_text(SPIDERS)
    return tmp_path


CALLS: dict[str, Callable[[shoal.Coordinator], Any]] = {
    "submit": lambda coordinator: coordinator.submit(["http://127.0.0.1:1/"], outputs=["pages.db"]),
    "counts": lambda coordinator: coordinator.counts("one"),
    "finished": lambda coordinator: coordinator.finished("one"),
    "pause": lambda coordinator: coordinator.pause("one"),
    "resume": lambda coordinator: coordinator.resume("one"),
    "cancel": lambda coordinator: coordinator.cancel("one"),
    "stats": lambda coordinator: coordinator.stats(),
}


def test_calls_before_the_start_of_a_coordinator_are_refused() -> None:
    coordinator = shoal.Coordinator(folder="kept", settings=LOCAL)
    for call in CALLS.values():
        with pytest.raises(InvalidInput, match="not started; call start first"):
            call(coordinator)
    assert coordinator.pids == []


def test_a_restarted_coordinator_resets_its_rates(site: Site) -> None:
    tree = site.plant(20, site.take())
    coordinator = shoal.Coordinator(folder="kept", settings=LOCAL)
    with coordinator:
        coordinator.submit([tree.url(0)], delay_seconds=0, outputs=["pages.db"], name="one")
        wait_until(lambda: coordinator.finished("one"), "the crawl is over")
        wait_until(lambda: coordinator.stats().pages_per_second > 0, "its workers have reported")
    assert coordinator.pids == []
    with coordinator:
        stats = coordinator.stats()
    assert (stats.pages_per_second, stats.requests_per_second) == (0, 0)


def test_a_spider_without_workers_is_reported_and_a_host_is_counted_once(site: Site) -> None:
    (host,) = site.take()
    site.at(host, "/", page())
    with shoal.Coordinator(folder="kept", spiders=["spiders.py:One"], settings=LOCAL) as coordinator:
        for spider in ("Nope", "Two", "One"):
            coordinator.submit([f"http://{host}/"], spider=spider, outputs=["pages.db"], name=spider)
        wait_until(lambda: coordinator.finished("One"), "the crawl with workers is finished")
        missing = {f"Crawl {spider} is waiting: no worker has spider {spider}." for spider in ("Nope", "Two")}
        stats = coordinator.stats()
        assert set(stats.waiting) == missing
        assert (stats.running, stats.pending, stats.hosts) == (2, 2, 1)
        wait_until(lambda: missing <= set(coordinator.events), "it is among the events")
        assert not coordinator.finished("Nope")
        coordinator.cancel("Nope")
        coordinator.cancel("Two")
        assert coordinator.stats().waiting == ()
        waiting = [event for event in coordinator.events if "waiting" in event]
        assert sorted(waiting) == sorted(missing)


def test_two_spiders_of_one_name_are_refused(folder: Path) -> None:
    (folder / "others.py").write_text(SPIDERS)
    with pytest.raises(InvalidInput, match=r"Two spiders are named One: spiders\.py:One and others\.py:One"):
        shoal.Coordinator(spiders=["spiders.py:One", "others.py:One"])
