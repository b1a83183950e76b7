"""One thread for the blocking calls of one sink. A cancelled caller waits until its call has returned."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from shoal.errors import SinkUnavailable

T = TypeVar("T")


class SinkThread:
    def __init__(self, name: str) -> None:
        self._pool: ThreadPoolExecutor | None = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, function: Callable[[], T]) -> T:
        """Call it in the thread. If this is cancelled, it first waits until the call has returned."""
        if self._pool is None:
            raise SinkUnavailable("This output was closed.")
        job = asyncio.get_running_loop().run_in_executor(self._pool, function)
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            await asyncio.wait({job})
            # Marks an exception of the call as seen: a cancelled caller has no use for it.
            job.cancelled() or job.exception()
            raise

    async def end(self, last: Callable[[], None]) -> None:
        """Call `last` in the thread and stop the thread. A second call does nothing."""
        if self._pool is not None:
            await self.run(last)
            pool, self._pool = self._pool, None
            pool.shutdown()
