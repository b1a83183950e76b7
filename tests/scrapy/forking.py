"""Starts Python programs by forking a process that has imported Scrapy: importing it takes most of a short test's time.

The programs are processes like any others: with their own folder, environment and output, and killed like any others.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import queue
import runpy
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

# What a crawl imports in any case. None of them installs Twisted's reactor: each process chooses its own.
PRELOADED = (
    "scrapy.cmdline", "scrapy.commands.crawl", "scrapy.commands.runspider", "scrapy.core.downloader.contextfactory",
    "scrapy.core.downloader.handlers.http11", "scrapy.core.engine", "scrapy.core.scheduler", "scrapy.crawler",
    "scrapy.extensions.closespider", "scrapy.extensions.feedexport", "scrapy.extensions.logstats",
    "scrapy.extensions.memusage", "scrapy.pipelines.files", "scrapy.selector", "scrapy.spiders.crawl",
    "shoal.scrapy.scheduler", "twisted.internet.asyncioreactor", "twisted.web.client",
)  # fmt: skip


class Forked:
    """A process as `subprocess.Popen` shows it, as far as tests need it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = threading.Event()

    def end(self, status: int) -> None:
        self.returncode = os.waitstatus_to_exitcode(status)
        self._ended.set()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        # As with Popen, the id of a process that has ended is not used: it may be another process's by now.
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Parent:
    """The process that is forked."""

    def __init__(self, environment: dict[str, str]) -> None:
        argv = [sys.executable, "-m", "tests.scrapy.forking"]
        self._popen = subprocess.Popen(argv, cwd="/", env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._started: dict[int, Forked] = {}
        self._answers: queue.SimpleQueue[Forked] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def start(self, module: str, words: list[str], folder: Path, environment: dict[str, str], log: Path) -> Forked:
        assert self._popen.stdin is not None
        log.touch()
        request = {"module": module, "words": words, "folder": str(folder), "environment": environment, "log": str(log)}
        self._popen.stdin.write(json.dumps(request).encode() + b"\n")
        self._popen.stdin.flush()
        return self._answers.get(timeout=60)

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            event, pid, status = json.loads(line)
            if event == "started":
                self._started[pid] = Forked(pid)
                self._answers.put(self._started[pid])
            else:
                self._started.pop(pid).end(status)


_parents: dict[str, Parent] = {}


def start(module: str, words: list[str], folder: Path, environment: dict[str, str], log: Path) -> Forked:
    """Run a module as `python -m` does, with its output in a file."""
    path = environment["PYTHONPATH"]
    if path not in _parents:
        _parents[path] = Parent(environment)
    return _parents[path].start(module, words, folder, environment, log)


def _run(module: str, words: list[str], folder: str, environment: dict[str, str], log: str) -> None:
    """Become the program. What remains of the parent is what it has imported."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    output = os.open(log, os.O_WRONLY)
    for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
        os.dup2(file, number)
    os.closerange(3, 256)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = folder
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _serve() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    assert "twisted.internet.reactor" not in sys.modules
    gc.freeze()

    def report(*event: Any) -> None:
        os.write(1, json.dumps(event).encode() + b"\n")

    def reap(*_: Any) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            report("ended", pid, status)

    signal.signal(signal.SIGCHLD, reap)
    # The next request comes after the reply to this one, so a forked process finds none in its buffer.
    for line in iter(sys.stdin.readline, ""):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        pid = os.fork()
        if not pid:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            _run(**json.loads(line))
            sys.exit()
        report("started", pid, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


if __name__ == "__main__":
    _serve()
