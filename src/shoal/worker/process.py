"""A worker process, from its start-up message to its exit. A supervisor starts it; startup.py defines the message."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import io
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType

import uvloop

from shoal.errors import ShoalError
from shoal.frontier import Frontier
from shoal.model.worker_report import RequestLine, WorkerReport
from shoal.settings import Settings, load
from shoal.spider import load_all
from shoal.stdio import DroppingWriter
from shoal.worker.spider_runner import SpiderRunner
from shoal.worker.startup import CANNOT_WORK, StartupConfig
from shoal.worker.worker import Worker

_LEAVE_SECONDS = 1.0
_FILES = 65_536
_reports: DroppingWriter | None = None


class _Shutdown:
    """The first signal, or the end of stdin, stops the worker; a second signal ends the process at once."""

    def __init__(self) -> None:
        self._requested = self._signalled = False
        self._stop: Callable[[], object] | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            # asyncio's own handlers run in the event loop, which a page may keep busy.
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._signalled:
            os._exit(128 + number)
        self._signalled = True
        self.request()

    def request(self) -> None:
        self._requested = True
        if self._stop is not None:
            with contextlib.suppress(RuntimeError):
                self._stop()

    def connect(self, worker: Worker, loop: asyncio.AbstractEventLoop) -> None:
        self._stop = functools.partial(loop.call_soon_threadsafe, worker.stop)
        if self._requested:
            worker.stop()
        threading.Thread(target=self._wait_for_eof, daemon=True).start()

    def _wait_for_eof(self) -> None:
        # Not through sys.stdin: its lock would be held when the process exits.
        while os.read(0, 4096):
            pass
        self.request()


def main() -> int:
    shutdown = _Shutdown()
    _separate_reports()
    try:
        config = StartupConfig.of(sys.stdin.buffer.readline())
        settings = load(environ={}, flags=config.settings).settings
        _limit_memory(settings.worker.memory)
        _allow_files()
        # The objects of a page are short-lived and without cycles: collecting often would only scan long-lived ones.
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        gc.enable()
        return uvloop.run(_run(config, settings, shutdown))
    except ShoalError as error:
        print(f"{error}", file=sys.stderr)
        return CANNOT_WORK
    except Exception:
        traceback.print_exc()
        return 1


async def _run(config: StartupConfig, settings: Settings, shutdown: _Shutdown) -> int:
    spiders = SpiderRunner({**({"": None} if config.plain else {}), **load_all(config.spiders)})
    frontier = await Frontier.from_settings(settings, worker=config.name)
    async with frontier:
        worker = Worker(
            frontier, settings, spiders=spiders, shared=config.shared, crash_marker=config.crash_marker,
            on_report=_write_report, on_request=_write_line if config.log_requests else None,
        )  # fmt: skip
        shutdown.connect(worker, asyncio.get_running_loop())
        await worker.run()
        # Do not wait for an unavailable store: it notices the missing heartbeats.
        with contextlib.suppress(ShoalError, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await frontier.workers.leave()
    return 0


def _separate_reports() -> None:
    """Keep stdout for reports: what spiders and libraries print goes to stderr."""
    global _reports
    # The supervisor may be stopped. Then reports are dropped, and the next one has all counts.
    _reports = DroppingWriter(os.dup(1), patience_seconds=0.0, notice=False)
    os.dup2(2, 1)
    sys.stdout = sys.stderr = io.TextIOWrapper(
        DroppingWriter(2), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )


def _write_report(report: WorkerReport) -> None:
    _write_line(report)


def _write_line(value: WorkerReport | RequestLine) -> None:
    # If the supervisor is dead, the end of stdin stops this process.
    with contextlib.suppress(OSError):
        if _reports is not None:
            _reports.write(value.line())


def _allow_files() -> None:
    """Raise the limit of open files: a worker has more connections than the usual 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, _FILES) if hard > 0 else _FILES, hard))


def _limit_memory(max_bytes: int) -> None:
    """A page that takes too much memory ends this process, not the machine; the crash marker names the page."""
    if max_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (max_bytes, resource.getrlimit(resource.RLIMIT_DATA)[1]))
