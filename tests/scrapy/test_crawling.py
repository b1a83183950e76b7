"""Crawls by real Scrapy processes: the same items as Scrapy alone, each once, and all processes end by themselves."""

from __future__ import annotations

import itertools
import os
import re
import signal
from pathlib import Path

import pytest

from tests.scrapy.processes import Project, project
from tests.servers import server, wait_until
from tests.site.responses import Response, page
from tests.site.site import Site

pytestmark = pytest.mark.full


@pytest.mark.smoke
def test_three_processes_give_the_items_of_scrapy_and_request_the_start_page_once(
    scrapy: str, site: Site, here: Project, tmp_path: Path
) -> None:
    here.scrapy = scrapy
    first, second = (site.plant(60, site.take(3)) for _ in range(2))
    with project(tmp_path / "alone", scrapy=scrapy, SCHEDULER="scrapy.core.scheduler.Scheduler") as alone:
        reference = alone.start("tree", start=first.url(0))
        fleet = here.crawl("tree", count=3, start=second.url(0))
        reference.end()
        pages = alone.keys()
    expected = {second.url(page): pages[first.url(page)] for page in range(60)}
    # Scrapy makes the start page twice when something links to it: it does not filter what start() yields.
    assert here.keys() == expected
    assert expected[second.url(0)] == 2
    assert len(site.requests(*second.hosts)) == 61
    assert sum(process.stat("scheduler/dequeued/redis") for process in fleet) == 61
    assert sum(process.stat("scheduler/enqueued/redis") for process in fleet) == 61


def test_a_stopped_process_resumes_its_crawl(site: Site, here: Project) -> None:
    tree = site.plant(40, site.take(1))
    first = here.start("tree", settings={"DOWNLOAD_DELAY": 0.05}, start=tree.url(0))
    here.wait_for_items(5)
    first.popen.send_signal(signal.SIGTERM)
    assert "Closing spider (shutdown)" in first.end()
    (second,) = here.crawl("tree", start=tree.url(0))
    assert "Resuming crawl (" in second.output()
    assert re.search(r"Crawl tree\.start-\w+@1 in .+: 0 other processes, [1-9]\d* requests waiting", second.output())
    assert set(here.keys()) == tree.walk()
    assert sum(here.keys().values()) == 41, "what was acknowledged is not made again"


def test_a_finished_crawl_starts_from_scratch_unless_it_is_persisted(site: Site, here: Project) -> None:
    tree = site.plant(5, site.take(1))
    with project(here.folder / "kept-for-later", SCHEDULER_PERSIST=1) as later:
        for _ in range(2):
            both = [folder.start("tree", start=tree.url(0)) for folder in (here, later)]
            for process in both:
                process.end()
        assert set(here.keys().values()) == {2, 4}
        assert set(later.keys().values()) == {1, 2}
        later.crawl("tree", settings={"SCHEDULER_FLUSH_ON_START": 1}, start=tree.url(0))
        assert set(later.keys().values()) == {2, 4}


def test_flushing_at_the_start_does_not_affect_a_running_process(site: Site, here: Project) -> None:
    tree = site.plant(60, site.take(1))
    settings = {"SCHEDULER_FLUSH_ON_START": 1, "DOWNLOAD_DELAY": 0.02}
    first = here.start("tree", settings=settings, start=tree.url(0))
    here.wait_for_items(3)
    second = here.start("tree", settings=settings, start=tree.url(0))
    first.end()
    second.end()
    assert set(here.keys()) == tree.walk()
    assert sum(here.keys().values()) == 61


def test_closing_a_process_does_not_affect_the_others(site: Site, here: Project) -> None:
    """scrapy-redis clears queue and filter when one of its processes ends."""
    tree = site.plant(150, site.take(4))
    first, second = (here.start("tree", settings={"DOWNLOAD_DELAY": 0.3}, start=tree.url(0)) for _ in range(2))
    for process in (first, second):
        wait_until(lambda: "Crawled (200)" in process.output(), "both are at work")  # noqa: B023
    first.popen.send_signal(signal.SIGTERM)
    assert "Closing spider (shutdown)" in first.end()
    assert len(here.keys()) < 150, "there is something left that it could take away"
    assert "Closing spider (finished)" in second.end()
    assert set(here.keys()) == tree.walk()
    assert sum(here.keys().values()) == 151


def test_a_page_with_items_in_a_pipeline_is_not_acknowledged_and_does_not_block_its_host(
    site: Site, here: Project
) -> None:
    tree = site.plant(12, site.take(1), alike=0)
    started = here.start("tree", settings={"PIPELINE_SECONDS": 3, "SHOAL_FRONTIER_LEASE_SECONDS": 2}, start=tree.url(0))
    wait_until(lambda: len(site.requests(*tree.hosts)) == 12, "all pages are requested while items wait")
    assert len(here.items()) < 12
    started.kill()
    here.crawl("tree", start=tree.url(0))
    assert set(here.keys()) == tree.walk()


