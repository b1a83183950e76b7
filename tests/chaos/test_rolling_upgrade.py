"""Workers of an earlier version and of this one on one store, as during a rolling upgrade."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from shoal import Frontier
from tests.servers import Server, wait_until
from tests.site.site import Site
from tests.system.shell import LOCAL, ROOT, Running, Shell

pytestmark = [pytest.mark.full, pytest.mark.chaos]
# The first commit of version 0.2.0. A release moves this to the release before it.
PREVIOUS = "3e834f2"
DELAY_SECONDS = 0.2


def previous_sources(folder: Path) -> Path:
    """The sources of the earlier version, out of the history of this repository."""
    folder.mkdir()
    archive = subprocess.run(["git", "-C", ROOT, "archive", PREVIOUS, "src"], capture_output=True)
    if archive.returncode:
        pytest.skip(f"The history of this repository does not have {PREVIOUS}; run: git fetch --unshallow")
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    return folder / "src"


def start_worker(sources: Path, folder: Path, store: Server) -> Running:
    folder.mkdir()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
    environ |= {
        "PYTHONPATH": str(sources), "SHOAL_LOG": "text", "SHOAL_FRONTIER_LEASE_SECONDS": "5",
        "WORKER_ID": folder.name, "SHOAL_WORKER_HOSTS": "4",
    }  # fmt: skip
    (folder / "shoal.toml").write_text(f'[outputs]\nresults = "{store.url}/0/results"\n')
    # -P and a path of their own: an editable install of this version comes after PYTHONPATH.
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal", "worker", "--store", store.url, *LOCAL, "--workers", "1"], cwd=folder,
        env=environ, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    worker = Running(process)
    # Not recognized by its output: another version may use other words.
    wait_until(lambda: folder.name in pages(store), f"{folder.name} has joined: {worker.stderr_lines}")
    return worker


def pages(store: Server) -> dict[str, int]:
    """How many pages each worker has stored, by the name that it was given, as of its last heartbeat."""

    async def read() -> dict[str, int]:
        async with await Frontier.open(store.url) as frontier:
            workers = await frontier.workers.alive()
            return {worker.name[:5]: int(worker.info.get("pages", 0)) for worker in workers}

    return asyncio.run(read())


def _took_part(store: Server, *names: str) -> bool:
    stored = pages(store)
    return all(stored.get(name) for name in names)


def test_old_and_new_workers_share_a_crawl_while_the_fleet_is_replaced(
    site: Site, store: Server, shell: Shell, tmp_path: Path
) -> None:
    hosts = site.take(12)
    tree = site.plant(1200, hosts)
    old = previous_sources(tmp_path / "old")
    fleet = [start_worker(old, tmp_path / f"old-{number}", store) for number in range(2)]
    shell.started += fleet
    # Workers are upgraded first: what submits crawls is still the old version.
    submitted = subprocess.run(
        [sys.executable, "-m", "shoal", "submit", "--store", store.url, "--scope", "any", "--delay", str(DELAY_SECONDS),
         "--out", "results", "--name", "rolling", tree.url(0)],
        cwd=tmp_path / "old-0", env={**os.environ, "PYTHONPATH": str(old)}, capture_output=True, text=True,
    )  # fmt: skip
    assert submitted.returncode == 0, submitted.stderr
    wait_until(lambda: len(site.requests(*hosts)) > 40, "the old workers are at work")
    for number in range(2):
        new = start_worker(ROOT / "src", tmp_path / f"new-{number}", store)
        shell.started.append(new)
        # Both versions work on the crawl before an old worker leaves.
        wait_until(partial(_took_part, store, f"old-{number}", f"new-{number}"), "both versions are at work")
        ended = fleet.pop(0).end(signal.SIGTERM)
        assert ended.code == 0, ended.err
        fleet.append(new)
    wait_until(lambda: shell.counts("rolling", "--store", store.url)["state"] == "finished", "it is finished", 300)
    for worker in fleet:
        ended = worker.end(signal.SIGTERM)
        assert ended.code == 0, ended.err
    records = {json.loads(record)["url"] for record in store.ask("LRANGE", "results", 0, -1)}
    assert records == set(tree.walk())
    assert site.judge(*hosts).impolite(DELAY_SECONDS) == []
