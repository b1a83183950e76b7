"""One server: its connection, and how a lost connection is replaced.

State: at most one connection, and at most one attempt to open one, for all callers. All nodes and listeners of a Store
share one Pacer, so a store that is down gets fewer than five connection attempts per second from it.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from shoal.store.connection import Connection

# Four in any window a little longer than a second is "fewer than five a second", also on another clock.
_ATTEMPTS = 4
_WINDOW_SECONDS = 1.05
_SLOWEST_SECONDS = 1.0


class Pacer:
    """Spaces the connection attempts of one Store."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=_ATTEMPTS)
        self._turnstile = asyncio.Lock()

    def note(self) -> None:
        """Count an attempt that need not wait."""
        self._recent.append(asyncio.get_running_loop().time())

    async def turn(self) -> None:
        """Wait until another attempt may be made."""
        loop = asyncio.get_running_loop()
        async with self._turnstile:
            if len(self._recent) == _ATTEMPTS:
                free_mono = self._recent[0] + _WINDOW_SECONDS
                await asyncio.sleep(max(0.0, free_mono - loop.time()))
            self._recent.append(loop.time())


def pause_seconds(failures: int) -> float:
    """How long to wait after this many consecutive failures: almost nothing at first, finally about a second.

    The jitter keeps the workers of a fleet from reconnecting at the same time.
    """
    if failures <= 0:
        return 0.0
    if failures == 1:
        return random.uniform(0.0, 0.05)
    return min(_SLOWEST_SECONDS, 0.1 * 2.0 ** (failures - 1)) * random.uniform(0.5, 1.0)


class Node:
    """A server and the connection to it. `connect` opens a new one: it connects, logs in and checks the server."""

    def __init__(self, where: str, connect: Callable[[], Awaitable[Connection]], pacer: Pacer) -> None:
        self.where = where
        self.failures = 0
        self.reason = f"{where}: no connection"
        self.current: Connection | None = None
        self._connect = connect
        self._pacer = pacer
        self._attempt: asyncio.Task[Connection] | None = None
        self._tried = False

    @property
    def alive(self) -> bool:
        return self.current is not None and self.current.lost is None

    async def link(self) -> Connection:
        """Return the open connection, or open a new one in one attempt, which all waiting callers share."""
        current = self.current
        if current is not None:
            if current.lost is None:
                return current
            self.current = None
            self.failures += 1
        if self._attempt is None:
            self._attempt = asyncio.get_running_loop().create_task(self._try())
            self._attempt.add_done_callback(retrieve_outcome)
        # A caller's timeout must not cancel the attempt that others wait for.
        return await asyncio.shield(self._attempt)

    def worked(self) -> None:
        """A call succeeded. Only this resets the back-off: a server may accept connections and close them."""
        self.failures = 0

    async def close(self) -> None:
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.gather(self._attempt, return_exceptions=True)
        if self.current is not None:
            self.current.close()

    async def _try(self) -> Connection:
        try:
            await asyncio.sleep(pause_seconds(self.failures))
            if self._tried:
                await self._pacer.turn()
            else:
                # The first connection to a node need not wait, or a large cluster would open slowly.
                self._tried = True
                self._pacer.note()
            link = await self._connect()
        except Exception as error:
            self.failures += 1
            self.reason = str(error)
            raise
        else:
            self.current = link
            return link
        finally:
            self._attempt = None


def retrieve_outcome(attempt: asyncio.Task[Any]) -> None:
    """Retrieve the outcome, so that an abandoned task logs no warning."""
    if not attempt.cancelled():
        attempt.exception()
