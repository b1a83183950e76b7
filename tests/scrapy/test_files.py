"""Files of media pipelines, which Scrapy downloads past the scheduler: the delays of their hosts are kept too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.frontier import Frontier
from tests.scrapy.processes import Project, project
from tests.servers import wait_until
from tests.site.responses import Response, page, robots
from tests.site.site import Site

pytestmark = pytest.mark.full


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Project]:
    with project(tmp_path / "project", FILES_STORE=tmp_path / "files") as opened:
        yield opened


def _files(site: Site, pages: str, files: list[str], count: int) -> set[str]:
    """Pages on one host, each with a file on each of the others; returns the files' URLs."""
    site.at(pages, "/", page(*(f"/{number}" for number in range(count))))
    urls = set()
    for number in range(count):
        own = [f"http://{host}/file/{pages.partition(':')[0]}/{number}" for host in files]
        site.at(pages, f"/{number}", page(body="".join(f'<img src="{url}">' for url in own)))
        urls |= set(own)
    for host in files:
        for url in urls:
            if f"//{host}/" in url:
                site.at(host, url.partition(host)[2], Response(body="data", type="image/png"))
    return urls


def test_pages_and_files_of_all_processes_keep_the_delay_of_a_host(scrapy: str, site: Site, here: Project) -> None:
    here.scrapy = scrapy
    first, second = site.take(2)
    rules = robots("User-agent: *\nDisallow: /private\n")
    for host in (first, second):
        site.at(host, "/robots.txt", rules)
    urls = _files(site, first, [first, second], 6)
    settings = {"DOWNLOAD_DELAY": 0.1, "ROBOTSTXT_OBEY": 1}
    started = here.crawl("with_files", count=2, settings=settings, start=f"http://{first}/")
    items = {item["key"]: item for item in here.items()}
    assert len(items) == len(here.items()) == 7
    assert {file["url"] for item in items.values() for file in item["files"]} == urls
    judge = site.judge(first, second)
    assert not judge.impolite(0.1)
    assert not judge.repeated()
    assert not judge.unannounced()
    assert all("Traceback" not in process.output() for process in started)


def test_processes_full_of_waiting_files_do_not_block_each_others_hosts(site: Site, here: Project) -> None:
    """Every page's files are on the host that the other process has pages of, and two requests are all Scrapy takes."""
    first, second = site.take(2)
    urls = _files(site, first, [second], 6) | _files(site, second, [first], 6)
    settings = {"CONCURRENT_REQUESTS": 2, "CONCURRENT_REQUESTS_PER_DOMAIN": 1, "DOWNLOAD_DELAY": 0.03}
    here.crawl("with_files", count=2, settings=settings, start=f"http://{first}/,http://{second}/")
    assert {file["url"] for item in here.items() for file in item["files"]} == urls
    assert not site.judge(first, second).impolite(0.03)


async def test_a_page_whose_file_was_being_downloaded_at_a_kill_is_requested_again(site: Site, here: Project) -> None:
    (host,) = site.take(1)
    url = site.at(host, "/", page(body=f'<img src="http://{host}/file">'))
    site.at(host, "/file", Response(fault="silent"), Response(body="data", type="image/png"))
    first = here.start("with_files", start=url)
    wait_until(lambda: any(request.path == "/file" for request in site.requests(host)), "it requests the file")
    assert not here.items()
    first.kill()
    here.crawl("with_files", start=url)
    (item,) = here.items()
    assert [file["status"] for file in item["files"]] == ["downloaded"]
    async with await Frontier.open(folder=str(here.folder / ".shoal")) as frontier:
        assert not [crawl.id async for crawl in frontier.crawls.all() if crawl.id.startswith("guests:")]
