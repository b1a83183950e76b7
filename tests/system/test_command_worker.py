"""`shoal worker` on a store that others use, and the files of other machines."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal import Frontier, Limits
from shoal.model.policy import Policy
from tests.servers import Server, server, wait_until
from tests.site.site import Site, serving
from tests.system.commanding import LOCAL, Shell


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("site"), hosts=20) as site:
        yield site


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Server]:
    with server(tmp_path / "store") as store:
        yield store


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    (tmp_path / "here").mkdir()
    shell = Shell(tmp_path / "here")
    yield shell
    shell.close()


def test_workers_join_a_store_and_leave_it(site: Site, store: Server, shell: Shell) -> None:
    hosts = site.take(4)
    tree = site.plant(80, hosts)
    worker = shell.start("worker", "--store", store.url, *LOCAL, "--workers", "1")
    worker.until_said("1 workers of")
    ran = shell.crawl(
        tree.url(0), "--store", store.url, "--scope", "any", "--delay", "0.05", "--workers", "1", "--out", "p.jsonl"
    )
    assert ran.code == 0, ran.err
    assert sorted(shell.lines("p.jsonl")) == sorted(tree.walk())
    assert not site.judge(*hosts).impolite(0.05)
    ended = worker.end(signal.SIGTERM)
    assert ended.code == 0, ended.err
    assert "pages were stored" in ended.err
    # Both had their share: the crawl's own worker did not do it alone.
    assert "\n0 pages were stored" not in ended.err
    assert not (shell.folder / ".shoal").exists()


def test_a_file_is_refused_while_workers_of_another_machine_are_there(store: Server, shell: Shell) -> None:
    async def elsewhere() -> None:
        async with await Frontier.open(store.url, worker="far-away-1") as frontier:
            await frontier.workers.beat({"machine": "far-away"})

    asyncio.run(elsewhere())
    ran = shell.crawl("http://127.0.0.1:1/", "--store", store.url)
    assert ran.code == 1, ran.err
    assert "is a file of this machine, but worker far-away-1 of another one is on the store" in ran.err


def test_a_worker_does_not_join_a_crawl_that_writes_files_elsewhere(store: Server, shell: Shell) -> None:
    async def elsewhere() -> None:
        async with await Frontier.open(store.url) as frontier:
            policy = Policy(outputs=("sqlite:/data/pages.db",), machine="far-away")
            await frontier.crawls.create("theirs", Limits(), policy.spec())

    asyncio.run(elsewhere())
    ran = shell.run("worker", "--store", store.url)
    assert ran.code == 1, ran.err
    assert "Crawl 'theirs' writes sqlite:/data/pages.db, a file of another machine" in ran.err


def test_a_crawl_goes_on_only_where_its_files_are(store: Server, shell: Shell) -> None:
    async def elsewhere() -> None:
        async with await Frontier.open(store.url) as frontier:
            policy = Policy(outputs=("sqlite:/data/pages.db",), machine="far-away")
            await frontier.crawls.create("theirs", Limits(), policy.spec())
            await frontier.crawls.pause("theirs")

    asyncio.run(elsewhere())
    ran = shell.crawl("--name", "theirs", "--store", store.url)
    assert ran.code == 1, ran.err
    assert "a file of machine far-away; go on with it there" in ran.err
    assert shell.counts("theirs", "--store", store.url)["state"] == "paused"


def test_a_worker_keeps_on_when_its_store_was_away(site: Site, store: Server, shell: Shell) -> None:
    (host,) = site.take()
    tree = site.plant(60, [host])
    running = shell.start("crawl", tree.url(0), "--store", store.url, *LOCAL, "--delay", "0.05")
    wait_until(lambda: len(site.requests(host)) > 10, "it runs")
    store.restart()
    ran = running.end()
    assert ran.code == 0, ran.err
    assert set(shell.rows()) == tree.walk()
    assert not site.judge(host).impolite(0.05)
