"""Processes that wait for submitted crawls, and the fleet's tools on crawls of Scrapy."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.process import serve_api
from tests.scrapy.processes import QUIET, ROOT, SPIDERS, Process, Project, project
from tests.servers import Server, wait_until
from tests.site.responses import Response, page
from tests.site.site import Site

pytestmark = pytest.mark.full


@pytest.fixture
def here(store: Server, tmp_path: Path) -> Iterator[Project]:
    """A project with two spiders of the tests."""
    folder = tmp_path / "project"
    spiders = folder / "shop" / "spiders"
    spiders.mkdir(parents=True)
    for path in (folder / "shop" / "__init__.py", spiders / "__init__.py"):
        path.touch()
    for name in ("channel", "errbacks"):
        shutil.copy(SPIDERS / f"{name}.py", spiders)
    options = {
        **QUIET, "SCHEDULER": "shoal.scrapy.Scheduler", "REDIS_URL": store.url, "SPIDER_MODULES": ["shop.spiders"],
        "ITEMS_FILE": str(folder / "kept"), "DOWNLOAD_DELAY": 0.05, "RETRY_TIMES": 0,
    }  # fmt: skip
    (folder / "shop" / "settings.py").write_text("".join(f"{name} = {value!r}\n" for name, value in options.items()))
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n")
    with project(folder) as opened:
        yield opened


def _standby(here: Project) -> Process:
    return here.run([sys.executable, "-m", "shoal.scrapy"])


def _shoal(here: Project, store: Server, *words: str, code: int = 0) -> str:
    argv = [sys.executable, "-m", "shoal", *words, "--store", store.url]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run(
        argv, cwd=here.folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == code, run.stdout + run.stderr
    return run.stdout + run.stderr


def test_a_submitted_spider_runs_on_the_processes_that_wait(
    scrapy: str, site: Site, store: Server, here: Project
) -> None:
    here.scrapy = scrapy
    tree = site.plant(10, site.take(2))
    submitted = ["submit", "--spider", "channel", "-a", f"start={tree.url(0)}", "-a"]
    assert "No Scrapy process is waiting for crawls" in _shoal(here, store, *submitted, "channel_id=7")
    (name,) = re.findall(r"channel\S+@1", _shoal(here, store, "crawls"))
    assert tree.url(0) not in _shoal(here, store, "show", name, "--json"), "a value can be a password"
    waiting = [_standby(here) for _ in range(2)]
    wait_until(lambda: len(here.keys()) == 10, "the first crawl is made")
    output = _shoal(here, store, *submitted, "channel_id=8", "--wait")
    assert output.startswith("channel.channel_id.start-")
    assert set(here.keys()) == {f"{channel} {url}" for channel in ("7", "8") for url in tree.walk()}
    for process in waiting:
        process.popen.send_signal(signal.SIGTERM)
        process.end()
        assert process.popen.returncode == 0
        assert "Traceback" not in process.output()
    assert not site.judge().impolite(0.05)


def test_a_running_spider_closes_when_its_process_is_stopped_and_another_resumes_it(
    site: Site, store: Server, here: Project
) -> None:
    tree = site.plant(60, site.take(1))
    _shoal(here, store, "submit", "--spider", "channel", "-a", f"start={tree.url(0)}", "-a", "channel_id=1")
    first = _standby(here)
    here.wait_for_items(3)
    first.popen.send_signal(signal.SIGTERM)
    assert "Closing spider (shutdown)" in first.end()
    second = _standby(here)
    wait_until(lambda: len(here.keys()) == 60 or second.popen.poll() is not None, "the rest is made")
    assert here.keys().most_common(2)[1][1] == 1, "nothing but the start page, which other pages link to, comes twice"


def test_a_process_that_cannot_find_submitted_crawls_reports_why(here: Project, tmp_path: Path) -> None:
    settings = here.folder / "shop" / "settings.py"
    settings.write_text(settings.read_text() + "SCHEDULER_QUEUE_KEY = 'one'\n")
    output = _standby(here).end()
    assert output == "SCHEDULER_QUEUE_KEY is set: submitted crawls are named by their spider and its arguments.\n"
    outside = here.run([sys.executable, "-m", "shoal.scrapy"], tmp_path).end()
    assert outside.startswith("SCHEDULER is 'scrapy.core.scheduler.Scheduler': set it to")
    assert here.run([sys.executable, "-m", "shoal.scrapy", "x"]).end().startswith("Usage: python -m shoal.scrapy")


def test_every_tool_shows_a_crawl_of_scrapy_under_one_name(
    site: Site, store: Server, here: Project, tmp_path: Path
) -> None:
    good, bad = site.take(2)
    site.at(good, "*", page())
    site.at(bad, "*", Response(status=503))
    urls = ",".join([f"http://{good}/1", f"http://{bad}/1"])
    here.run([sys.executable, "-m", "scrapy", "crawl", "errbacks", "-a", f"urls={urls}"]).end()
    (name,) = re.findall(r"errbacks\.urls-\w+@1", _shoal(here, store, "crawls"))
    shown = _shoal(here, store, "show", name)
    assert name in shown
    assert f"http://{bad}/1" in _shoal(here, store, "failed", name)
    assert bad in _shoal(here, store, "hosts", bad)
    with serve_api(tmp_path / "api", "--store", store.url) as api:
        crawl = api.ask("GET", f"/v1/crawls/{name}").json
        assert crawl["id"] == name
        assert (crawl["counts"]["stored"], crawl["counts"]["failed"]) == (1, 1)
        assert [failure["url"] for failure in api.ask("GET", f"/v1/crawls/{name}/failed").json["failed"]] == [
            f"http://{bad}/1"
        ]
        metrics = api.ask("GET", "/metrics").raw.decode()
        assert "shoal_pages_total 1.0" in metrics
