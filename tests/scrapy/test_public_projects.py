"""Public projects: scrapy-redis' example project as its source distribution has it, and spiders in the shape of others.

quotesbot, booksbot and tutorials of scrapy-redis are in no package registry, so their shapes are written here: see
spiders/quotes.py, catalogue.py and quotes_from_redis.py. All of them run on copies of such sites on this machine.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.scrapy.shim import VERSION
from tests.scrapy.packages import source_of
from tests.scrapy.processes import QUIET, Project, needs_scrapy_redis, project
from tests.servers import Server, server
from tests.site.responses import Response, html, page, robots
from tests.site.site import Site

pytestmark = pytest.mark.full

_DELAY = 0.05
# scrapy-redis is installed for other tests: here it is not.
_SHIM = """
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "scrapy_redis" else find_spec(name, *rest)
import shoal.scrapy.shim
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Server]:
    with server(tmp_path / "store") as valkey:
        yield valkey


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Project]:
    with project(tmp_path / "project", DOWNLOAD_DELAY=_DELAY, ROBOTSTXT_OBEY=1) as opened:
        yield opened


def _quotes(site: Site, host: str, pages: int) -> set[str]:
    """Ten quotes a page, with a link to the next page."""
    texts = set()
    for number in range(1, pages + 1):
        quotes = ""
        for index in range(10):
            text = f"Quote {number}-{index}"
            texts.add(text)
            quotes += (
                f'<div class="quote"><span class="text">{text}</span><small class="author">A. {index}</small>'
                f'<div class="tags"><a class="tag" href="/tag/{index}/">t{index}</a></div></div>'
            )
        following = f'<li class="next"><a href="/page/{number + 1}/">Next</a></li>' if number < pages else ""
        site.at(host, "/" if number == 1 else f"/page/{number}/", Response(body=html(body=quotes + following)))
    site.at(host, "/robots.txt", robots("User-agent: *\nDisallow: /tag/\n"))
    return texts


@pytest.mark.parametrize("count", [1, 3])
def test_a_project_like_quotesbot_works(site: Site, here: Project, count: int) -> None:
    (host,) = site.take(1)
    texts = _quotes(site, host, 5)
    here.crawl("quotes", count=count, start=f"http://{host}/")
    assert here.keys() == dict.fromkeys(texts, 1)
    assert all(item["tags"] == [f"t{item['key'][-1]}"] for item in here.items())
    assert not site.judge(host).repeated()
    assert not site.judge(host).impolite(_DELAY)


@pytest.mark.parametrize("count", [1, 3])
def test_a_project_like_booksbot_works(site: Site, here: Project, count: int) -> None:
    (host,) = site.take(1)
    for number in range(1, 4):
        books = "".join(f'<article class="book"><a href="/book/{number}-{n}">b</a></article>' for n in range(8))
        following = f'<li class="next"><a href="/page-{number + 1}.html">next</a></li>' if number < 3 else ""
        path = "/" if number == 1 else f"/page-{number}.html"
        site.at(host, path, Response(body=html(body=books + following)))
        for n in range(8):
            body = f"<h1>Book {number}-{n}</h1><table><tr><th>Price</th><td>{number}.{n}0</td></tr></table>"
            site.at(host, f"/book/{number}-{n}", Response(body=html(body=body)))
    here.crawl("catalogue", count=count, start=f"http://{host}/")
    assert {item["key"]: item["price"] for item in here.items()} == {
        f"Book {number}-{n}": f"{number}.{n}0" for number in range(1, 4) for n in range(8)
    }
    assert max(here.keys().values()) == 1
    assert not site.judge(host).repeated()
    assert not site.judge(host).impolite(_DELAY)


def test_a_project_like_a_tutorial_of_scrapy_redis_works(site: Site, here: Project, store: Server) -> None:
    needs_scrapy_redis()
    (host,) = site.take(1)
    texts = _quotes(site, host, 4)
    store.ask("LPUSH", "quotes_queue:start_urls", f"http://{host}/")
    started = here.crawl("quotes_from_redis", count=3, settings={"REDIS_URL": store.url})
    assert here.keys() == dict.fromkeys(texts, 1)
    assert not site.judge(host).impolite(_DELAY)
    assert all("Traceback" not in process.output() for process in started)


def test_the_example_project_of_scrapy_redis_runs_on_the_shim(site: Site, store: Server, tmp_path: Path) -> None:
    """Nothing but the line that imports the shim is added. Its spider for dmoz-odp.org would need that site.

    Its spiders set `allowed_domains` to an iterator. Scrapy 2.19 reads it twice and then allows no domain, with any
    scheduler, so the offsite middleware is off.
    """
    folder = tmp_path / "example-project"
    shutil.copytree(source_of(f"scrapy-redis=={VERSION}") / "example-project", folder)
    settings = folder / "example" / "settings.py"
    settings.write_text(_SHIM + settings.read_text())
    first, second = site.take(2)
    tree = site.plant(12, [first])
    site.at(second, "/", page(title="One page"))
    options = {**QUIET, "REDIS_URL": store.url, "DOWNLOAD_DELAY": _DELAY, "MAX_IDLE_TIME_BEFORE_CLOSE": 1}
    options["DOWNLOADER_MIDDLEWARES"] = json.dumps({"scrapy.downloadermiddlewares.offsite.OffsiteMiddleware": None})
    words = [word for name, value in options.items() for word in ("-s", f"{name}={value}")]
    store.ask("RPUSH", "mycrawler:start_urls", tree.url(0))
    store.ask("RPUSH", "myspider:start_urls", json.dumps({"url": f"http://{second}/"}))
    with project(folder) as here:
        for spider, host in (("mycrawler_redis", first), ("mycrawler_redis", first), ("myspider_redis", second)):
            domain = host.partition(":")[0]
            here.run([sys.executable, "-m", "scrapy", "crawl", spider, "-a", f"domain={domain}", *words], folder)
        for process in here.processes:
            assert "Closing spider (finished)" in (output := process.end()), output[-3000:]
            assert "Traceback" not in output, output[-3000:]
    items = [json.loads(item) for item in store.ask("LRANGE", "mycrawler_redis:items", 0, -1)]
    assert sorted(item["url"] for item in items) == sorted(tree.walk())
    assert {item["spider"] for item in items} == {"mycrawler_redis"}
    (item,) = store.ask("LRANGE", "myspider_redis:items", 0, -1)
    assert json.loads(item)["name"] == "One page"
    assert not site.judge(first).impolite(_DELAY)
