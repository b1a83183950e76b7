"""A URL is found in every crawl, with the rule that decides about it."""

from __future__ import annotations

import pytest

from tests.dashboard.browser import Browser
from tests.dashboard.fleet import Fleet
from tests.servers import wait_until

pytestmark = pytest.mark.full


def test_a_url_is_found_in_the_crawls_that_know_it(browser: Browser, running: Fleet) -> None:
    client = running.api.client
    url = running.site(3, failing=1)
    client.submit(seeds=[url], name="knows", delay_seconds=0, retries=0)
    client.submit(seeds=[running.site(1)], name="knows-not", delay_seconds=0)
    for name in ("knows", "knows-not"):
        client.wait(name, timeout_seconds=60)
    with browser.page(running.api) as opened:
        visible = opened.page
        visible.goto("/")
        visible.keyboard.press("/")
        visible.keyboard.type(f"{url}1")
        visible.keyboard.press("Enter")
        opened.wait_text("h1", "Find a URL")
        assert "visited" in opened.text("section:has-text('knows')")
        assert "1 crawl that has not seen it" in opened.text("main")
        visible.goto(f"/find?url={url}gone/0")
        assert "failed" in opened.text("section:has-text('knows')")
        assert "status 404" in opened.text("section:has-text('knows')")
        # Visited again now, by the finished crawl, and forgotten.
        visible.goto(f"/find?url={url}1")
        visible.click("button:text-is('Visit again now')")
        opened.wait_text(".note.good", "visited as soon as its host allows it")
        wait_until(lambda: [request.url for request in running.crawls.site.requests()].count(f"{url}1") == 2, "visited")
        assert client.wait("knows", timeout_seconds=60)["counts"]["stored"] == 3
        # The page was rendered while the visit may still have been in progress.
        visible.goto(f"/find?url={url}1")
        visible.click("section:has-text('knows') summary:has-text('Forget')")
        assert "visits and counts it again" in opened.text("details.confirm[open]")
        visible.click("button:text-is('Forget this URL')")
        opened.wait_text(".note.good", "forgotten")
        assert "No crawl knows this URL" in opened.text("main")
        events = [entry["event"] for entry in running.api.ask("GET", "/v1/audit").json["entries"]]
        assert events[:2] == ["urls.forgotten", "urls.revisited"]
        visible.goto("/find?url=http://nobody.example/")
        assert "No crawl knows this URL" in opened.text("main")
        visible.goto("/find?url=%3Cscript%3E://")
        assert visible.locator(".note.bad").count() >= 1
        assert visible.goto("/find").status == 200
