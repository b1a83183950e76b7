"""kill -9 of workers and of the command itself: the crawl is complete in the end, and stored once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.servers import wait_until
from tests.site.site import Site
from tests.system.shell import LOCAL, Running, Shell

pytestmark = [pytest.mark.chaos, pytest.mark.full]


def deaths(running: Running) -> int:
    return sum("died (killed by SIGKILL)" in line for line in running.stderr_lines)


@pytest.mark.smoke
def test_a_killed_worker_is_replaced_and_nothing_is_lost(site: Site, shell: Shell) -> None:
    hosts = site.take(4)
    tree = site.plant(240, hosts)
    running = shell.start("crawl", tree.url(0), *LOCAL, "--scope", "any", "--delay", "0.05", "--workers", "2",
                          "--out", "pages.jsonl", "--out", "pages.db")  # fmt: skip
    for killed, enough in enumerate((20, 70, 120), 1):
        wait_until(lambda enough=enough: len(site.requests(*hosts)) > enough, "pages are fetched")  # type: ignore[misc]
        victim = wait_until(running.workers, "a worker runs")[0]
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda killed=killed: deaths(running) == killed, "the death is noticed")  # type: ignore[misc]
    result = running.end(seconds=90)
    assert result.code == 0, result.err
    assert set(shell.rows()) == tree.walk()
    assert sorted(shell.lines()) == sorted(tree.walk())
    assert not site.judge(*hosts).impolite(0.05)
    assert list((shell.folder / ".shoal/workers").iterdir()) == []


def test_workers_of_a_killed_command_stop_by_themselves_and_its_crawl_can_be_resumed(site: Site, shell: Shell) -> None:
    hosts = site.take(2)
    tree = site.plant(80, hosts)
    running = shell.start("crawl", tree.url(0), *LOCAL, "--scope", "any", "--delay", "0.05", "--name", "orphan",
                          "--out", "pages.jsonl", "--out", "pages.db")  # fmt: skip
    wait_until(lambda: len(site.requests(*hosts)) > 20, "pages are fetched")
    workers = running.workers()
    assert len(workers) >= 1
    running.process.kill()
    running.process.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in workers), "the workers have ended")
    before = len(site.requests(*hosts))
    result = shell.crawl("--name", "orphan")
    assert result.code == 0, result.err
    assert set(shell.rows()) == tree.walk()
    assert sorted(shell.lines()) == sorted(tree.walk())
    judge = site.judge(*hosts)
    assert len(judge.requests) > before
    assert not judge.impolite(0.05)


def test_after_everything_was_killed_the_crawl_resumes_at_once(site: Site, shell: Shell) -> None:
    hosts = site.take(2)
    tree = site.plant(60, hosts)
    running = shell.start("crawl", tree.url(0), *LOCAL, "--scope", "any", "--delay", "0.05", "--name", "all",
                          "--out", "pages.jsonl")  # fmt: skip
    wait_until(lambda: len(site.requests(*hosts)) > 20, "pages are fetched")
    running.kill_all()
    # A lease lasts a minute. The folder has the names of the dead workers, so the command does not wait for that.
    result = shell.crawl("--name", "all", seconds=40)
    assert result.code == 0, result.err
    assert sorted(shell.lines()) == sorted(tree.walk())
    assert not site.judge(*hosts).impolite(0.05)
