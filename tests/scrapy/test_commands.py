"""Scrapy's commands that inspect a page: they work as without Shoal, and do not change the project's crawl."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from shoal.frontier import Frontier
from shoal.model.crawl import Counts
from shoal.scrapy.scrapy_command import is_inspecting
from tests.scrapy.processes import Project, project
from tests.site.responses import page
from tests.site.site import Site, serving

_SETTINGS = """
SCHEDULER = "shoal.scrapy.Scheduler"
SPIDER_MODULES = ["looked_at"]
LOG_LEVEL = "INFO"
"""
_SPIDER = '''
import scrapy

class Tree(scrapy.Spider):
    name = "tree"
    start_urls = ["{start}"]

    def parse(self, response):
        """
        @url {start}
        @returns items 1 1
        """
        yield {{"key": response.url}}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)
'''


def _project(folder: Path, start: str) -> None:
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = the_settings\n")
    (folder / "the_settings.py").write_text(_SETTINGS)
    (folder / "looked_at.py").write_text(_SPIDER.format(start=start))


def _scrapy(here: Project, *words: str) -> str:
    return here.run([sys.executable, "-m", "scrapy", *words]).end()


@pytest.mark.full
async def test_commands_that_inspect_a_page_work_and_do_not_change_the_crawl(scrapy: str, tmp_path: Path) -> None:
    with serving(tmp_path / "site") as site, project(tmp_path / "project", scrapy=scrapy) as here:
        start, waiting = _planted(site)
        _project(here.folder, start)
        _scrapy(here, "crawl", "tree", "-s", "CLOSESPIDER_ITEMCOUNT=1", "-s", "CONCURRENT_REQUESTS_PER_DOMAIN=1",
                "-s", "DOWNLOAD_DELAY=1")  # fmt: skip
        before = await _counts(here)
        assert before.waiting > waiting / 2
        parsed = _scrapy(here, "parse", "--spider=tree", "-c", "parse", start)
        shown = _scrapy(here, "shell", "--nolog", "-c", "response.status", start)
        fetched = _scrapy(here, "fetch", "--nolog", start)
        checked = _scrapy(here, "check", "tree")
        assert await _counts(here) == before
    assert f"'key': '{start}'" in parsed
    assert "Spider closed (finished)" in parsed
    assert shown.strip().endswith("200")
    assert "<title>The first</title>" in fetched
    assert "Ran 1 contract" in checked
    assert "OK" in checked


def _planted(site: Site) -> tuple[str, int]:
    host = site.take(1)[0]
    links = [f"/page/{number}" for number in range(8)]
    for link in links:
        site.at(host, link, page())
    return site.at(host, "/", page(*links, title="The first")), len(links)


async def _counts(here: Project) -> Counts:
    async with await Frontier.open(folder=str(here.folder / ".shoal")) as frontier:
        crawls = [crawl.id async for crawl in frontier.crawls.all()]
        assert crawls == ["tree@1"]
        return await frontier.crawls.count("tree@1")


@pytest.mark.parametrize(
    ("words", "looking"),
    [
        (["/usr/bin/scrapy", "view", "http://a/"], True),
        (["-m", "scrapy", "shell"], True),
        (["-X", "dev", "-m", "scrapy.cmdline", "--nolog", "fetch", "http://a/"], True),
        (["C:/scripts/scrapy.exe", "check"], True),
        (["/usr/bin/scrapy", "crawl", "shell"], False),
        (["/usr/bin/scrapy", "runspider", "parse.py"], False),
        (["main.py", "shell"], False),
        ([], False),
    ],
)
def test_a_command_that_only_inspects_is_recognized_by_the_command_line(words: list[str], looking: bool) -> None:
    assert is_inspecting(words) is looking
