"""The overview in a real browser: figures are the API's, and they change while one looks."""

from __future__ import annotations

import re

import pytest

from tests.dashboard.browser import Browser
from tests.dashboard.fleet import Fleet

pytestmark = pytest.mark.full


def test_an_empty_fleet_shows_what_to_do_next(browser: Browser, running: Fleet) -> None:
    with browser.page(running.api) as opened:
        opened.page.goto("/")
        assert "Start one" in opened.text("#part-crawls .empty")
        opened.wait_text(".figures div:has(dt:text-is('Workers alive')) dd", "1")
        assert opened.page.title() == "Overview · Shoal"


@pytest.mark.smoke
def test_a_crawl_appears_and_its_counts_grow_without_a_reload(browser: Browser, running: Fleet) -> None:
    with browser.page(running.api) as opened:
        opened.page.goto("/")
        opened.wait_true("document.documentElement.dataset.updated >= 1")
        url = running.site(5, failing=2)
        running.api.client.submit(seeds=[url], name="first", delay_seconds=0)
        opened.wait_text("#part-crawls", "first")
        opened.wait_text("#part-crawls tr:has-text('first')", "finished")
        row = opened.text("#part-crawls tr:has-text('first')").split("\t")
        counts = running.api.client.crawl("first")["counts"]
        assert (counts["stored"], counts["failed"]) == (5, 2)
        assert (row[3], row[5], row[6]) == ("5", "2", "0")
        opened.wait_true(
            "[...document.querySelectorAll('.figures div')].some(d => d.innerText.match(/Pages stored\\s+5$/))"
        )
        # The page was loaded once.
        assert sum(bool(re.search(r":\d+/$", request)) for request in opened.requests) == 1


def test_a_page_works_without_javascript(browser: Browser, running: Fleet) -> None:
    with browser.page(running.api, java_script_enabled=False) as opened:
        for path in ("/", "/crawls", "/workers"):
            assert opened.page.goto(path).status == 200
            assert opened.page.locator("h1").count() == 1


def test_times_are_in_the_zone_of_the_viewer_and_exact_on_hover(browser: Browser, running: Fleet) -> None:
    running.api.client.submit(seeds=[running.site(1)], name="timed")
    seen = set()
    for zone in ("Asia/Tokyo", "America/New_York"):
        with browser.page(running.api, timezone_id=zone, locale="en-US") as opened:
            opened.page.goto("/crawls")
            opened.page.wait_for_selector("time[title]")
            element = opened.page.locator("tr:has-text('timed') time").first
            seen.add(element.inner_text())
            assert "GMT+9" in element.get_attribute("title") or "E" in element.get_attribute("title")
    assert len(seen) == 2


def test_a_spider_that_no_worker_has_is_shown_as_a_problem(browser: Browser, running: Fleet) -> None:
    running.api.client.submit(seeds=[running.site(1)], name="lonely", spider="nobody")
    with browser.page(running.api) as opened:
        opened.page.goto("/")
        opened.wait_text(".attention", "No worker has spider nobody, which crawl lonely needs")
        opened.page.click(".attention >> text=nobody")
        opened.page.wait_for_url("**/crawls/lonely")
    running.api.client.stop("lonely")
