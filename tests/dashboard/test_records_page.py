"""Records in a real browser: browsing, searching, and one record as a whole."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.dashboard.browser import Browser
from tests.dashboard.fleet import Fleet
from tests.site.responses import Response, page

pytestmark = pytest.mark.full

SCRIPT = "<script>document.title='owned'</script>"


def test_records_are_browsed_and_searched(browser: Browser, running: Fleet) -> None:
    (host,) = running.crawls.site.take()
    links = [f"/docs/{number}" for number in range(70)] + ["/moved", "/gone"]
    running.crawls.site.at(host, "/", page(*links, title="Start"))
    for number in range(70):
        running.crawls.site.at(host, f"/docs/{number}", page(title=f"Chapter {number}", body="<p>word " * number))
    running.crawls.site.at(host, "/moved", Response(status=301, headers=(("Location", "/docs/3"),)))
    client = running.api.client
    client.submit(seeds=[f"http://{host}/"], name="library", delay_seconds=0)
    client.wait("library", timeout_seconds=60)
    records = list(client.records("library"))
    with browser.page(running.api) as opened:
        visible = opened.page
        visible.goto("/crawls/library/records")
        urls = visible.locator("tbody tr td:first-child").all_inner_texts()
        assert len(urls) == 50
        visible.click("text=Next page")
        visible.wait_for_url("**cursor=**")
        urls += visible.locator("tbody tr td:first-child").all_inner_texts()
        assert sorted(urls) == sorted(record["url"] for record in records)
        visible.fill("#field-text", "chapter 42")
        visible.click("button:text-is('Search')")
        visible.wait_for_url("**text=**")
        assert visible.locator("tbody tr").count() == 1
        visible.click("tbody a")
        opened.wait_text("h1", "Record")
        assert "Chapter 42" in opened.text("main")
        assert '"url":' in opened.text("pre >> nth=-1")
        visible.goto(f"/crawls/library/records?prefix=http://{host}/docs/1")
        assert visible.locator("tbody tr").count() == 11
        visible.goto("/crawls/library/records?status=404")
        assert "/gone" in opened.text("tbody")
        visible.goto("/crawls/library/records?text=absent-word")
        assert "No record matches" in opened.text(".empty")


def test_hostile_pages_stay_text(browser: Browser, running: Fleet) -> None:
    (host,) = running.crawls.site.take()
    title = f"\u202egpj.exe {SCRIPT} {'x' * 10_000} &lt;b&gt;"
    path = "/a%22%3E%3Cscript%3E?q=%3Cimg%20src=x%20onerror=alert(1)%3E&r=" + "y" * 3000
    broken = "/broken%22%3E%3Cscript%3E?z=%3Cimg%20src=x%3E&r=" + "z" * 1500
    running.crawls.site.at(host, "/", page(path, broken, "/%E2%80%AEevil", title=title, body=f"<p>{SCRIPT} text"))
    running.crawls.site.at(host, broken, Response(status=404))
    running.crawls.site.at(host, "*", page(title="</title><svg onload=alert(1)>"))
    client = running.api.client
    client.submit(
        seeds=[f"http://{host}/"], name="hostile", delay_seconds=0, attributes={"</script>": "<script>1"},
        user_agent="Shoal/1 <script>alert(1)</script>", deny=["<img src=x onerror=alert(1)>"],
    )  # fmt: skip
    client.wait("hostile", timeout_seconds=60)
    with browser.page(running.api) as opened:
        visible = opened.page
        search = f"/find?url={quote(f'http://{host}{broken}', safe='')}"
        pages = (
            "/crawls/hostile",
            "/crawls/hostile/records",
            "/crawls/hostile/failed",
            search,
            "/",
            "/crawls",
            "/audit",
        )
        for where in pages:
            visible.goto(where)
            assert visible.title() != "owned"
            assert visible.locator("main script, main img, main svg[onload]").count() == 0
            assert "\u202e" not in visible.content()
            assert visible.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        visible.goto("/crawls/hostile/failed")
        assert visible.locator("tbody tr").count() == 1
        visible.goto(search)
        assert "failed" in opened.text("section:has-text('hostile')")
        visible.goto("/crawls/hostile/records")
        for number in range(visible.locator("tbody a").count()):
            visible.goto("/crawls/hostile/records")
            visible.locator("tbody a").nth(number).click()
            opened.wait_text("h1", "Record")
            assert visible.title() == "Record · Shoal"
            assert visible.locator("main script, main img, main svg").count() == 0
            assert visible.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
