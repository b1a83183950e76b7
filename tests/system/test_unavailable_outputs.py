"""An unavailable output, in a fleet that serves other crawls too."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import Server, server, wait_until
from tests.site.site import Site
from tests.site.tree import Tree
from tests.system.shell import LOCAL, Running, Shell

pytestmark = pytest.mark.full

NAME = "items"


@pytest.fixture
def output(tmp_path: Path) -> Iterator[Server]:
    with server(tmp_path / "output") as valkey:
        yield valkey


@pytest.fixture
def fleet(shell: Shell, store: Server) -> Running:
    return start(shell, store)


def start(shell: Shell, store: Server) -> Running:
    worker = shell.start("worker", "--store", store.url, *LOCAL, "--workers", "1")
    worker.wait_for_output("1 worker on")
    return worker


def submit(shell: Shell, store: Server, name: str, tree: Tree, output: str) -> None:
    result = shell.run(
        "submit", tree.url(0), "--store", store.url, "--name", name, "--delay", "0.2", "--scope", "any", "--out", output
    )
    assert result.code == 0, result.err


def stored(output: Server) -> list[str]:
    return [json.loads(line)["url"] for line in output.ask("LRANGE", NAME, 0, -1)]


def test_a_crawl_waits_for_its_output_and_others_continue(
    site: Site, store: Server, output: Server, shell: Shell, fleet: Running
) -> None:
    hosts = site.take(4)
    far, near = site.plant(80, hosts[:3]), site.plant(6, hosts[3:])
    submit(shell, store, "far", far, f"{output.url}/0/{NAME}")
    wait_until(lambda: stored(output), "its first page is stored")
    output.kill()
    fleet.wait_for_output("Crawl far is paused until its output is available again: ")
    status = shell.counts("far", "--store", store.url)
    assert (status["state"], status["why"]) == ("paused", "output unavailable")
    submit(shell, store, "near", near, "near.db")
    wait_until(lambda: shell.counts("near", "--store", store.url)["state"] == "finished", "the other one ends")
    assert set(shell.rows("near.db")) == set(near.walk())
    # An operator resumes it too early: it waits again, and requests no page that it cannot store.
    before = len(site.requests(*hosts[:3]))
    assert shell.run("resume", "far", "--store", store.url).code == 0
    wait_until(lambda: shell.counts("far", "--store", store.url)["state"] == "paused", "it is paused again")
    assert len(site.requests(*hosts[:3])) == before
    output.start()
    fleet.wait_for_output("Crawl far is resumed: its output is available again.")
    wait_until(lambda: shell.counts("far", "--store", store.url)["state"] == "finished", "it ends")
    # A list gets a record at least once. Nothing was requested twice: the pages were kept.
    assert set(stored(output)) == set(far.walk())
    assert not site.judge(*hosts).repeated()
    assert not site.judge(*hosts).impolite(0.2)
    assert fleet.end(signal.SIGTERM).code == 0


def test_a_crawl_resumes_after_the_worker_that_paused_it_has_died(
    site: Site, store: Server, output: Server, shell: Shell, fleet: Running
) -> None:
    hosts = site.take(2)
    tree = site.plant(30, hosts)
    submit(shell, store, "far", tree, f"{output.url}/0/{NAME}")
    wait_until(lambda: stored(output), "its first page is stored")
    output.kill()
    fleet.wait_for_output("Crawl far is paused until its output is available again: ")
    assert fleet.end(signal.SIGKILL).code == -9
    output.start()
    again = start(shell, store)
    wait_until(lambda: shell.counts("far", "--store", store.url)["state"] == "finished", "it ends")
    assert set(stored(output)) == set(tree.walk())
    assert again.end(signal.SIGTERM).code == 0


def test_a_crawl_that_an_operator_pauses_meanwhile_stays_paused(
    site: Site, store: Server, output: Server, shell: Shell, fleet: Running
) -> None:
    tree = site.plant(30, site.take(2))
    submit(shell, store, "far", tree, f"{output.url}/0/{NAME}")
    wait_until(lambda: stored(output), "its first page is stored")
    output.kill()
    fleet.wait_for_output("Crawl far is paused until its output is available again: ")
    assert shell.run("pause", "far", "--store", store.url).code == 0
    output.start()
    fleet.wait_for_output("The output of crawl far is available again. The crawl stays paused.")
    wait_until(lambda: len(set(stored(output))) > 1, "what was kept is stored")
    status = shell.counts("far", "--store", store.url)
    assert (status["state"], status["why"]) == ("paused", "")
    assert shell.run("resume", "far", "--store", store.url).code == 0
    wait_until(lambda: shell.counts("far", "--store", store.url)["state"] == "finished", "it ends")
    assert set(stored(output)) == set(tree.walk())
    assert fleet.end(signal.SIGTERM).code == 0
