"""Workers in a real browser: what each does, and one that was killed."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
from functools import partial
from pathlib import Path

import pytest

from shoal.api.dashboard.components import size
from tests.dashboard.browser import Browser, Opened
from tests.dashboard.fleet import Fleet, fleet

pytestmark = pytest.mark.full


def test_workers_and_their_figures_are_shown(browser: Browser, running) -> None:
    running.api.client.submit(seeds=[running.site(5)], name="work", delay_seconds=0)
    running.api.client.wait("work", timeout_seconds=60)
    (worker,) = running.api.client.workers()
    with browser.page(running.api) as opened:
        opened.page.goto("/workers")
        row = opened.page.locator("#part-workers tbody tr").inner_text().split("\t")
        assert row[:5] == [worker["name"], "alive", worker["machine"], str(worker["pid"]), worker["version"]]
        assert worker["memory_bytes"] > 10_000_000
        assert worker["cpu_seconds"] > 0
        assert opened.page.locator("#part-store tbody tr").count() == 1


def test_a_killed_worker_is_seen_within_thirty_seconds(browser: Browser, tmp_path: Path) -> None:
    with fleet(tmp_path, hosts=4, workers=2) as running, browser.page(running.api) as opened:
        opened.page.goto("/workers")
        opened.wait_text("#part-workers", "w2")
        victim = running.crawls.workers.pop("w2")
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        opened.wait_text("#part-workers tr:has-text('w2')", "silent for")
        opened.page.goto("/")
        opened.wait_text(".attention", "1 worker has stopped responding")


def figures_of(opened: Opened) -> dict[str, str]:
    names, values = (opened.page.locator(f".figures {tag}").all_inner_texts() for tag in ("dt", "dd"))
    return dict(zip(names, values, strict=True))


def _stored_more(running: Fleet, count: int) -> bool:
    return running.crawls.counts("killed").stored > count


def test_figures_equal_the_output_after_workers_were_killed(browser: Browser, tmp_path: Path) -> None:
    with fleet(tmp_path, hosts=8, workers=3, worker_settings={"frontier.lease_seconds": 5}) as running:
        client = running.api.client
        seeds = [running.site(25, failing=2) for _ in range(4)]
        client.submit(seeds=seeds, name="killed", delay_seconds=0.1, retries=0)
        for name, stored in (("w1", 10), ("w2", 40)):
            running.crawls.until(partial(_stored_more, running, stored), "pages are stored")
            victim = running.crawls.workers.pop(name)
            victim.kill()
            victim.wait()
        client.wait("killed", timeout_seconds=120)
        crawl = client.crawl("killed")
        counts = crawl["counts"]
        # The output itself, not as the API reads it.
        with contextlib.closing(sqlite3.connect(tmp_path / "default.db")) as output:
            rows = output.execute("select url, error from pages where crawl = 'killed'").fetchall()
        with browser.page(running.api) as opened:
            opened.page.goto("/crawls/killed")
            figures = figures_of(opened)
            failures = opened.text("#part-failures tbody").split("\t")
            opened.page.goto("/crawls/killed/failed")
            failed = opened.page.locator("tbody tr td:nth-child(2)").all_inner_texts()
            opened.page.goto("/")
            overview = figures_of(opened)
            row = opened.text("#part-crawls tr:has-text('killed')").split("\t")
            stats = client.stats()
        pages = [url for url, error in rows if not error]
        assert len(pages) == len(set(pages)) == 100
        assert figures["Pages stored"] == str(counts["stored"]) == row[3] == "100"
        assert overview["Pages stored"] == str(stats["counts"]["stored"]) == "100"
        assert figures["Failed"] == str(counts["failed"]) == row[5] == "8"
        assert overview["URLs failed"] == str(stats["counts"]["failed"]) == "8"
        assert sorted(failed) == sorted(url for url, error in rows if error)
        assert failures == ["status 404", "8"]
        assert crawl["failed"] == {"status 404": 8}
        for name in ("waiting", "leased", "later", "excluded", "admitted"):
            assert figures[name.capitalize()] == str(counts[name]), name
        assert counts["admitted"] == counts["stored"] + counts["failed"] + counts["excluded"]
        assert figures["Received"] == size(crawl["bytes"])
        assert overview["URLs waiting"] == row[6] == "0"
