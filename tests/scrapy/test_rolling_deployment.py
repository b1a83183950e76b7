"""Two versions of a spider on one crawl: requests wait for the version that has their callback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scrapy.processes import ROOT, Process, Project, project
from tests.servers import wait_until
from tests.site.responses import page
from tests.site.site import Site, serving

pytestmark = pytest.mark.full

_SPIDER = """
import scrapy
from tests.scrapy.pipelines import ITEM_PIPELINE

class Books(scrapy.Spider):
    name = "books"
    custom_settings = ITEM_PIPELINE

    def __init__(self, start, **arguments):
        super().__init__(**arguments)
        self.start_urls = [start]

    def parse(self, response):
        yield {{"key": response.url}}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link, callback=self.{callback})

    def {callback}(self, response):
        yield {{"key": response.url, "by": "{callback}"}}
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with serving(tmp_path / "site", hosts=1) as served:
        yield served


def _start(here: Project, callback: str, url: str, **settings: object) -> Process:
    spider = here.folder / f"{callback}.py"
    spider.write_text(_SPIDER.format(callback=callback))
    scrapy_settings = {
        "SCHEDULER": "shoal.scrapy.Scheduler",
        "ITEMS_FILE": here.folder / "kept",
        **here.settings,
        **settings,
    }
    options = [word for name, value in scrapy_settings.items() for word in ("-s", f"{name}={value}")]
    return here.run([sys.executable, "-m", "scrapy", "runspider", str(spider), *options, "-a", f"start={url}"])


def _planted(site: Site, pages: int = 60) -> tuple[str, set[str]]:
    host = site.take(1)[0]
    paths = [f"/{number}" for number in range(pages)]
    for path in paths:
        site.at(host, path, page())
    return site.at(host, "/", page(*paths)), {f"http://{host}{path}" for path in paths}


def test_requests_without_their_callback_stay_until_a_process_has_it(site: Site, tmp_path: Path) -> None:
    start, books = _planted(site, pages=5)
    with project(tmp_path / "project") as here:
        _start(here, "new", start, CLOSESPIDER_ITEMCOUNT=1, DOWNLOAD_DELAY=0.5).end()
        old = _start(here, "old", start)
        output = old.end()
        assert output.count("has no method 'new'") == 1, output
        assert "Closing spider (missing_callback)" in output or "Spider closed (missing_callback)" in output
        shown = _shoal(here, "failed", _crawl(here))
        assert shown == ""
        assert "Spider closed (finished)" in _start(here, "new", start).end()
        assert books <= set(here.keys())
        assert {item["by"] for item in here.items() if "by" in item} == {"new"}


def test_two_versions_of_a_spider_share_a_crawl(site: Site, tmp_path: Path) -> None:
    start, books = _planted(site)
    with project(tmp_path / "project", DOWNLOAD_DELAY=0.1) as here:
        new = _start(here, "new", start)
        here.wait_for_items(3)
        old = _start(here, "old", start)
        wait_until(lambda: "has no method 'new'" in old.output() or old.popen.poll() is not None, "it was given one")
        new.end()
        old.end()
        assert set(here.keys()) == {start, *books}
        assert max(here.keys().values()) == 1


def test_a_retry_of_failed_requests_names_the_command_of_scrapy(site: Site, tmp_path: Path) -> None:
    start, _ = _planted(site)
    with project(tmp_path / "project") as here:
        _start(here, "new", start, CLOSESPIDER_ITEMCOUNT=1, DOWNLOAD_DELAY=0.5).end()
        assert "Resume with: scrapy crawl books -a start=..." in _shoal(here, "failed", _crawl(here), "--retry")


def _crawl(here: Project) -> str:
    return next(word for word in _shoal(here, "crawls").split() if word.startswith("books."))


def _shoal(here: Project, *words: str) -> str:
    argv = [sys.executable, "-m", "shoal", *words]
    environment = {"PYTHONPATH": f"{ROOT}/src"}
    done = subprocess.run(
        argv, cwd=here.folder, capture_output=True, text=True, timeout=60, check=True, env=environment
    )
    return done.stdout + done.stderr
