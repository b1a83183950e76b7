"""Crawls from Python: `shoal.crawl` in the calling process, and a coordinator of worker processes."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.errors import InvalidInput, UnknownCrawl
from tests.servers import wait_until
from tests.site.responses import page
from tests.site.site import Site
from tests.system.shell import ROOT, Shell

LOCAL = {"fetch.allow_networks": "127.0.0.0/8"}


class Titles(shoal.Spider):
    def parse(self, page: shoal.Page) -> Iterator[Any]:
        yield {"title": page.title}
        yield from page.follow("a")


class Lists(shoal.Spider):
    async def parse(self, page: shoal.Page) -> AsyncIterator[Any]:
        for follow in page.follow("a", spider="Titles"):
            await asyncio.sleep(0)
            yield follow


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_crawl_can_be_iterated_over(site: Site, folder: Path) -> None:
    tree = site.plant(30, site.take(2))
    crawl = shoal.crawl(tree.url(0), scope="any", delay_seconds=0.02, settings=LOCAL)
    records = list(crawl)
    assert sorted(record.url for record in records) == sorted(tree.walk())
    assert all(isinstance(record, shoal.Record) and record.status == 200 for record in records)
    assert (crawl.counts.stored, crawl.counts.open) == (30, 0)
    # Nothing is left behind: no store, no thread.
    assert not list(folder.iterdir())
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("shoal")]
    with pytest.raises(InvalidInput, match="once"):
        next(iter(crawl))


def test_a_crawl_with_a_spider_of_the_same_module_yields_its_items(site: Site) -> None:
    (host,) = site.take()
    site.at(host, "/", page("/a", "/b", title="Root"))
    for name in "ab":
        site.at(host, f"/{name}", page("/", title=name))
    items = list(shoal.crawl(f"http://{host}/", spider=Titles, delay_seconds=0, settings=LOCAL))
    assert sorted(item["title"] for item in items) == ["Root", "a", "b"]
    # One spider may send pages to another; both are here.
    sent = shoal.crawl(f"http://{host}/", spider=Lists, spiders=[Titles], delay_seconds=0, settings=LOCAL)
    assert sorted(item["title"] for item in sent) == ["Root", "a", "b"]


def test_leaving_the_loop_ends_the_crawl(site: Site) -> None:
    (host,) = site.take()
    tree = site.plant(200, [host])
    for record in shoal.crawl(tree.url(0), delay_seconds=0.02, settings=LOCAL):
        assert record.status == 200
        break
    made = len(site.requests(host))
    assert made < 150
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("shoal")]
    assert len(site.requests(host)) == made


async def test_a_crawl_can_be_iterated_over_in_an_event_loop_too(site: Site) -> None:
    tree = site.plant(20, site.take(1))
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.01)
            beats += 1

    beating = asyncio.create_task(beat())
    urls = [record.url async for record in shoal.crawl(tree.url(0), delay_seconds=0.02, settings=LOCAL)]
    beating.cancel()
    assert sorted(urls) == sorted(tree.walk())
    # The loop was free meanwhile.
    assert beats > 10
    # As in a notebook, where a loop runs already: the plain form works as well.
    plain = await asyncio.to_thread(lambda: list(shoal.crawl(tree.url(0), delay_seconds=0, settings=LOCAL)))
    assert len(plain) == 20
    inside = list(itertools.islice(shoal.crawl(tree.url(0), delay_seconds=0, settings=LOCAL), 3))
    assert len(inside) == 3


@pytest.mark.full
def test_a_slow_caller_makes_the_crawl_wait(site: Site) -> None:
    hosts = site.take(8)
    tree = site.plant(3000, hosts)
    records = iter(shoal.crawl(tree.url(0), scope="any", delay_seconds=0, settings=LOCAL))
    next(records)
    requested, before = 0, -1
    while requested != before:
        time.sleep(0.5)
        before, requested = requested, len(site.requests(*hosts))
    assert requested < 1500
    assert len(list(records)) == 2999


@pytest.mark.full
def test_a_killed_crawl_with_a_folder_is_resumed(site: Site, folder: Path) -> None:
    (host,) = site.take()
    tree = site.plant(60, [host])
    program = folder / "program.py"
    program.write_text(
        f"import shoal\nhow = dict(name='mine', folder='kept', delay_seconds=0.03, settings={LOCAL})\n"
        f"for record in shoal.crawl({tree.url(0)!r}, **how):\n    print(record.url, flush=True)\n"
    )
    shell = Shell(folder)
    try:
        first = shell.start(program=(str(program),))
        wait_until(lambda: len(site.requests(host)) > 20, "some pages are fetched")
        os.kill(first.process.pid, signal.SIGKILL)
        before = first.end().out.split()
        second = shell.start(program=(str(program),)).end()
        assert second.code == 0, second.err
        after = second.out.split()
        # Only records that were acknowledged and not yet printed may be missing; none is printed twice.
        assert set(before) | set(after) <= set(tree.walk())
        assert len(set(tree.walk()) - set(before) - set(after)) <= 3
        assert not set(before) & set(after)
        third = shell.start(program=(str(program),)).end()
        assert (third.code, third.out) == (0, "")
    finally:
        shell.close()
    assert not site.judge(host).impolite(0.03)


# What a program may do in the middle of a crawl: end, while the crawl is still in a variable; fork.
LEFT = {
    "in a variable": "it = iter(crawling)\nnext(it)\n",
    "in a loop": "for record in crawling:\n    raise SystemExit\n",
    "by a thread": "it = iter(crawling)\nnext(it)\nt = threading.Thread(target=it.close)\nt.start()\nt.join()\n",
    # From 3.12, Python warns of every fork in a program with threads.
    "by a fork": "import warnings\nwarnings.simplefilter('ignore', DeprecationWarning)\nfor record in crawling:\n"
    "    if os.fork() == 0:\n        sys.exit()\n    os.wait()\n    break\n",
    "before it began": "",
}


@pytest.mark.parametrize("program", LEFT.values(), ids=LEFT.keys())
def test_a_program_can_exit_during_its_crawl(site: Site, folder: Path, program: str) -> None:
    (host,) = site.take()
    tree = site.plant(200, [host])
    (folder / "program.py").write_text(
        f"import os, sys, threading\nimport shoal\n"
        f"crawling = shoal.crawl({tree.url(0)!r}, delay_seconds=0.05, settings={LOCAL})\n{program}"
    )
    shell = Shell(folder, environ={"TMPDIR": str(folder)})
    try:
        result = shell.start(program=("program.py",)).end(seconds=30)
    finally:
        shell.close()
    assert (result.code, result.err) == (0, "")
    assert [path.name for path in folder.iterdir()] == ["program.py"]


def test_crawls_of_one_folder_do_not_take_each_others_visits(site: Site) -> None:
    first_host, second_host = site.take(2)
    trees = [site.plant(40, [host]) for host in (first_host, second_host)]
    how: dict[str, Any] = {"folder": "kept", "delay_seconds": 0.02, "settings": LOCAL}
    first = iter(shoal.crawl(trees[0].url(0), name="first", **how))
    begun = [next(first).url]
    # While it waits for its caller, and after it was left: only its own name resumes it.
    assert len(list(shoal.crawl(trees[1].url(0), name="second", **how))) == 40
    first.close()  # type: ignore[attr-defined]
    made = len(site.requests(first_host))
    assert list(shoal.crawl(trees[1].url(0), name="second", **how)) == []
    assert len(list(shoal.crawl(f"http://{second_host}/robots.txt", name="third", **how))) == 1
    assert len(site.requests(first_host)) == made
    begun += [record.url for record in shoal.crawl(trees[0].url(0), name="first", **how)]
    assert len(set(begun)) == len(begun)


def test_pages_for_a_missing_spider_fail_instead_of_waiting_forever(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    (host,) = site.take()
    site.at(host, "/", page("/a", title="Root"))
    crawl = shoal.crawl(f"http://{host}/", spider=Lists, delay_seconds=0, settings=LOCAL)
    assert list(crawl) == []
    assert crawl.counts.reasons == {"failed:spider: Titles is unknown": 1}
    assert "pass spiders=[Titles] to shoal.crawl" in capfd.readouterr().err


class Callbacks(shoal.Spider):
    def start(self) -> Iterator[Any]:
        for n in range(6):
            yield shoal.Follow(url=f"{self.urls[0]}{n}", callback="named", priority=n % 3)  # type: ignore[index]

    def named(self, page: shoal.Page) -> Any:
        return {"url": page.url}


def test_start_requests_of_a_spider_keep_their_callback_with_any_priority(site: Site) -> None:
    (host,) = site.take()
    for n in range(6):
        site.at(host, f"/{n}", page())
    kind = type("Here", (Callbacks,), {"urls": (f"http://{host}/",)})
    assert len(list(shoal.crawl(spider=kind, delay_seconds=0, settings=LOCAL))) == 6


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"delay": 1}, "delay_seconds"),
        ({"max_pages": "many"}, "Expected `int`, got `str` for max_pages"),
        ({"scope": "world"}, "for scope"),
        ({"spider": "books.py:Books"}, "pass the class itself"),
        ({"folder": "here"}, "needs a name"),
        ({"outputs": ["pages.xyz"]}, "Unsupported output"),
        ({"files": "kept", "file_types": ["pdf"]}, "'pdf' in file_types is not a content type"),
        ({"file_types": ["image/"]}, "file_types needs files"),
        ({"files": "gopher://a/"}, "Files cannot be stored"),
        ({"spiders": [Titles]}, "pass `spider` too"),
        ({"spider": Lists, "spiders": [Titles()]}, "pass the class itself"),
        ({"spider": Lists, "spiders": [type("Lists", (Titles,), {})]}, "Two spiders are named Lists"),
        ({"seeds": ["http://127.0.0.1:2/"]}, "has no seeds argument: pass the URLs first"),
        ({"settings": {"store.url": "redis://127.0.0.1:1"}}, "its own store, so settings must not have store.url"),
        ({"settings": {"x": 1}}, "^settings has the unknown setting x"),
        ({"settings": {"fetch.proxy": 1}}, "fetch.proxy is .* in settings"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_refused_before_anything_starts(how: dict[str, Any], sentence: str, folder: Path) -> None:
    with pytest.raises(shoal.errors.ShoalError, match=sentence):
        shoal.crawl("http://127.0.0.1:1/", **how)
    assert not list(folder.iterdir())


def test_a_coordinator_runs_workers_and_reports_progress(site: Site, folder: Path) -> None:
    hosts = site.take(4)
    tree = site.plant(60, hosts)
    (folder / "titles.py").write_text((ROOT / "tests/system/test_python.py").read_text().partition("@pytest")[0])
    with shoal.Coordinator(folder="kept", workers=2, settings=LOCAL) as coordinator:
        name = coordinator.submit([tree.url(0)], scope="any", delay_seconds=0.02, outputs=["pages.jsonl"], name="one")
        assert name == "one"
        wait_until(lambda: coordinator.stats().workers == 2, "both have reported")
        wait_until(lambda: coordinator.finished("one"), "the crawl is over")
        stats = coordinator.stats()
        assert (stats.crawls, stats.running, stats.pending, stats.seen, stats.stored) == (1, 0, 0, 60, 60)
        assert coordinator.counts("one").stored == 60
        with pytest.raises(UnknownCrawl):
            coordinator.counts("two")
        with pytest.raises(InvalidInput, match="unknown field"):
            coordinator.submit(["http://a.example/"], colour="red")
    lines = [json.loads(line)["url"] for line in (folder / "pages.jsonl").read_text().splitlines()]
    assert sorted(lines) == sorted(tree.walk())
    assert not site.judge(*hosts).impolite(0.02)
    with pytest.raises(InvalidInput, match="not started"):
        coordinator.stats()


@pytest.mark.full
def test_a_coordinator_pauses_resumes_and_replaces_workers_that_die(site: Site) -> None:
    (host,) = site.take()
    tree = site.plant(60, [host])
    with shoal.Coordinator(folder="kept", workers=2, settings=LOCAL) as coordinator:
        name = coordinator.submit([tree.url(0)], delay_seconds=0.05, outputs=["pages.db"])
        wait_until(lambda: coordinator.counts(name).stored > 5, "it began")
        coordinator.pause(name)
        wait_until(lambda: not coordinator.counts(name).leased, "nothing is open")
        made = len(site.requests(host))
        os.kill(coordinator.pids[0], signal.SIGKILL)
        wait_until(lambda: any("died" in event for event in coordinator.events), "its end is noticed")
        assert len(site.requests(host)) == made
        coordinator.resume(name)
        wait_until(lambda: coordinator.finished(name), "the crawl is over")
        assert coordinator.counts(name).stored == 60
    assert not site.judge(host).impolite(0.05)
