"""No program finishes a crawl whose seeds are still being read or that has an open branch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

import shoal
from shoal.frontier import Frontier
from shoal.frontier.crawl_facts import Feed
from shoal.model import Counts, State
from shoal.settings import load
from tests.servers import wait_until
from tests.site.responses import page
from tests.site.site import Site
from tests.system.shell import Shell

LOCAL = {"fetch.allow_networks": "127.0.0.0/8"}
SPIDERS = """
import shoal

class Lister(shoal.Spider):
    def parse(self, page):
        yield {"title": page.title}
        yield from page.follow("a")
"""
# Several times the pause between two checks of every program here.
LONG_ENOUGH_SECONDS = 1.5
T = TypeVar("T")
Step = Callable[[Frontier], Awaitable[object]]


def on_store(folder: Path, step: Callable[[Frontier], Awaitable[T]]) -> T:
    async def run() -> T:
        settings = load(flags={"store.folder": str(folder / ".shoal")}).settings
        async with await Frontier.from_settings(settings) as frontier:
            return await step(frontier)

    return asyncio.run(run())


async def open_branch(frontier: Frontier, crawl: str, url: str) -> None:
    await frontier.add(await frontier.crawls.branch(crawl, "Nobody"), [url])


async def close_branch(frontier: Frontier) -> None:
    for lease in await frontier.lease(spiders=["Nobody"]):
        await frontier.acknowledge(lease, [visit.stored() for visit in lease.visits])


def obstacle(kind: str, crawl: str, url: str) -> tuple[Step, Step]:
    """What keeps a crawl from being over, and its removal."""
    if kind == "seeds":
        return (
            lambda frontier: frontier.crawls.facts.start_feed(crawl, Feed.SEEDS),
            lambda frontier: frontier.crawls.facts.finish_feed(crawl, Feed.SEEDS),
        )
    return partial(open_branch, crawl=crawl, url=url), close_branch


async def state(frontier: Frontier) -> State:
    return (await frontier.crawls.get("c")).state


async def counts(frontier: Frontier) -> Counts:
    return await frontier.crawls.count("c")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spiders.py").write_text(SPIDERS)
    return tmp_path


@pytest.mark.parametrize("kind", ["seeds", "branch"])
def test_a_coordinator_waits_for_an_open_feed_or_branch(site: Site, folder: Path, kind: str) -> None:
    host, other = site.take(2)
    site.at(host, "/", page())
    put, remove = obstacle(kind, "c", f"http://{other}/")
    coordinator = shoal.Coordinator(spiders=["spiders.py:Lister"], settings=LOCAL)
    with coordinator:
        coordinator.submit([f"http://{host}/"], spider="Lister", delay_seconds=0, outputs=["pages.db"], name="c")
        on_store(folder, put)
        wait_until(lambda: coordinator.counts("c").stored == 1, "the page is stored")
        assert not coordinator.finished("c")
    # At its stop it finishes what is over.
    assert on_store(folder, state) is State.RUNNING
    with coordinator:
        on_store(folder, remove)
        wait_until(lambda: coordinator.finished("c"), "the crawl is over")
    assert on_store(folder, state) is State.FINISHED


@pytest.mark.parametrize("kind", ["seeds", "branch"])
def test_a_crawl_from_python_waits_for_an_open_feed_or_branch(site: Site, folder: Path, kind: str) -> None:
    class Lister(shoal.Spider):
        def parse(self, page: shoal.Page) -> Iterator[object]:
            yield {"title": page.title}
            yield from page.follow("a")

    host, other = site.take(2)
    tree = site.plant(4, [host])
    put, _ = obstacle(kind, "c", f"http://{other}/")

    def start() -> Iterable[object]:
        return shoal.crawl(tree.url(0), spider=Lister, delay_seconds=0.2, name="c", folder=".shoal", settings=LOCAL)

    for _ in start():
        break
    on_store(folder, put)
    for _ in start():
        if on_store(folder, counts).stored == 4:
            time.sleep(LONG_ENOUGH_SECONDS)
            break
    assert on_store(folder, state) is State.RUNNING


@pytest.mark.parametrize("kind", ["seeds", "branch"])
def test_submit_with_wait_waits_for_an_open_feed_or_branch(site: Site, shell: Shell, kind: str) -> None:
    put, remove = obstacle(kind, "c", "http://127.0.0.1:9/b")

    async def visit(frontier: Frontier) -> None:
        (lease,) = await frontier.lease(spiders=["Lister"])
        await frontier.acknowledge(lease, [visit.stored() for visit in lease.visits])

    running = shell.start(
        "submit", "http://127.0.0.1:9/", "--spider", "Lister", "--name", "c", "--out", "pages.db", "--wait"
    )
    running.wait_for_output("No worker")
    on_store(shell.folder, put)
    on_store(shell.folder, visit)
    time.sleep(LONG_ENOUGH_SECONDS)
    assert running.process.poll() is None
    on_store(shell.folder, remove)
    assert running.end().code == 0
    assert on_store(shell.folder, state) is State.FINISHED


@pytest.mark.full
def test_a_command_without_the_missing_seeds_pauses_the_crawl(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    site.at(host, "/", page("/a"))
    site.at(host, "/a", page())
    assert shell.run("submit", f"http://{host}/", "--name", "c", "--out", "pages.db").code == 0
    on_store(shell.folder, lambda frontier: frontier.crawls.facts.start_feed("c", Feed.SEEDS))
    result = shell.crawl("--name", "c", "--delay", "0")
    assert result.code == 1
    assert "Crawl c was interrupted before all of its seeds were read; pass --seeds again." in result.err
    assert "Not all seeds of crawl c were read. Resume with: shoal crawl --name c" in result.err
    assert " --seeds FILE\n" in result.err
    assert shell.counts("c")["state"] == "paused"
    assert shell.counts("c")["counts"]["stored"] == 2
