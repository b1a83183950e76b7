"""One crawl in a real browser: everything about it on one page, and every change that the page offers."""

from __future__ import annotations

import msgspec
import pytest

from shoal.model import Limits, Visit
from shoal.model.crawl_spec import CrawlSpec
from tests.dashboard.browser import Browser, Opened
from tests.dashboard.fleet import Fleet
from tests.site.responses import Response, page

pytestmark = pytest.mark.full


def wait_state(opened: Opened, state: str) -> None:
    opened.wait_text("#part-state .state", state)


@pytest.mark.smoke
def test_a_crawl_is_paused_resumed_stopped_and_deleted(browser: Browser, running: Fleet) -> None:
    client = running.api.client
    client.submit(seeds=[running.site(30)], name="steered", delay_seconds=1)
    with browser.page(running.api) as opened:
        page_ = opened.page
        page_.goto("/crawls/steered")
        page_.click("button:text-is('Pause')")
        opened.wait_text(".note.good", "paused")
        assert client.crawl("steered")["state"] == "paused"
        wait_state(opened, "paused")
        page_.click("button:text-is('Resume')")
        opened.wait_text(".note.good", "is resumed")
        assert client.crawl("steered")["state"] == "running"
        # Stopping needs one confirmation, which states the consequence.
        page_.click("summary:has-text('Stop')")
        assert "permanently" in opened.text("details.confirm[open]")
        assert client.crawl("steered")["state"] == "running"
        page_.click("button:text-is('Stop crawl steered')")
        opened.wait_text(".note.good", "stopped")
        assert client.crawl("steered")["state"] == "stopped"
        page_.click("summary:has-text('Delete')")
        page_.click("button:text-is('Delete crawl steered')")
        opened.wait_text(".note.good", "deleted")
        assert "steered" not in [crawl["id"] for crawl in client.crawls()]
        assert page_.goto("/crawls/steered").status == 404
        assert "There is no crawl 'steered'" in opened.text("[role=alert] >> visible=true")


def test_the_latest_pages_of_a_running_crawl_are_shown(browser: Browser, running: Fleet) -> None:
    client = running.api.client
    client.submit(seeds=[running.site(300)], name="latest", delay_seconds=0.2)
    with browser.page(running.api) as opened:
        opened.page.goto("/crawls/latest")
        # As of the last heartbeats, which come every ten seconds.
        opened.page.wait_for_selector("#part-latest table", timeout=60_000)
        url = opened.text("#part-latest tbody tr:first-child a")
        assert url in [page["url"] for worker in client.workers() for page in worker["latest"]]
        opened.page.click("#part-latest tbody tr:first-child a")
        opened.wait_text("h1", "Records")
        assert url in opened.text("table")
    client.stop("latest")


def test_a_state_that_changes_elsewhere_is_seen_without_a_reload(browser: Browser, running: Fleet) -> None:
    client = running.api.client
    client.submit(seeds=[running.site(30)], name="watched", delay_seconds=1)
    with browser.page(running.api) as opened:
        opened.page.goto("/crawls/watched")
        wait_state(opened, "running")
        client.pause("watched")
        wait_state(opened, "paused")
        opened.page.wait_for_selector("button:text-is('Resume')")
        client.stop("watched")
        wait_state(opened, "stopped")
        assert len([url for url in opened.requests if url == f"{running.api.url}/crawls/watched"]) == 1


def test_an_open_confirmation_stays_open_while_figures_change(browser: Browser, running: Fleet) -> None:
    running.api.client.submit(seeds=[running.site(300)], name="asked", delay_seconds=1)
    with browser.page(running.api) as opened:
        opened.page.goto("/crawls/asked")
        opened.page.click("summary:has-text('Stop')")
        before = opened.page.evaluate("Number(document.documentElement.dataset.updated || 0)")
        opened.wait_true(f"Number(document.documentElement.dataset.updated) > {before} + 1")
        assert opened.page.locator("details.confirm[open]").count() == 1
    running.api.client.stop("asked")


