"""The form of a new crawl: every option, checked while the user types, with the estimate of `shoal plan`."""

from __future__ import annotations

import pytest

from shoal.api.dashboard.pages.new_crawl import request_of
from shoal.errors import InvalidInput
from shoal.model.crawl_request import REQUEST_FIELDS
from shoal.operations.plan import PAGE_BYTES, plan
from tests.dashboard.browser import Browser
from tests.dashboard.fleet import Fleet

pytestmark = pytest.mark.full


def test_every_option_of_a_request_has_a_field(browser: Browser, running: Fleet) -> None:
    with browser.page(running.api) as opened:
        opened.page.goto("/new")
        names = set(opened.page.evaluate("[...document.forms].flatMap(f => [...f.elements].map(e => e.name))"))
        assert set(REQUEST_FIELDS) - {"joins"} <= names
        # Each has a label and an explanation.
        assert opened.page.locator(".fields label").count() == len(REQUEST_FIELDS) - 1


def test_an_untouched_form_sends_what_the_user_wrote_and_nothing_else(browser: Browser, running: Fleet) -> None:
    with browser.page(running.api) as opened:
        opened.page.goto("/new")
        opened.page.fill("#field-seeds", "https://example.org/")
        fields = opened.page.evaluate("Object.fromEntries(new FormData(document.querySelector('form[data-check]')))")
    assert request_of(fields) == {"seeds": ["https://example.org/"]}


@pytest.mark.smoke
def test_fields_become_the_request() -> None:
    fields = {
        "seeds": "https://a.example/\n https://b.example/ \n", "name": "x", "max_pages": "10", "delay_seconds": "0.5",
        "deny": "/a,b\n/c", "headers": "X-A: 1\nX-B: a: b", "attributes": "order=17", "has-follow": "1",
        "has-sitemaps": "1", "sitemaps": "on", "file_types": "image/, text/",
    }  # fmt: skip
    assert request_of(fields) == {
        "seeds": ["https://a.example/", "https://b.example/"], "name": "x", "max_pages": 10, "delay_seconds": 0.5,
        "deny": ["/a,b", "/c"], "headers": {"X-A": "1", "X-B": "a: b"}, "attributes": {"order": "17"},
        "follow": False, "sitemaps": True, "file_types": ["image/", "text/"],
    }  # fmt: skip
    for wrong in ({"max_pages": "many"}, {"headers": "no colon"}):
        with pytest.raises(InvalidInput):
            request_of({"seeds": "https://a.example/", **wrong})


def test_the_request_is_checked_and_estimated_while_the_user_types(browser: Browser, running: Fleet) -> None:
    with browser.page(running.api) as opened:
        opened.page.goto("/new")
        opened.wait_text("#check", "Enter a start URL")
        opened.page.fill("#field-seeds", "https://example.org/")
        opened.wait_text("#check", "valid")
        opened.page.fill("#field-max_pages", "5000")
        made = plan(pages=5000, hosts=1, delay=1.0, response=0.2, page_bytes=PAGE_BYTES)
        opened.wait_text("#check", "5,000 on 1 host")
        assert f"{made.pages_per_second:.1f} pages/s" in opened.text("#check")
        assert made.limit in opened.text("#check")
        opened.page.click("summary:text-is('Scope')")
        opened.page.fill("#field-allow", "(")
        opened.page.wait_for_selector("#check .note.bad")
        opened.page.fill("#field-allow", "")
        opened.wait_text("#check", "valid")
        opened.page.fill("#field-outputs", "nowhere")
        opened.wait_text("#check", "valid")
    assert not [crawl for crawl in running.api.client.crawls() if "example" in crawl["id"]]


def test_a_crawl_is_started_from_the_form_and_runs(browser: Browser, running: Fleet) -> None:
    url = running.site(4)
    with browser.page(running.api) as opened:
        opened.page.goto("/new")
        opened.page.fill("#field-seeds", url)
        opened.page.fill("#field-name", "formed")
        opened.page.fill("#field-delay_seconds", "0")
        opened.page.press("#field-name", "Enter")
        opened.page.wait_for_url("**/crawls/formed?done=started")
        opened.wait_text("#part-state .state", "finished")
    assert running.api.client.crawl("formed")["counts"]["stored"] == 4


def test_a_refused_request_shows_the_reason(browser: Browser, running: Fleet) -> None:
    with browser.page(running.api) as opened:
        opened.page.goto("/new")
        opened.page.fill("#field-seeds", "http://[")
        opened.page.click("button:has-text('Start the crawl')")
        opened.wait_text("h1", "Invalid request")
