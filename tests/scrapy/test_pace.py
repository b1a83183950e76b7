"""The delay of a project: settings that changed, settings of one host, and those of the spider itself."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
from pathlib import Path

import pytest

from shoal.frontier import Frontier
from shoal.frontier.hosts import Host
from tests.scrapy.processes import Project, project
from tests.servers import server, wait_until
from tests.site.responses import Response, page
from tests.site.site import Site

pytestmark = pytest.mark.full


def test_a_resumed_crawl_uses_the_delay_of_the_process_that_resumes_it(site: Site, here: Project) -> None:
    tree = site.plant(16, site.take(1), alike=0)
    first = here.start("tree", settings={"DOWNLOAD_DELAY": 0.1}, start=tree.url(0))
    here.wait_for_items(3)
    first.popen.send_signal(signal.SIGTERM)
    first.end()
    before = len(site.requests(*tree.hosts))
    assert before < 12, "there is something left to resume"
    (second,) = here.crawl("tree", settings={"DOWNLOAD_DELAY": 0.4}, start=tree.url(0))
    assert set(here.keys()) == tree.walk()
    gaps = site.judge(*tree.hosts).gaps(tree.hosts[0])[before - 1 :]
    assert gaps
    assert min(gaps) >= 0.39, gaps
    assert "now has delay 0.4 s, concurrency 1, order fifo (before: 0.1 s, 1, fifo)." in second.output()


def test_a_process_that_joins_with_other_limits_is_warned_that_they_apply_to_all(site: Site, here: Project) -> None:
    tree = site.plant(30, site.take(1), alike=0)
    first = here.start("tree", settings={"DOWNLOAD_DELAY": 0.4}, start=tree.url(0))
    here.wait_for_items(2)
    second = here.start("tree", settings={"DOWNLOAD_DELAY": 0.0}, start=tree.url(0))
    for process in (first, second):
        process.end()
    assert set(here.keys()) == tree.walk()
    assert "WARNING: Crawl tree." in second.output()
    assert "the settings of the last process to join apply to all." in second.output()
    gaps = site.judge(*tree.hosts).gaps(tree.hosts[0])
    assert min(gaps[-5:]) < 0.3, gaps


async def _host(url: str, host: str) -> Host:
    async with await Frontier.open(url) as frontier:
        return await frontier.hosts.get(host)


def test_hosts_with_their_own_download_slot_have_their_own_delay_and_concurrency(
    scrapy: str, site: Site, tmp_path: Path
) -> None:
    slow, narrow, usual = site.take(3)
    for host in (slow, narrow, usual):
        site.at(host, "*", Response(body="<p>", after=0.1))
    url = site.at(usual, "/", page(*(f"http://{host}/{n}" for n in range(6) for host in (slow, narrow, usual))))
    names = {host: host.rpartition(":")[0] for host in (slow, narrow)}
    slots = {names[slow]: {"delay": 0.4}, names[narrow]: {"concurrency": 1}, "a slot": {"delay": 5}}
    with server(tmp_path / "store") as store, project(tmp_path / "one", scrapy=scrapy, REDIS_URL=store.url) as here:
        # Hosts that are known already have all their places from the beginning.
        here.crawl("tree", start=url)
        before = len(site.requests(slow))
        settings = {"DOWNLOAD_SLOTS": json.dumps(slots)}
        started = [here.start("tree", settings=settings, start=url) for _ in range(2)]
        wait_until(lambda: len(site.requests(slow)) > before + 2, "it is at work")
        assert asyncio.run(_host(store.url, slow)).delay_seconds == 0.4
        for process in started:
            process.end()
        assert set(here.keys().values()) == {2}
        judge = site.judge(slow, narrow, usual)
        assert min(judge.gaps(slow)[before:]) >= 0.39, judge.gaps(slow)
        later = site.requests(narrow)[6:]
        assert all(second.began >= first.ended for first, second in itertools.pairwise(later)), later
        # Nobody is at the crawl any more: hosts are as they were.
        for host in (slow, narrow):
            left = asyncio.run(_host(store.url, host))
            assert (left.delay_seconds, left.places) == (None, None)


def test_a_slot_removed_from_the_settings_is_forgotten_even_after_a_kill(site: Site, tmp_path: Path) -> None:
    host = site.take(1)[0]
    url = site.at(host, "/", page(*(f"/{n}" for n in range(8))))
    site.at(host, "*", page())
    slots = json.dumps({host.rpartition(":")[0]: {"delay": 20}})
    with server(tmp_path / "store") as store, project(tmp_path / "one", REDIS_URL=store.url) as here:
        first = here.start("tree", settings={"DOWNLOAD_SLOTS": slots}, start=url)
        here.wait_for_items(1)
        first.kill()
        assert asyncio.run(_host(store.url, host)).delay_seconds == 20
        second = here.start("tree", start=url)
        wait_until(lambda: asyncio.run(_host(store.url, host)).delay_seconds is None, "it is taken back")
        second.end()
        assert len(here.keys()) == 9


@pytest.mark.smoke
def test_an_invalid_slot_is_named(site: Site, here: Project) -> None:
    settings = {"DOWNLOAD_SLOTS": json.dumps({"books.example": {"delay": -1}})}
    process = here.start("tree", settings=settings, start=f"http://{site.take(1)[0]}/")
    assert "Invalid DOWNLOAD_SLOTS entry {'delay': -1} for books.example: it must be" in process.end()


def test_the_download_delay_of_a_spider_applies(scrapy: str, site: Site, here: Project) -> None:
    here.scrapy = scrapy
    tree = site.plant(6, site.take(1), alike=0)
    here.crawl("unhurried", count=2, start=tree.url(0))
    assert set(here.keys()) == tree.walk()
    assert not site.judge(*tree.hosts).impolite(0.3)
