"""Workers without a reader: a suspended supervisor, a terminal that accepts no output, a blocked event loop."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys

import pytest

from tests.servers import WAIT_SECONDS, Server, wait_until
from tests.site.responses import page
from tests.site.site import Site
from tests.system.shell import LOCAL, ROOT, Shell

pytestmark = [pytest.mark.chaos, pytest.mark.full]

# Each page fills more than a pipe.
TALKER = """
import shoal

class Talker(shoal.Spider):
    def parse(self, page):
        for line in range(1000):
            print("x" * 99)
        yield {"title": page.title}
        yield from page.follow("a")
"""
BLOCKER = """
import pathlib, time, shoal

class Blocker(shoal.Spider):
    def parse(self, page):
        if page.url.endswith("/block"):
            pathlib.Path("blocked").touch()
            while not pathlib.Path("go").exists():
                time.sleep(0.02)
        yield {"url": page.url}
        yield from page.follow("a")
"""


@pytest.mark.smoke
def test_workers_of_a_suspended_supervisor_keep_working(site: Site, shell: Shell) -> None:
    (host,) = site.take(1)
    tree = site.plant(12, [host])
    (shell.folder / "talker.py").write_text(TALKER)
    running = shell.start("crawl", tree.url(0), *LOCAL, "--spider", "talker.py:Talker", "--delay", "0.1",
                          "--workers", "1", "--out", "items.db")  # fmt: skip
    wait_until(lambda: len(site.requests(host)) > 2, "pages are fetched")
    running.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: len(site.requests(host)) > 12, "all pages are fetched")
    running.process.send_signal(signal.SIGCONT)
    result = running.end()
    assert result.code == 0, result.err


@pytest.mark.skipif(sys.platform != "linux", reason="terminals of other systems have other buffers")
def test_a_terminal_that_accepts_no_output_does_not_stop_the_crawl(site: Site, shell: Shell) -> None:
    (host,) = site.take(1)
    tree = site.plant(12, [host])
    (shell.folder / "talker.py").write_text(TALKER)
    # Nobody reads from the other end, as after Ctrl-S.
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "shoal", "crawl", tree.url(0), *LOCAL, "--delay", "0.02", "--workers", "1",
               "--spider", "talker.py:Talker", "--out", "items.jsonl"]  # fmt: skip
    environ = {**os.environ, "TERM": "xterm", "CI": "", "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(
        command, cwd=shell.folder, env=environ, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
    )
    try:
        assert process.wait(WAIT_SECONDS) == 0
    finally:
        process.kill()
        os.close(master)
        os.close(terminal)
    items = [json.loads(line) for line in (shell.folder / "items.jsonl").read_text().splitlines()]
    assert sorted(item["_url"] for item in items) == sorted(tree.walk())


def test_the_hosts_of_a_worker_with_a_blocked_event_loop_are_taken_over(
    site: Site, store: Server, shell: Shell
) -> None:
    blocked, other = site.take(2)
    site.at(blocked, "/block", page())
    tree = site.plant(6, [other])
    (shell.folder / "blocker.py").write_text(BLOCKER)
    shell.environ["SHOAL_FRONTIER_LEASE_SECONDS"] = "2"
    spider = ("--spider", "blocker.py:Blocker", "--store", store.url, "--workers", "1", *LOCAL)
    running = shell.start("crawl", tree.url(0), f"http://{blocked}/block", "--name", "c", "--delay", "0.5", *spider,
                          "--out", "items.db")  # fmt: skip
    wait_until((shell.folder / "blocked").exists, "the loop stands")
    assert len(site.requests(other)) < 7
    worker = shell.start("worker", *spider)
    wait_until(lambda: len(site.requests(other)) >= 7, "another worker requests the other host")
    (shell.folder / "go").touch()
    result = running.end()
    assert result.code == 0, result.err
    assert set(shell.rows("items.db")) == tree.walk() | {f"http://{blocked}/block"}
    # The page that took so long was not repeated: its lease was renewed.
    assert sum(request.path == "/block" for request in site.requests(blocked)) == 1
    assert not site.judge(other).impolite(0.5)
    worker.end(signal.SIGTERM)
