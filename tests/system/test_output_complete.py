"""A command that says "finished" leaves no stored page outside its output files, whatever was killed before."""

from __future__ import annotations

import csv
import gzip
import re
import signal
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from shoal.sinks.files.part import OpenPart, parts_folder
from tests.servers import Server, wait_until
from tests.site.responses import page
from tests.site.site import Site
from tests.system.shell import LOCAL, Running, Shell

pytestmark = [pytest.mark.chaos, pytest.mark.full]
OUTPUTS = ("pages.jsonl", "pages.csv", "pages.parquet", "warc:archive")


def start(shell: Shell, store: Server, url: str) -> Running:
    shell.environ["SHOAL_FRONTIER_LEASE_SECONDS"] = "5"
    outputs = [flag for output in OUTPUTS for flag in ("--out", output)]
    return shell.start("crawl", url, *LOCAL, "--store", store.url, "--name", "c", "--scope", "any", "--delay", "0.05",
                       "--workers", "2", *outputs)  # fmt: skip


def stored(folder: Path) -> dict[str, Counter[str]]:
    """The URLs in each output."""
    with (folder / "pages.csv").open() as lines:
        rows = [row["url"] for row in csv.DictReader(lines)]
    tables = [pq.read_table(path)["url"].to_pylist() for path in (folder / "pages.parquet").glob("*.parquet")]
    archive = b"".join(gzip.decompress(path.read_bytes()) for path in (folder / "archive").glob("*.warc.gz"))
    responses = re.findall(rb"WARC-Type: response\r\n(?:[^\r]+\r\n)*?WARC-Target-URI: (\S+)", archive)
    return {
        "jsonl": Counter(Shell(folder).lines()),
        "csv": Counter(rows),
        "parquet": Counter(url for table in tables for url in table),
        "warc": Counter(url.decode() for url in responses if not url.endswith(b"/robots.txt")),
    }


@pytest.mark.smoke
def test_after_everything_was_killed_the_same_command_completes_every_file(
    site: Site, store: Server, shell: Shell
) -> None:
    """On a store of its own, which takes a killed worker for alive until its heartbeat is missed."""
    hosts = site.take(3)
    tree = site.plant(90, hosts)
    running = start(shell, store, tree.url(0))
    wait_until(lambda: len(site.requests(*hosts)) > 40, "pages are fetched")
    running.kill_all()
    result = start(shell, store, tree.url(0)).end()
    assert result.code == 0, result.err
    assert stored(shell.folder) == {key: Counter(tree.walk()) for key in ("jsonl", "csv", "parquet", "warc")}
    assert not list(shell.folder.glob("*.parts"))


def test_if_one_of_two_commands_of_a_crawl_is_killed_the_other_completes_every_file(
    site: Site, store: Server, shell: Shell
) -> None:
    hosts = site.take(4)
    tree = site.plant(200, hosts)
    killed = start(shell, store, tree.url(0))
    wait_until(lambda: len(site.requests(*hosts)) > 20, "pages are fetched")
    other = start(shell, store, tree.url(0))
    wait_until(other.workers, "the second command works")
    wait_until(lambda: len(site.requests(*hosts)) > 100, "pages are fetched by both")
    killed.kill_all()
    result = other.end()
    assert result.code == 0, result.err
    assert stored(shell.folder) == {key: Counter(tree.walk()) for key in ("jsonl", "csv", "parquet", "warc")}


def test_workers_of_another_process_are_requested_to_close_their_parts(site: Site, store: Server, shell: Shell) -> None:
    """Without a request, they would keep them for 30 seconds in Parquet and WARC."""
    hosts = site.take(4)
    tree = site.plant(120, hosts)
    worker = shell.start("worker", "--store", store.url, *LOCAL, "--workers", "1")
    worker.wait_for_output("connected to")
    result = start(shell, store, tree.url(0)).end()
    assert result.code == 0, result.err
    assert stored(shell.folder) == {key: Counter(tree.walk()) for key in ("jsonl", "csv", "parquet", "warc")}
    worker.end(signal.SIGTERM)


def test_a_command_that_cannot_merge_a_page_names_the_file_and_fails(site: Site, shell: Shell) -> None:
    (host,) = site.take(1)
    site.at(host, "/", page())
    held = shell.folder / "pages.jsonl"
    # A worker that hangs with its part: this process holds the lock.
    hung = OpenPart(parts_folder(held), "hung")
    try:
        running = shell.start("crawl", f"http://{host}/", *LOCAL, "--delay", "0", "--out", held)
        running.wait_for_output("Waiting for other workers to write the last pages of")
        result = running.end(signal.SIGINT)
    finally:
        hung.close()
    assert result.code == 1, result.err
    assert f"{held} is incomplete" in result.err