def test_work_is_picked_up_from_a_server_by_processes_that_wait(site: Site, tmp_path: Path) -> None:
    """One process finds what another one makes; Scrapy's own heartbeat comes every five seconds."""
    tree = site.plant(30, site.take(6), fan=1, alike=0)
    with server(tmp_path / "store") as store, project(tmp_path / "project", REDIS_URL=store.url) as here:
        here.crawl("tree", count=2, start=tree.url(0))
        assert here.keys() == dict.fromkeys(tree.walk(), 1)
        # A chain of 30 pages over six hosts: the process that gets the next page has to be awake for it.
        requests = site.requests(*tree.hosts)
        gaps = sorted(later.began - sooner.ended for sooner, later in itertools.pairwise(requests))
        assert gaps[len(gaps) // 2] < 1.0, gaps


def test_a_callback_that_blocks_for_longer_than_a_lease_does_not_lose_it(site: Site, here: Project) -> None:
    """Two processes: what the first holds while it blocks, the second must not be given."""
    tree = site.plant(8, site.take(2), alike=0)
    settings = {"SHOAL_FRONTIER_LEASE_SECONDS": 1, "CONCURRENT_REQUESTS_PER_DOMAIN": 1}
    here.crawl("blocking", count=2, settings=settings, start=tree.url(0))
    assert here.keys() == dict.fromkeys(tree.walk(), 1)
    assert not site.judge(*tree.hosts).repeated()


def test_requests_without_a_host_stay_in_the_process_that_yields_them(site: Site, here: Project) -> None:
    file = here.folder / "page.html"
    file.write_text("<title>A file</title>")
    (process,) = here.crawl("tree", start=file.as_uri())
    assert here.keys() == {file.as_uri(): 1}
    assert "Closing spider (finished)" in process.output()


def test_an_unreachable_store_is_reported_in_one_sentence(here: Project) -> None:
    process = here.start(
        "tree",
        settings={"REDIS_URL": "redis://user:s3cret@127.0.0.1:1", "SHOAL_STORE_FOLDER": "x"},
        start="http://127.0.0.1/",
    )
    wait_until(lambda: "127.0.0.1:1" in process.output(), "it logs which store it waits for")
    assert "s3cret" not in process.output()


def test_a_store_that_does_not_answer_does_not_stop_the_reactor(site: Site, tmp_path: Path) -> None:
    tree = site.plant(200, site.take(1))
    ticks = tmp_path / "ticks"
    with server(tmp_path / "store") as store, project(tmp_path / "project", REDIS_URL=store.url) as here:
        here.start("ticking", settings={"TICKS": ticks, "DOWNLOAD_DELAY": 0.05}, start=tree.url(0))
        here.wait_for_items(3)
        os.kill(store.pid, signal.SIGSTOP)
        try:
            # It is in the middle of its calls to the store, and stays there.
            before = ticks.stat().st_size
            wait_until(lambda: ticks.stat().st_size >= before + 40, "the reactor keeps ticking")
        finally:
            os.kill(store.pid, signal.SIGCONT)
        kept = len(here.items())
        here.wait_for_items(kept + 20)


def test_a_request_is_aborted_when_its_lease_is_over(scrapy: str, site: Site, tmp_path: Path) -> None:
    """Renewals do not reach the store, so another process may get the host. The page is requested again, once."""
    (host,) = site.take(1)
    url = site.at(host, "/", page("/slow", "/other"))
    site.at(host, "/slow", Response(fault="silent"), page(title="At last"))
    site.at(host, "/other", page())
    settings = {"SHOAL_FRONTIER_LEASE_SECONDS": 2, "CONCURRENT_REQUESTS_PER_DOMAIN": 1}
    with server(tmp_path / "store") as store, project(tmp_path / "p", scrapy=scrapy, REDIS_URL=store.url) as here:
        process = here.start("tree", settings=settings, start=url)
        wait_until(lambda: any(request.path == "/slow" for request in site.requests(host)), "it requests the page")
        os.kill(store.pid, signal.SIGSTOP)
        try:
            # The site sees that the client has left.
            wait_until(
                lambda: all(request.how != "open" for request in site.requests(host)),
                f"it is broken off: {process.output()}",
                30,
            )
        finally:
            os.kill(store.pid, signal.SIGCONT)
        output = process.end()
    assert f"The lease of <GET {url}slow> has expired" in output
    assert here.keys() == {url: 1, f"{url}slow": 1, f"{url}other": 1}
    assert not site.judge(host).crowded()
    assert site.judge(host).times(f"{url}slow") == 2
    assert "Traceback" not in output


def test_settings_of_scrapy_that_have_no_effect_are_named(site: Site, here: Project) -> None:
    settings = {"CONCURRENT_REQUESTS_PER_IP": 2, "SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue"}
    (process,) = here.crawl("tree", settings=settings, start=site.plant(1, site.take(1)).url(0))
    named = [
        line.partition("INFO: ")[2].split()[0] for line in process.output().splitlines() if "has no effect here" in line
    ]
    assert sorted(named) == sorted(settings)


def test_the_end_of_a_crawl_is_detected_by_the_last_request_and_not_by_a_timer(site: Site, here: Project) -> None:
    """The timers of this process last for an hour."""
    tree = site.plant(8, site.take(2))
    (process,) = here.crawl("without_timers", start=tree.url(0))
    assert set(here.keys()) == tree.walk()
    assert "Closing spider (finished)" in process.output()


def test_a_request_that_is_added_during_the_check_for_the_end_is_made(site: Site, here: Project) -> None:
    tree = site.plant(8, site.take(2))
    here.crawl("late_start", start=tree.url(0))
    assert set(here.keys()) == tree.walk()


def test_with_one_request_at_a_time_a_callback_can_download_from_another_host(
    scrapy: str, site: Site, here: Project
) -> None:
    """The process holds further requests of the first host, which Scrapy does not take while the callback waits."""
    here.scrapy = scrapy
    first, second = site.take(2)
    start = site.at(first, "/", page(*(f"/{number}" for number in range(6))))
    site.at(first, "*", page())
    site.at(second, "*", page())
    here.crawl("fetching", start=start, elsewhere=f"http://{second}/of/")
    assert {item["key"]: item["other"] for item in here.items()} == {
        f"http://{first}/{name}": f"http://{second}/of/{name}" for name in ("", *map(str, range(6)))
    }


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"SCHEDULER_QUEUE_CLASS": "my.Queue"}, "Unsupported SCHEDULER_QUEUE_CLASS 'my.Queue': use one of"),
        ({"SHOAL_STORE_URL": "nonsense://x"}, "The store URL 'nonsense://x' has an unsupported scheme; use one of"),
        ({"SHOAL_FRONTIER_LEASE_SECONDS": "abc"}, "frontier.lease_seconds is 'abc' on the command line, but must be"),
        ({"SHOAL_MAX_REQUEST_BYTES": -1}, "SHOAL_MAX_REQUEST_BYTES is '-1': use a whole number"),
        ({"SHOAL_MAX_PAGES": "many"}, "SHOAL_MAX_PAGES is 'many': use a whole number, or 0 for no limit."),
        ({"SHOAL_STORE_URL": "redis://127.0.0.1:1"}, "The store at redis://127.0.0.1:1 did not respond for 1 s"),
    ],
)
def test_a_failed_start_is_reported_in_one_sentence(
    settings: dict[str, str], sentence: str, scrapy: str, here: Project
) -> None:
    here.scrapy = scrapy
    (here.folder / "shoal.toml").write_text("[store]\ntimeout_seconds = 1\n")
    process = here.start("tree", settings=settings, start="http://127.0.0.1/")
    output = process.end()
    # Scrapy 2.13 ends with 0 whenever it had a spider.
    assert process.popen.returncode == (0 if scrapy else 1)
    (line,) = [line for line in output.splitlines() if "] CRITICAL" in line or "] ERROR" in line]
    assert f"[shoal.scrapy] CRITICAL: {sentence}" in line
    assert "Traceback" not in output


def test_limits_of_pages_count_over_all_processes(site: Site, here: Project) -> None:
    tree = site.plant(40, site.take(2))
    settings = {"SHOAL_MAX_PAGES": 12, "DOWNLOAD_DELAY": 0.02}
    started = here.crawl("tree", count=3, settings=settings, start=tree.url(0))
    assert sum(here.keys().values()) == 12
    assert all("Closing spider (finished)" in process.output() for process in started)


def test_a_limit_of_time_ends_the_crawl_for_all_processes(site: Site, here: Project) -> None:
    first, second = site.take(2)
    start = site.at(first, "/", page(*(f"http://{host}/{number}" for number in range(200) for host in (first, second))))
    for host in (first, second):
        site.at(host, "*", page())
    settings = {"SHOAL_MAX_TIME": 3, "DOWNLOAD_DELAY": 0.2}
    started = here.crawl("tree", count=2, settings=settings, start=start)
    assert 1 < len(here.keys()) < 401
    assert all("Closing spider (finished)" in process.output() for process in started)