@pytest.mark.smoke
def test_figures_equal_those_of_the_api_and_the_output(browser: Browser, running: Fleet) -> None:
    client = running.api.client
    client.submit(seeds=[running.site(6, failing=3)], name="counted", delay_seconds=0, retries=0)
    client.wait("counted", timeout_seconds=60)
    crawl = client.crawl("counted")
    records = list(client.records("counted"))
    with browser.page(running.api) as opened:
        opened.page.goto("/crawls/counted")
        shown = dict(
            zip(
                opened.page.locator(".figures dt").all_inner_texts(),
                opened.page.locator(".figures dd").all_inner_texts(),
                strict=True,
            )
        )
        counts = crawl["counts"]
        assert int(shown["Pages stored"]) == counts["stored"] == 6
        assert int(shown["Failed"]) == counts["failed"] == 3
        assert int(shown["Excluded"]) == counts["excluded"]
        assert counts["stored"] + counts["failed"] == len(records)
        assert "status 404\t3" in opened.text("#part-failures")
        opened.page.click("#part-failures >> text=status 404")
        opened.page.wait_for_url("**/failed?reason=**")
        assert opened.page.locator("tbody tr").count() == 3
        opened.page.goto("/crawls/counted/failed?reason=other")
        assert "No URL has failed" in opened.text(".empty")


def test_failed_urls_are_listed_and_retried(browser: Browser, running: Fleet) -> None:
    (host,) = running.crawls.site.take()
    names = ("/later", "/one", "/two", "/three")
    running.crawls.site.at(host, "/", page(*names))
    for name in names:
        running.crawls.site.at(host, name, Response(status=404), page(title="Here now"))
    client = running.api.client
    client.submit(seeds=[f"http://{host}/"], name="retried", delay_seconds=0)
    client.wait("retried", timeout_seconds=60)
    with browser.page(running.api) as opened:
        opened.page.goto("/crawls/retried/failed")
        assert f"http://{host}/later" in opened.text("table")
        assert "status 404" in opened.text("table")
        # Nothing is chosen, so nothing is retried.
        opened.page.click("button:has-text('Retry the selected URLs')")
        opened.wait_text("[role=alert] >> visible=true", "No URL is selected")
        opened.page.goto("/crawls/retried/failed")
        # A row's own button retries that row, whatever is ticked.
        opened.page.check("tr:has-text('/two') input")
        opened.page.click("tr:has-text('/one') button")
        opened.wait_text(".note.good", "1 failed URL will be tried again")
        assert opened.page.locator("tbody tr").count() == 3
        opened.page.check("tr:has-text('/two') input")
        opened.page.check("tr:has-text('/three') input")
        opened.page.click("button:has-text('Retry the selected URLs')")
        opened.wait_text(".note.good", "2 failed URLs will be tried again")
        assert f"http://{host}/later" in opened.text("table")
        opened.page.goto("/crawls/retried/failed?reason=status%20404")
        opened.page.click("button:has-text('Retry all that failed with')")
        opened.wait_text(".note.good", "1 failed URL will be tried again")
        assert "No URL has failed" in opened.text(".empty")
        opened.page.goto("/crawls/retried")
        opened.wait_text("#part-figures div:has(dt:text-is('Pages stored')) dd", "5")
    assert client.wait("retried", timeout_seconds=60)["counts"]["failed"] == 0


def test_seeds_are_added(browser: Browser, running: Fleet) -> None:
    client = running.api.client
    client.submit(seeds=[running.site(30)], name="seeded", delay_seconds=1)
    more = running.site(1)
    with browser.page(running.api) as opened:
        opened.page.goto("/crawls/seeded")
        opened.page.click("summary:has-text('Add seeds')")
        opened.page.fill("#seeds", f"{more}\n{more}")
        opened.page.click("button:text-is('Add')")
        opened.wait_text(".note.good", "Added 1 new URL")
        opened.page.click("summary:has-text('Add seeds')")
        opened.page.fill("#seeds", "http://[")
        opened.page.click("button:text-is('Add')")
        opened.wait_text("h1", "Invalid request")
    client.stop("seeded")


