"""A worker process from its orders to its end, started by a supervisor. See orders.py for what it reads."""

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
from shoal.model.worker_report import WorkerReport
from shoal.settings import Settings, load
from shoal.spider import load_all
from shoal.worker.spider_runner import SpiderRunner
from shoal.worker.startup import StartupConfig
from shoal.worker.worker import Worker

CANNOT_GO_ON = 3
_LEAVE_SECONDS = 1.0
_FILES = 65_536
_reports = 1


class _Ending:
    """The first signal, or the end of our input, stops the worker; a second signal ends the process at once."""

    def __init__(self) -> None:
        self.asked = self._heard = False
        self._stop: Callable[[], object] | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            # asyncio's own handlers run in the loop, which a page may keep busy.
            signal.signal(number, self._hear)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._heard:
            os._exit(128 + number)
        self._heard = True
        self.ask()

    def ask(self) -> None:
        self.asked = True
        if self._stop is not None:
            with contextlib.suppress(RuntimeError):
                self._stop()

    def stops(self, worker: Worker, loop: asyncio.AbstractEventLoop) -> None:
        self._stop = functools.partial(loop.call_soon_threadsafe, worker.stop)
        if self.asked:
            worker.stop()
        threading.Thread(target=self._wait_for_end, daemon=True).start()

    def _wait_for_end(self) -> None:
        # Not through sys.stdin: its lock would be held at the end of the process.
        while os.read(0, 4096):
            pass
        self.ask()


def main() -> int:
    ending = _Ending()
    _keep_reports_apart()
    try:
        orders = StartupConfig.of(sys.stdin.buffer.readline())
        settings = load(environ={}, flags=orders.settings).settings
        _limit_memory(settings.worker.memory)
        _allow_files()
        # Values of pages live briefly and hold no cycles: the collector would look at the long-lived ones in vain.
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        gc.enable()
        return uvloop.run(_run(orders, settings, ending))
    except ShoalError as error:
        print(f"{error}", file=sys.stderr)
        return CANNOT_GO_ON
    except Exception:
        traceback.print_exc()
        return 1


async def _run(orders: StartupConfig, settings: Settings, ending: _Ending) -> int:
    spiders = SpiderRunner({**({"": None} if orders.plain else {}), **load_all(orders.spiders)})
    frontier = await Frontier.from_settings(settings, worker=orders.name)
    async with frontier:
        worker = Worker(frontier, settings, spiders=spiders, shared=orders.shared, blame=orders.blame, on_report=_say)
        ending.stops(worker, asyncio.get_running_loop())
        await worker.run()
        # A store that is away is not waited for: it notices by itself that nobody beats.
        with contextlib.suppress(ShoalError, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await frontier.workers.leave()
    return 0


def _keep_reports_apart() -> None:
    """What spiders and libraries print is for people, and goes where our own words go."""
    global _reports
    _reports = os.dup(1)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


def _say(report: WorkerReport) -> None:
    # A supervisor that is gone reads nothing; that it is gone is seen on the other pipe.
    with contextlib.suppress(OSError):
        os.write(_reports, report.line())


def _allow_files() -> None:
    """As many open files as this user may have: the usual 1,024 are fewer than a worker's connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, _FILES) if hard > 0 else _FILES, hard))


def _limit_memory(most: int) -> None:
    """A page that takes all memory ends this process, not the machine; blame then finds the page."""
    if most:
        resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))
