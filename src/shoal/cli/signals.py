"""SIGINT, SIGTERM and SIGHUP while workers run."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from shoal.cli.main import INTERRUPTED
from shoal.fleet import Supervisor

Result = TypeVar("Result")


class Interrupted(Exception):
    """A signal came."""


class Signals:
    """The first asks to end; the second ends this process and its workers at once."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.came = asyncio.Event()
        self._supervisor = supervisor
        loop = asyncio.get_running_loop()
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # nohup has it ignored, and means it.
            if one is not signal.SIGHUP or signal.getsignal(one) is not signal.SIG_IGN:
                loop.add_signal_handler(one, self._handle)

    def _handle(self) -> None:
        if self.came.is_set():
            self._supervisor.kill()
            os._exit(INTERRUPTED)
        self.came.set()

    async def race(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result, unless a signal comes first."""
        task, signal_ = asyncio.create_task(work), asyncio.create_task(self.came.wait())
        try:
            await asyncio.wait({task, signal_}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise Interrupted
            return task.result()
        finally:
            for one in (task, signal_):
                one.cancel()
            await asyncio.gather(task, signal_, return_exceptions=True)