def test_an_unavailable_output_is_shown_at_the_top_of_the_page(browser: Browser, running: Fleet) -> None:
    client = running.api.client
    # Nothing listens there, so the workers pause the crawl.
    url, frontier = running.site(2), running.crawls.frontier
    spec = CrawlSpec(seeds=(url,), outputs=("postgresql://x:y@127.0.0.1:1/pages",)).stored()
    running.crawls.do(frontier.crawls.create("no-output", Limits(delay_seconds=0), spec))
    running.crawls.do(frontier.add("no-output", [Visit(url=url, found="seed")]))
    with browser.page(running.api) as opened:
        opened.page.goto("/")
        opened.wait_text(".attention", "Crawl no-output is paused: output unavailable")
        opened.page.click(".attention >> text=no-output")
        wait_state(opened, "paused")
        assert "x:y@" not in opened.page.content()
    client.stop("no-output")


def test_a_crawl_is_cloned_and_changed_before_it_starts(browser: Browser, running: Fleet) -> None:
    client = running.api.client
    url = running.site(3)
    client.submit(seeds=[url], name="original", delay_seconds=0.5, max_depth=2, cookie="secret=1", deny=["/private"])
    with browser.page(running.api) as opened:
        opened.page.goto("/crawls/original")
        opened.page.click("text=Clone as new")
        opened.page.wait_for_url("**/new?like=original")
        assert opened.page.input_value("#field-seeds").strip() == url
        assert opened.page.input_value("#field-delay_seconds") == "0.5"
        assert opened.page.input_value("#field-max_depth") == "2"
        assert opened.page.input_value("#field-deny") == "/private"
        assert "secret=1" not in opened.page.content()
        opened.page.fill("#field-name", "copy")
        opened.page.fill("#field-max_pages", "1")
        opened.page.fill("#field-outputs", "default")
        opened.page.click("button:has-text('Start the crawl')")
        opened.page.wait_for_url("**/crawls/copy?done=started")
    crawl = client.wait("copy", timeout_seconds=60)
    limits = client.crawl("copy")["limits"]
    assert (limits["max_pages"], limits["max_depth"], limits["delay_seconds"]) == (1, 2, 0.5)
    assert crawl["counts"]["stored"] == 1


def test_limits_and_delay_are_changed_while_it_runs(browser: Browser, running: Fleet) -> None:
    client = running.api.client
    client.submit(seeds=[running.site(30)], name="tuned", delay_seconds=1, max_pages=900)
    with browser.page(running.api) as opened:
        opened.page.goto("/crawls/tuned")
        opened.page.click("summary:has-text('Change settings')")
        assert opened.page.input_value("#field-max_pages") == "900"
        opened.page.fill("#field-delay_seconds", "0.25")
        opened.page.fill("#field-priority", "3")
        opened.page.click("button:text-is('Change')")
        opened.wait_text(".note.good", "settings of the crawl were changed")
    limits = client.crawl("tuned")["limits"]
    assert (limits["delay_seconds"], limits["priority"], limits["max_pages"]) == (0.25, 3, 900)
    assert running.api.ask("GET", "/v1/audit").json["entries"][0]["event"] == "crawl.changed"
    client.stop("tuned")


def test_its_hosts_are_sorted_by_queue_and_by_response_time(browser: Browser, running: Fleet) -> None:
    client, site = running.api.client, running.crawls.site
    long, slow = site.take(2)
    site.at(long, "/", page(*(f"/{number}" for number in range(40))))
    site.at(slow, "/", msgspec.structs.replace(page(*(f"/{number}" for number in range(5))), after=0.6))
    client.submit(seeds=[f"http://{long}/", f"http://{slow}/"], name="sorted", delay_seconds=2)
    # Both first pages, and most of what they link to still waits.
    running.crawls.until(lambda: running.crawls.counts("sorted").admitted == 47, "both first pages are stored")
    client.pause("sorted")
    with browser.page(running.api) as opened:
        opened.page.goto("/crawls/sorted")
        opened.page.click("a:text-is('slowest first')")
        opened.wait_text("nav a[aria-current]", "slowest first")
        assert opened.page.locator("tbody td:first-child").all_inner_texts() == [slow, long]
        opened.page.click("a:text-is('longest queue first')")
        opened.page.wait_for_url("**/crawls/sorted/hosts")
        assert opened.page.locator("tbody td:first-child").all_inner_texts() == [long, slow]
    client.stop("sorted")
