"""Large fleets: thousands of crawls and tens of thousands of hosts keep every page small and the rest fast."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.frontier import Frontier
from shoal.model import Limits, Visit
from shoal.model.crawl_spec import CrawlSpec
from tests.api.process import ApiProcess, serve_api
from tests.dashboard.browser import Browser
from tests.system.crawls import complete

pytestmark = pytest.mark.full

CRAWLS, HOSTS = 2000, 50_000


async def populate(folder: Path) -> None:
    async with await Frontier.open(folder=str(folder)) as frontier:
        spec = CrawlSpec(outputs=("none.db",)).stored()
        for start in range(0, CRAWLS, 100):
            names = [f"crawl-{number:04}" for number in range(start, start + 100)]
            await asyncio.gather(*(frontier.crawls.create(name, Limits(), spec) for name in names))
        urls = [f"http://host-{number:05}.example/" for number in range(HOSTS)]
        for start in range(0, HOSTS, 5000):
            await frontier.add("crawl-0000", [Visit(url=url) for url in urls[start : start + 5000]])
        # None of them is to finish. Not all wait on one host: each crawl that waits there makes the next add slower.
        for start in range(1, CRAWLS, 100):
            numbers = range(start, min(CRAWLS, start + 100))
            urls_of = {number: urls[7 if number < 200 else number] for number in numbers}
            await asyncio.gather(
                *(frontier.add(f"crawl-{number:04}", [Visit(url=url)]) for number, url in urls_of.items())
            )


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    folder = tmp_path_factory.mktemp("many")
    loop = asyncio.new_event_loop()
    complete(loop, populate(folder / "store"))
    loop.close()
    with serve_api(folder / "served", "--folder", folder / "store", settings="[api]\nrate = 100000\n") as api:
        yield api


def test_the_overview_stays_small_and_counts_everything(browser: Browser, api: ApiProcess) -> None:
    response = api.ask("GET", "/", Accept="text/html")
    assert response.status == 200
    assert len(response.raw) < 100_000
    with browser.page(api) as opened:
        opened.page.goto("/")
        assert "2,000" in opened.text(".figures div:has(dt:text-is('Crawls running'))")
        assert opened.page.locator("#part-crawls tbody tr").count() == 50


def test_all_crawls_are_reached_page_by_page(browser: Browser, api: ApiProcess) -> None:
    with browser.page(api) as opened:
        opened.page.goto("/crawls?state=running")
        seen: set[str] = set()
        for _ in range(5):
            seen |= set(opened.page.locator("#part-crawls tbody td:first-child").all_inner_texts())
            opened.page.click("a[rel=next]")
            opened.page.wait_for_load_state()
        assert len(seen) == 250
        opened.page.goto("/crawls/crawl-0000")
        assert "50,000" in opened.text("#part-figures")


def test_a_host_is_found_among_fifty_thousand(browser: Browser, api: ApiProcess) -> None:
    with browser.page(api) as opened:
        opened.page.goto("/hosts")
        assert opened.page.locator("tbody tr").count() == 50
        opened.page.fill("#field-name", "host-31337")
        opened.page.click("button:text-is('Search')")
        opened.page.wait_for_url("**name=host-31337**")
        assert opened.page.locator("tbody tr").count() == 1
        opened.page.goto("/crawls/crawl-0000/hosts")
        assert opened.page.locator("tbody tr").count() == 200
        opened.page.goto("/hosts/host-00007.example")
        assert "crawl-0001" in opened.text("#part-queue")
