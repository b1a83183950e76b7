"""The audit trail: who did what and when, whether through the API or the dashboard."""

from __future__ import annotations

import pytest

from tests.dashboard.browser import Browser
from tests.dashboard.fleet import Fleet

pytestmark = pytest.mark.full


def test_changes_through_the_dashboard_and_the_api_are_in_the_audit_trail(browser: Browser, running: Fleet) -> None:
    client = running.api.client
    client.submit(seeds=[running.site(20)], name="audited", delay_seconds=1)
    with browser.page(running.api) as opened:
        opened.page.goto("/crawls/audited")
        opened.page.click("button:text-is('Pause')")
        opened.wait_text(".note.good", "paused")
        opened.page.goto("/audit")
        rows = opened.page.locator("tbody tr").all_inner_texts()
        assert "crawl.paused" in rows[0]
        assert "crawl.submitted" in rows[1]
        assert all("local (no authentication)" in row for row in rows[:2])
        # Live, as the other pages are.
        client.stop("audited")
        opened.wait_text("#part-entries", "crawl.stopped")
    entries = running.api.ask("GET", "/v1/audit?limit=3").json["entries"]
    assert [entry["event"] for entry in entries] == ["crawl.stopped", "crawl.paused", "crawl.submitted"]
    assert entries[0]["at"] >= entries[1]["at"] > 1e9
