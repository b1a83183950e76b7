"""Hosts in a real browser: search, one host's page, and what an operator may set."""

from __future__ import annotations

import contextlib

import pytest

from shoal.errors import CrawlEnded
from tests.dashboard.browser import Browser
from tests.dashboard.fleet import Fleet
from tests.site.responses import page, robots

pytestmark = pytest.mark.full


def test_a_host_is_found_opened_and_changed(browser: Browser, running: Fleet) -> None:
    client = running.api.client
    (host,) = running.crawls.site.take()
    running.crawls.site.at(host, "/robots.txt", robots("User-agent: *\nDisallow: /private/\nCrawl-delay: 2\n"))
    running.crawls.site.at(host, "/", page(*[f"/{number}" for number in range(20)]))
    running.crawls.site.at(host, "*", page())
    client.submit(seeds=[f"http://{host}/"], name="slow", delay_seconds=1)
    running.crawls.until(lambda: client.host(host)["waiting"] > 0, "links wait")
    with browser.page(running.api) as opened:
        visible = opened.page
        visible.goto("/hosts")
        visible.fill("#field-name", host[:11])
        visible.click("button:text-is('Search')")
        visible.click(f"table >> text={host}")
        opened.wait_text("h1", host)
        facts = opened.text("#part-state")
        assert "Crawl-delay in robots.txt" in facts
        assert "2 s, from its robots.txt" in facts
        assert "slow" in opened.text("#part-queue")
        visible.fill("#field-delay_seconds", "7")
        visible.fill("#field-places", "2")
        visible.click("button:text-is('Set')")
        opened.wait_text(".note.good", "changed")
        assert (client.host(host)["delay_seconds"], client.host(host)["places"]) == (7, 2)
        assert "7 s, set by an operator" in opened.text("#part-state dt:text-is('Effective delay') + dd")
        visible.fill("#field-delay_seconds", "")
        visible.fill("#field-places", "")
        visible.click("button:text-is('Set')")
        opened.wait_text("#part-state dt:text-is('Delay set by crawls or operators') + dd", "set by each crawl")
        assert client.host(host)["delay_seconds"] is None
        # The rules of its robots.txt, for a URL that is typed.
        for path, verdict in (("/private/x", "disallowed"), ("/public", "allowed for shoal: no rule matches")):
            visible.fill("#field-url", path)
            visible.click("button:text-is('Check')")
            opened.wait_text(".note", f"{path} is {verdict}")
        visible.click("summary:text-is('1 rule')")
        assert "Disallow: /private/" in opened.text("dl details")
        # Blocking needs one confirmation.
        visible.click("summary:has-text('Block')")
        assert "waiting URLs fail" in opened.text("details.confirm[open]")
        visible.click(f"button:text-is('Block {host}')")
        opened.wait_text(".note.good", "blocked")
        assert client.host(host)["blocked"] == "blocked"
        visible.goto("/hosts?state=blocked")
        assert host in opened.text("table")
        visible.goto("/")
        opened.wait_text(".attention", "1 host blocked by an operator")
        visible.goto(f"/hosts/{host}")
        visible.click("button:text-is('Unblock')")
        opened.wait_text(".note.good", "may be requested again")
        assert client.host(host)["blocked"] == ""
        visible.goto("/hosts?state=blocked")
        assert "No host is blocked" in opened.text(".empty")
    # Its URLs failed with the block, so it may have ended.
    with contextlib.suppress(CrawlEnded):
        client.stop("slow")


def test_a_host_that_backs_off_is_shown_and_cleared(browser: Browser, running: Fleet) -> None:
    client = running.api.client
    url = running.site(2)
    host = url.split("/")[2]
    # A host that has never responded is given up after three faults, within seconds.
    client.submit(seeds=[url], name="up", delay_seconds=0)
    client.wait("up", timeout_seconds=60)
    running.crawls.site.shut(host)
    # Enough retries that the page does not fail before the back-off is cleared, however long the browser takes.
    client.submit(seeds=[url], name="down", delay_seconds=0, retries=20)
    running.crawls.until(lambda: client.host(host)["backoff_until"] > 0, "the host backs off")
    with browser.page(running.api) as opened:
        opened.page.goto("/hosts?state=backing-off")
        assert host in opened.text("table")
        opened.page.click(f"table >> text={host}")
        opened.wait_text("#part-state", "backs off")
        past = client.back_offs(host)
        assert past[-1]["failures"] == 1
        opened.page.locator("#part-back-offs tbody tr").nth(len(past) - 1).wait_for()
        assert past[-1]["reason"] in opened.text("#part-back-offs")
        running.crawls.site.open(host)
        opened.page.click("button:text-is('Clear back-off')")
        opened.wait_text(".note.good", "back-off are reset")
    client.wait("down", timeout_seconds=60)
    assert client.crawl("down")["counts"]["stored"] == 2


def test_any_host_is_opened_by_its_name_or_a_url(browser: Browser, running: Fleet) -> None:
    with browser.page(running.api) as opened:
        for text in ("Example.ORG", "https://user:pw@example.org/some/page?x"):
            opened.page.goto("/hosts")
            opened.page.fill("#field-open", text)
            opened.page.click("button:text-is('Open')")
            opened.page.wait_for_url("**/hosts/example.org")
        assert "The fleet has no copy" in opened.text("main")
        assert opened.page.goto("/hosts/a%20b").status == 422
