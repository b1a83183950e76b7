"""An event loop in its own thread, for callers without a loop or with a foreign one, e.g. notebooks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import uvloop

Result = TypeVar("Result")


class LoopThread:
    """Runs until `close`. Coroutines run in its loop; the caller waits for them as it likes."""

    def __init__(self, name: str) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def start(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def do(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run the coroutine and return its result. An interrupt cancels it."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Any) -> None:
        """Schedule a call in the loop."""
        self._loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """Stop the loop and its thread. A second call does nothing."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
