"""Many workers in one process: `python -m tests.chaos.crowd N`, orders as for one worker. SIGTERM stops them all."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import uvloop

from shoal.frontier import Frontier
from shoal.settings import load
from shoal.worker.startup import StartupConfig
from shoal.worker.worker import Worker


async def run(orders: StartupConfig, count: int) -> None:
    settings = load(environ={}, flags=orders.settings).settings
    # All at once, as after a power cut.
    frontiers = await asyncio.gather(
        *(Frontier.from_settings(settings, worker=f"{orders.name}-{number}") for number in range(count))
    )
    workers = [Worker(frontier, settings) for frontier in frontiers]

    def stop() -> None:
        for worker in workers:
            worker.stop()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    workers[0]._on_report = lambda report: print(report.line().decode(), end="", flush=True)
    await asyncio.gather(*(worker.run() for worker in workers))
    await asyncio.gather(*(frontier.close() for frontier in frontiers))


if __name__ == "__main__":
    uvloop.run(run(StartupConfig.of(sys.stdin.buffer.readline()), int(sys.argv[1])))
    os._exit(0)
