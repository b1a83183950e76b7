"""`shoal worker` on a store that others use, and the files of other machines."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal import Frontier, Limits
from shoal.model.crawl_spec import CrawlSpec
from tests.servers import Server, wait_until
from tests.site.responses import Response, page
from tests.site.site import Site
from tests.system.shell import LOCAL, Shell

pytestmark = pytest.mark.full


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    (tmp_path / "here").mkdir()
    shell = Shell(tmp_path / "here")
    yield shell
    shell.close()


@pytest.mark.smoke
def test_workers_join_a_store_and_leave_it(site: Site, store: Server, shell: Shell) -> None:
    hosts = site.take(4)
    tree = site.plant(80, hosts)
    worker = shell.start("worker", "--store", store.url, *LOCAL, "--workers", "1")
    worker.wait_for_output("1 worker on")
    result = shell.crawl(
        tree.url(0), "--store", store.url, "--scope", "any", "--delay", "0.05", "--workers", "1", "--out", "p.jsonl"
    )
    assert result.code == 0, result.err
    assert sorted(shell.lines("p.jsonl")) == sorted(tree.walk())
    assert not site.judge(*hosts).impolite(0.05)
    ended = worker.end(signal.SIGTERM)
    assert ended.code == 0, ended.err
    assert "\nStored " in ended.err
    # Both had their share: the crawl's own worker did not do it alone.
    assert "\nStored 0 pages" not in ended.err
    assert not (shell.folder / ".shoal").exists()


def test_a_file_output_is_refused_while_workers_of_another_machine_are_connected(store: Server, shell: Shell) -> None:
    async def elsewhere() -> None:
        async with await Frontier.open(store.url, worker="far-away-1") as frontier:
            await frontier.workers.beat({"machine": "far-away"})

    asyncio.run(elsewhere())
    result = shell.crawl("http://127.0.0.1:1/", "--store", store.url)
    assert result.code == 1, result.err
    assert "is a file on this machine, but worker far-away-1 of another machine uses the store" in result.err


def test_a_worker_does_not_join_a_crawl_that_writes_files_on_another_machine(store: Server, shell: Shell) -> None:
    async def elsewhere() -> None:
        async with await Frontier.open(store.url) as frontier:
            policy = CrawlSpec(outputs=("sqlite:/data/pages.db",), machine="far-away")
            await frontier.crawls.create("theirs", Limits(), policy.stored())

    asyncio.run(elsewhere())
    result = shell.run("worker", "--store", store.url)
    assert result.code == 1, result.err
    assert "Crawl 'theirs' writes sqlite:/data/pages.db, a file on another machine" in result.err


def test_a_crawl_is_resumed_only_on_the_machine_that_has_its_files(store: Server, shell: Shell) -> None:
    async def elsewhere() -> None:
        async with await Frontier.open(store.url) as frontier:
            policy = CrawlSpec(outputs=("sqlite:/data/pages.db",), machine="far-away")
            await frontier.crawls.create("theirs", Limits(), policy.stored())
            await frontier.crawls.pause("theirs")

    asyncio.run(elsewhere())
    result = shell.crawl("--name", "theirs", "--store", store.url)
    assert result.code == 1, result.err
    assert "a file on machine far-away; resume it there" in result.err
    assert shell.counts("theirs", "--store", store.url)["state"] == "paused"


def test_a_worker_continues_after_its_store_was_unavailable(site: Site, store: Server, shell: Shell) -> None:
    (host,) = site.take()
    tree = site.plant(60, [host])
    running = shell.start("crawl", tree.url(0), "--store", store.url, *LOCAL, "--delay", "0.05")
    wait_until(lambda: len(site.requests(host)) > 10, "it runs")
    store.restart()
    result = running.end()
    assert result.code == 0, result.err
    assert set(shell.rows()) == tree.walk()
    assert not site.judge(host).impolite(0.05)


def test_a_crawl_whose_store_stays_unavailable_prints_how_to_resume_it(site: Site, store: Server, shell: Shell) -> None:
    (host,) = site.take()
    tree = site.plant(60, [host])
    # The leases of its workers cannot be released, and expire.
    shell.environ |= {"SHOAL_STORE_TIMEOUT_SECONDS": "2", "SHOAL_FRONTIER_LEASE_SECONDS": "5"}
    flags = ("--store", store.url, *LOCAL)
    running = shell.start("crawl", tree.url(0), *flags, "--delay", "0.05", "--name", "left")
    wait_until(lambda: len(site.requests(host)) > 10, "it runs")
    store.kill()
    result = running.end()
    store.start()
    assert result.code == 1, result.err
    assert f"Crawl left was interrupted. Resume with: shoal crawl --name left --store {store.url}" in result.err
    assert "Traceback" not in result.err
    result = shell.run("crawl", "--name", "left", *flags)
    assert result.code == 0, result.err
    assert set(shell.rows()) == tree.walk()


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_an_unavailable_store_is_reported_at_once_with_the_reason(
    site: Site, store: Server, shell: Shell, how: str
) -> None:
    (host,) = site.take()
    # Enough pages that the crawl does not end before it reports that the store is back.
    tree = site.plant(200, [host])
    running = shell.start("crawl", tree.url(0), "--store", store.url, *LOCAL, "--delay", "0.05", "--workers", "1")
    wait_until(lambda: len(site.requests(host)) > 10, "it runs")
    if how == "killed":
        store.kill()
    else:
        store.freeze()
    # Before any call has failed: they are retried for a minute.
    running.wait_for_output(f"The store at {store.url} is unavailable (")
    if how == "killed":
        store.start()
    else:
        store.thaw()
    running.wait_for_output("The store responds again, after ")
    result = running.end()
    assert result.code == 0, result.err
    assert ("connection refused" if how == "killed" else "no reply") in result.err
    assert set(shell.rows()) == tree.walk()


def test_crawls_of_scrapy_on_the_store_are_shown_and_do_not_block_others(
    site: Site, store: Server, shell: Shell
) -> None:
    async def scrapy() -> None:
        async with await Frontier.open(store.url) as frontier:
            await frontier.crawls.create("books@1", Limits(spider="scrapy:books"), {"scrapy": "books"})
            await frontier.add("books@1", ["http://127.0.0.1:1/"])

    asyncio.run(scrapy())
    (host,) = site.take()
    tree = site.plant(5, [host])
    worker = shell.start("worker", "--store", store.url, *LOCAL, "--workers", "1")
    worker.wait_for_output("1 worker on")
    result = shell.run(
        "submit", tree.url(0), "--store", store.url, "--name", "ours", "--delay", "0", "--out", "p.jsonl"
    )
    assert result.code == 0, result.err
    # The worker itself notices the end, and puts the file together.
    wait_until(lambda: shell.counts("ours", "--store", store.url)["state"] == "finished", "the crawl ends")
    wait_until(lambda: sorted(shell.lines("p.jsonl")) == sorted(tree.walk()), "the file is whole")
    status = shell.counts("books@1", "--store", store.url)
    assert (status["state"], status["policy"]["scrapy"], status["counts"]["waiting"]) == ("running", "books", 1)
    assert worker.end(signal.SIGTERM).code == 0


def test_a_submitted_crawl_stores_bodies_of_the_requested_types(site: Site, store: Server, shell: Shell) -> None:
    (host,) = site.take()
    site.at(host, "/", page("/one.png"))
    site.at(host, "/one.png", Response(body="a picture", type="image/png"))
    worker = shell.start("worker", "--store", store.url, *LOCAL, "--workers", "1")
    result = shell.run(
        "submit", f"http://{host}/", "--store", store.url, "--name", "kept", "--delay", "0", "--out", "kept.db",
        "--files", "bodies", "--file-types", "IMAGE/,application/pdf",
    )  # fmt: skip
    assert result.code == 0, result.err
    wait_until(lambda: shell.counts("kept", "--store", store.url)["state"] == "finished", "it ends")
    bodies = [path for path in (shell.folder / "bodies").rglob("*") if path.is_file()]
    assert [path.read_text() for path in bodies] == ["a picture"]
    assert shell.rows("kept.db")[f"http://{host}/one.png"]["file"] == str(bodies[0])
    assert worker.end(signal.SIGTERM).code == 0


def test_a_crawl_with_an_unusable_output_is_paused_and_others_continue(site: Site, store: Server, shell: Shell) -> None:
    (shell.folder / "foreign.db").write_text("this is not a database, but a text that a user wrote")
    here, there = site.take(2)
    bad, good = site.plant(5, [here]), site.plant(5, [there])
    worker = shell.start("worker", "--store", store.url, *LOCAL, "--workers", "1")
    worker.wait_for_output("1 worker on")
    outputs = {"bad": "sqlite:foreign.db", "nameless": "warehouse", "good": "good.db"}
    for name, output in outputs.items():
        url = good.url(0) if name == "good" else bad.url(0)
        result = shell.run("submit", url, "--store", store.url, "--name", name, "--delay", "0", "--out", output)
        assert result.code == 0, result.err
    where = ("--store", store.url)
    wait_until(lambda: shell.counts("good", *where)["state"] == "finished", "the good one ends")
    for name in ("bad", "nameless"):
        wait_until(lambda name=name: shell.counts(name, *where)["state"] == "paused", "it is paused")  # type: ignore[misc]
        counts = shell.counts(name, *where)["counts"]
        assert counts["stored"] == counts["failed"] == 0
        worker.wait_for_output(f"Crawl {name} is paused: ")
    # After the repair it resumes, and nothing is missing.
    (shell.folder / "foreign.db").unlink()
    assert shell.run("resume", "bad", *where).code == 0
    wait_until(lambda: shell.counts("bad", *where)["state"] == "finished", "it ends")
    assert set(shell.rows("foreign.db")) == set(bad.walk())
    assert worker.end(signal.SIGTERM).code == 0
