"""SIGINT, SIGTERM and SIGHUP while workers run."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from shoal.cli.main import INTERRUPTED
from shoal.fleet import Supervisor

Result = TypeVar("Result")


class Interrupted(Exception):
    """A signal was received."""


class StopSignals:
    """The first signal stops the program gracefully; the second kills it and its workers."""

    def __init__(self, supervisor: Supervisor, on_kill: Callable[[], None] | None = None) -> None:
        """`on_kill` is called before the second signal ends the process."""
        self._on_kill = on_kill
        self.received = asyncio.Event()
        self._supervisor = supervisor
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # nohup ignores SIGHUP, and so do we.
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._handle)

    def _handle(self) -> None:
        if self.received.is_set():
            self._supervisor.kill()
            if self._on_kill is not None:
                self._on_kill()
            os._exit(INTERRUPTED)
        self.received.set()

    async def race(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result, or raise Interrupted if a signal comes first."""
        task, signal_ = asyncio.create_task(work), asyncio.create_task(self.received.wait())
        try:
            await asyncio.wait({task, signal_}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise Interrupted
            return task.result()
        finally:
            for pending in (task, signal_):
                pending.cancel()
            await asyncio.gather(task, signal_, return_exceptions=True)
