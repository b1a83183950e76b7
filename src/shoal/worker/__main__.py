"""A worker process: `python -m shoal.worker`, started by a supervisor. See orders.py for what it reads."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import sys
import threading
from types import FrameType

import uvloop

from shoal.errors import ShoalError
from shoal.frontier import Frontier
from shoal.settings import Settings, load
from shoal.worker.orders import Orders
from shoal.worker.report import Report
from shoal.worker.worker import Worker

CANNOT_GO_ON = 3


def main() -> int:
    try:
        orders = Orders.of(sys.stdin.buffer.readline())
        settings = load(environ={}, flags=orders.settings).settings
        _limit_memory(settings.worker.memory)
        # Values of pages live briefly and hold no cycles: the collector would look at the long-lived ones in vain.
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        return uvloop.run(_run(orders, settings))
    except ShoalError as error:
        print(f"{error}", file=sys.stderr)
        return CANNOT_GO_ON


async def _run(orders: Orders, settings: Settings) -> int:
    frontier = await Frontier.from_settings(settings, worker=orders.name)
    async with frontier:
        worker = Worker(frontier, settings, spiders=orders.spiders, blame=orders.blame, on_report=_say)
        _listen(worker, asyncio.get_running_loop())
        await worker.run()
        with contextlib.suppress(ShoalError):
            await frontier.workers.leave()
    return 0


def _say(report: Report) -> None:
    # A supervisor that is gone reads nothing; that it is gone is seen on the other pipe.
    with contextlib.suppress(OSError):
        os.write(sys.stdout.fileno(), report.line())


def _listen(worker: Worker, loop: asyncio.AbstractEventLoop) -> None:
    """The first signal, or the end of our input, stops the worker; a second signal ends the process at once."""
    asked = False

    def stop(number: int, frame: FrameType | None = None) -> None:
        nonlocal asked
        if asked:
            os._exit(128 + number)
        asked = True
        loop.call_soon_threadsafe(worker.stop)

    for number in (signal.SIGTERM, signal.SIGINT):
        # asyncio's own handlers run in the loop, which a page may keep busy.
        signal.signal(number, stop)

    def wait_for_end() -> None:
        while sys.stdin.buffer.read(4096):
            pass
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(worker.stop)

    threading.Thread(target=wait_for_end, daemon=True).start()


def _limit_memory(most: int) -> None:
    """A page that takes all memory ends this process, not the machine; blame then finds the page."""
    if most:
        resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))


if __name__ == "__main__":
    # Not sys.exit: threads that still wait for the store or an output must not hold up the end.
    code = main()
    sys.stderr.flush()
    os._exit(code)
