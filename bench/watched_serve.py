"""`shoal serve`, and how long its event loop was blocked.

    python bench/watched_serve.py FILE serve [options of shoal serve]

A timer fires every five milliseconds. It is late when the loop is busy with something else, or when other processes
have the core. The second is not counted: a delay counts at most as much as the CPU time that was used meanwhile.
SIGUSR1 writes the longest delay since the last SIGUSR1 to FILE, in milliseconds.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import Any

import shoal.api
from shoal.cli import start

_TICK_SECONDS = 0.005


async def _watch(file: Path) -> None:
    longest = 0.0

    def write() -> None:
        nonlocal longest
        # Under another name first: the reader waits for the file.
        part = file.with_suffix(".part")
        part.write_text(f"{longest * 1000:.3f}")
        part.rename(file)
        longest = 0.0

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, write)
    while True:
        due, used = time.monotonic() + _TICK_SECONDS, time.thread_time()
        await asyncio.sleep(_TICK_SECONDS)
        longest = max(longest, min(time.monotonic() - due, time.thread_time() - used))


def _watched(file: Path) -> None:
    run = shoal.api.run

    async def run_watched(*args: Any, **named: Any) -> None:
        watching = asyncio.create_task(_watch(file))
        try:
            await run(*args, **named)
        finally:
            watching.cancel()

    shoal.api.run = run_watched


if __name__ == "__main__":
    _watched(Path(sys.argv.pop(1)))
    start()
