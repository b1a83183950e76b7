"""Typical projects, unchanged except for settings: the same items as without Shoal, each once, politely.

A project runs three times at once on the same site: as it is, on Shoal in one process, and on Shoal in four. Their
User-Agent tells in the site's log whose requests are whose.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scrapy.processes import QUIET, SPIDERS, Project, needs_scrapy_redis, project
from tests.servers import Server, server
from tests.site.judge import Judge
from tests.site.responses import Response, page
from tests.site.site import Site

pytestmark = pytest.mark.full

_DELAY = 0.06
_OURS = {"SCHEDULER": "shoal.scrapy.Scheduler"}
_THEIRS = {
    "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
    "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
}
Arguments = list[dict[str, str]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("store")) as valkey:
        yield valkey


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `scrapy startproject` makes, with a pipeline and a delay."""
    folder = tmp_path_factory.mktemp("stock")
    with project(folder) as here:
        here.run([sys.executable, "-m", "scrapy", "startproject", "books"]).end()
    settings = folder / "books" / "books" / "settings.py"
    more = {
        "ITEM_PIPELINES": {"tests.scrapy.pipelines.JsonLinesPipeline": 1},
        "DOWNLOAD_DELAY": _DELAY,
        "ROBOTSTXT_OBEY": False,
    }
    settings.write_text(settings.read_text() + "".join(f"{name} = {value!r}\n" for name, value in more.items()))
    return folder / "books"


class Runs:
    """The three runs of one project: the items of each, and what the site saw of each."""

    def __init__(self, site: Site, host: str) -> None:
        self.items: dict[str, Counter[str]] = {}
        self._site = site
        self._host = host

    def judge(self, run: str) -> Judge:
        return Judge(request for request in self._site.requests(self._host) if request.headers.get("user-agent") == run)

    def check(self, expected: set[str]) -> None:
        assert set(self.items["alone"]) == expected
        for run in ("one", "four"):
            assert self.items[run] == self.items["alone"], run
            assert self.judge(run).counts() == self.judge("one").counts(), run
            assert not self.judge(run).impolite(_DELAY), run


def _run(
    stock: Path, folder: Path, site: Site, host: str, spider: str, *, arguments: Arguments | None = None,
    alone: dict[str, Any] | None = None, settings: Callable[[str], dict[str, Any]] = lambda run: {},
) -> Runs:  # fmt: skip
    """Start all three, wait for all of them. `arguments` are those of each process; four are as many, repeated."""
    each = arguments or [{}]
    plans = {"alone": each, "one": each, "four": (4 * each)[:4]}
    runs = Runs(site, host)
    with contextlib.ExitStack() as stack:
        running: dict[str, Project] = {}
        for run, plan in plans.items():
            place = folder / run
            shutil.copytree(stock, place)
            here = running[run] = stack.enter_context(project(place))
            options = {"ITEMS_FILE": place / "kept", "USER_AGENT": run, **QUIET, **settings(run)}
            options |= _OURS if run != "alone" else alone or {}
            words = [word for name, value in options.items() for word in ("-s", f"{name}={value}")]
            for more in plan:
                named = [word for name, value in more.items() for word in ("-a", f"{name}={value}")]
                here.run([sys.executable, "-m", "scrapy", "crawl", spider, *words, *named], place)
        for run, here in running.items():
            for process in here.processes:
                output = process.end()
                assert "Closing spider (finished)" in output, output[-2000:]
                # Without a network, tldextract logs that it cannot fetch its list, and uses its own.
                assert run == "alone" or "Traceback" not in output or "tldextract" in output, output[-3000:]
            runs.items[run] = here.keys()
    return runs


def _with(stock: Path, spider: str, folder: Path) -> Path:
    """The stock project with one of the tests' spiders."""
    made = folder / "made"
    shutil.copytree(stock, made)
    shutil.copy(SPIDERS / f"{spider}.py", made / "books" / "spiders")
    return made


def test_a_crawl_spider_generated_by_genspider_works(site: Site, stock: Path, tmp_path: Path) -> None:
    """Nothing but SCHEDULER is set: the store is an embedded one in the project's folder."""
    (host,) = site.take(1)
    tree = site.plant(15, [host])
    made = tmp_path / "made"
    shutil.copytree(stock, made)
    domain = host.partition(":")[0]
    with project(tmp_path) as here:
        here.run([sys.executable, "-m", "scrapy", "genspider", "-t", "crawl", "shelf", domain], made).end()
    spider = made / "books" / "spiders" / "shelf.py"
    text = spider.read_text().replace(f"https://{domain}", tree.url(0)).replace('allow=r"Items/"', 'allow=r"/p/"')
    assert tree.url(0) in text
    spider.write_text(text.replace("item = {}", 'item = {"key": response.url}'))
    _run(made, tmp_path, site, host, "shelf").check(tree.walk())


def test_a_login_form_opens_the_session_of_all_processes(site: Site, stock: Path, tmp_path: Path) -> None:
    (host,) = site.take(1)
    tree = site.plant(15, [host])
    form = (
        '<form action="/session" method="post"><input type="hidden" name="token" value="t"><input name="user"></form>'
    )
    start = site.at(host, "/login", page(body=form))
    inside = Response(body=f'<a href="{tree.url(0)}">in</a>', headers=(("Set-Cookie", "session=s3cret; Path=/"),))
    site.at(host, "/session", inside)
    runs = _run(_with(stock, "login", tmp_path), tmp_path, site, host, "login", arguments=[{"start": start}])
    runs.check(tree.walk() | {f"http://{host}/session"})
    for run in ("one", "four"):
        requests = runs.judge(run).requests
        assert [request.method for request in requests if request.path == "/session"] == ["POST"]
        behind = [request for request in requests if request.path.startswith("/p/")]
        assert {request.headers.get("cookie") for request in behind} == {"session=s3cret"}


def test_processes_with_different_arguments_run_separate_crawls(site: Site, stock: Path, tmp_path: Path) -> None:
    (host,) = site.take(1)
    tree = site.plant(10, [host])
    arguments = [{"start": tree.url(0), "channel_id": name} for name in ("7", "8")]
    runs = _run(_with(stock, "channel", tmp_path), tmp_path, site, host, "channel", arguments=arguments)
    runs.check({f"{name} {url}" for name in ("7", "8") for url in tree.walk()})


@pytest.mark.parametrize("spider", ["written_for_scrapy_redis", "crawled_from_redis"])
def test_spiders_written_for_scrapy_redis_work(
    spider: str, site: Site, store: Server, stock: Path, tmp_path: Path
) -> None:
    """Beside scrapy-redis itself, each run on a database of its own."""
    needs_scrapy_redis()
    (host,) = site.take(1)
    tree = site.plant(15, [host])
    name, key = {
        "written_for_scrapy_redis": ("written", "written:urls"),
        "crawled_from_redis": ("crawled", "crawled:start_urls"),
    }[spider]
    numbers = {"alone": 0, "one": 1, "four": 2}
    store.ask("FLUSHALL")
    for run in numbers.values():
        _push(store, run, key, tree.url(0))
    runs = _run(
        _with(stock, spider, tmp_path), tmp_path, site, host, name, alone=_THEIRS,
        settings=lambda run: {"REDIS_URL": f"{store.url}/{numbers[run]}", "MAX_IDLE_TIME_BEFORE_CLOSE": 1},
    )  # fmt: skip
    runs.check(tree.walk())


def _push(store: Server, database: int, key: str, url: str) -> None:
    store.ask("EVAL", "redis.call('SELECT', ARGV[1]) redis.call('RPUSH', KEYS[1], ARGV[2])", 1, key, database, url)
