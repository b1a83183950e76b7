"""A crawl of Scrapy seen from outside: by the API and commands, in its counts, and its reason to close."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path

import pytest

from shoal.errors import InvalidInput
from shoal.frontier import Frontier
from shoal.model.crawl_spec import CrawlSpec
from shoal.operations.describe import describe
from shoal.operations.start import begin
from tests.api.process import serve_api
from tests.scrapy.processes import Project, project
from tests.servers import wait_until
from tests.site.responses import Response, page, redirect
from tests.site.site import Site

pytestmark = pytest.mark.full


async def _frontier(here: Project) -> Frontier:
    return await Frontier.open(folder=str(here.folder / ".shoal"))


def test_the_api_shows_a_scrapy_process_and_a_stop_is_its_reason_to_close(
    scrapy: str, site: Site, tmp_path: Path
) -> None:
    tree = site.plant(400, site.take(1), alike=0)
    with project(tmp_path / "project", scrapy=scrapy) as here:
        process = here.start("tree", settings={"DOWNLOAD_DELAY": 0.2}, start=tree.url(0))
        here.wait_for_items(2)
        with serve_api(tmp_path / "api", "--folder", here.folder / ".shoal") as api:
            crawl = api.ask("GET", "/v1/crawls").json["crawls"][0]["id"]
            assert api.ask("GET", f"/v1/crawls/{crawl}").json["waiting"] == []
            refused = api.ask("POST", f"/v1/crawls/{crawl}/seeds", {"seeds": [tree.url(0)]})
            assert (refused.status, refused.json["detail"]) == (
                422,
                f"Crawl {crawl!r} is a Scrapy crawl, whose URLs come only from its spider; push them to the key "
                "that a RedisSpider reads, or start a crawl with another name.",
            )
            worker = wait_until(
                lambda: next((w for w in api.ask("GET", "/v1/workers").json["workers"] if w["pages"]), None),
                "the process reports how many pages it has", 30,
            )  # fmt: skip
            assert (worker["machine"], worker["version"]) == (platform.node(), version("shoal"))
            assert worker["pages_per_second"] > 0
            assert len(worker["spiders"]) == 2
            assert api.ask("POST", f"/v1/crawls/{crawl}/stop").status == 200
            output = process.end()
    assert "Spider closed (stopped)" in output
    assert "'finish_reason': 'stopped'" in output


async def test_a_stop_is_the_reason_to_close_of_a_process_that_did_not_know_of_it(site: Site, tmp_path: Path) -> None:
    (host,) = site.take(1)
    # The pages have no links: a process that adds a URL learns that the crawl has ended.
    paths = [f"/{number}" for number in range(100)]
    for path in paths:
        site.at(host, path, page())
    with project(tmp_path / "project") as here:
        start = site.at(host, "/", page(*paths))
        process = here.start("without_heartbeats", settings={"DOWNLOAD_DELAY": 0.2}, start=start)
        here.wait_for_items(2)
        async with await _frontier(here) as frontier:
            await frontier.crawls.stop((await anext(aiter(frontier.crawls.all()))).id)
        assert "Spider closed (stopped)" in process.end()


async def test_a_crawl_without_a_scrapy_process_is_reported(site: Site, tmp_path: Path) -> None:
    tree = site.plant(20, site.take(1), alike=0)
    with project(tmp_path / "project") as here:
        here.crawl("tree", settings={"CLOSESPIDER_ITEMCOUNT": 1, "DOWNLOAD_DELAY": 0.5}, start=tree.url(0))
        async with await _frontier(here) as frontier:
            crawl = await anext(aiter(frontier.crawls.all()))
            assert (await describe(frontier, crawl)).waiting == ("waiting: no Scrapy process works on it",)
            before = await frontier.crawls.count(crawl.id)
            with pytest.raises(InvalidInput, match="is a Scrapy crawl"):
                await begin(frontier, name=crawl.id, seeds=[tree.url(0)], spec=CrawlSpec())
            assert await frontier.crawls.count(crawl.id) == before


async def test_a_response_that_scrapy_gave_up_on_is_a_failure_with_its_reason(
    scrapy: str, site: Site, tmp_path: Path
) -> None:
    host = site.take(1)[0]
    for status in (500, 502, 503, 404):
        site.at(host, f"/{status}", Response(status=status, body="no"))
    site.at(host, "/200", page())
    with project(tmp_path / "project", scrapy=scrapy, SCHEDULER_PERSIST=1) as here:
        here.crawl("giving_up", settings={"RETRY_TIMES": 1}, start=f"http://{host}")
        async with await _frontier(here) as frontier:
            crawl = (await anext(aiter(frontier.crawls.all()))).id
            failed = {visit.url: reason for visit, reason in await frontier.crawls.failed(crawl)}
            counts = await frontier.crawls.count(crawl)
    assert set(here.keys()) == {"page 200", "page 502", "errback 500"}
    assert failed == {f"http://{host}/503": "status 503", f"http://{host}/500": "status 500"}
    # The 404 is a response, and each of the others was requested once more.
    assert (counts.open, counts.stored, counts.failed, counts.excluded) == (0, 3, 2, 3)


def test_a_slot_that_the_spider_chose_stays_on_retries_and_redirects(site: Site, tmp_path: Path) -> None:
    host = site.take(1)[0]
    site.at(host, "/flaky", Response(status=503, body="not yet"), page())
    site.at(host, "/moved", redirect("/there"))
    for path in ("/there", "/plain", "/next"):
        site.at(host, path, page())
    with project(tmp_path / "project") as here:
        here.crawl("slotted", start=f"http://{host}")
        slots = {item["key"]: item["slot"] for item in here.items()}
    assert slots == {"/flaky": "mine", "/there": "mine", "/plain": "shoal", "/next": "shoal"}


def test_our_duplicate_filter_works_with_scrapys_own_scheduler_too(site: Site, tmp_path: Path) -> None:
    tree = site.plant(6, [site.name()])
    settings = {"SCHEDULER": "scrapy.core.scheduler.Scheduler", "DUPEFILTER_CLASS": "shoal.scrapy.DupeFilter"}
    with project(tmp_path / "project") as here:
        process = here.crawl("tree", settings={**settings, "CLOSESPIDER_ITEMCOUNT": 60}, start=tree.url(0))[0]
        assert "Spider closed (finished)" in process.output()
        # Scrapy's start requests do not go through the filter.
        assert here.keys() == {**dict.fromkeys(tree.walk(), 1), tree.url(0): 2}
