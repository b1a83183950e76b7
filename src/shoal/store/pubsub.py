"""Receives the messages that scripts publish on one channel, on a separate connection.

Messages only wake callers up. They may be lost with the connection, so a reconnect counts as a wake-up too, and a
caller always reads the store afterwards.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from shoal.errors import StoreError
from shoal.store.connection import Connection, ConnectionLost
from shoal.store.node import pause_seconds

RECONNECTED = b""
# A caller that was busy for more messages than this needs only to know that there were some.
_MAX_MESSAGES = 1000


class Subscriber:
    """Use as `async with store.listener(channel) as listener: await listener.wait(10)`."""

    def __init__(self, channel: str, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._channel = channel
        self._connect = connect
        self._link: Connection | None = None
        self._messages: deque[bytes] = deque(maxlen=_MAX_MESSAGES)
        self._woken = asyncio.Event()
        self._failures = 0
        self._pinged = False
        self._subscribed = asyncio.Event()
        self._subscribing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def wait(self, timeout: float) -> list[bytes]:
        """Messages since the last call, or [] after `timeout` seconds; [b""] after a (re)connect.

        An unavailable store is not an error here: this returns after the timeout, and the caller's next call of the
        store raises the error.
        """
        try:
            async with asyncio.timeout(timeout):
                while not self._messages:
                    if self._link is None or self._link.lost is not None or self._subscribing is not None:
                        if self._subscribing is None:
                            self._subscribing = asyncio.get_running_loop().create_task(self._subscribe())
                        # A short timeout must not cancel the attempt, or none would ever succeed.
                        await asyncio.shield(self._subscribing)
                    else:
                        self._woken.clear()
                        await self._woken.wait()
        except TimeoutError:
            self._probe()
        messages = list(self._messages)
        self._messages.clear()
        return messages

    async def close(self) -> None:
        if self._subscribing is not None:
            self._subscribing.cancel()
            await asyncio.gather(self._subscribing, return_exceptions=True)
        if self._link is not None:
            self._link.on_lost = None
            self._link.close()

    async def _subscribe(self) -> None:
        try:
            while not await self._try():
                self._failures += 1
                await asyncio.sleep(pause_seconds(self._failures))
            self._messages.append(RECONNECTED)
            self._woken.set()
        finally:
            self._subscribing = None

    async def _try(self) -> bool:
        self._subscribed.clear()
        self._pinged = False
        try:
            link = self._link = await self._connect()
        except ConnectionLost:
            return False
        except StoreError:
            # The store refuses the connection. The caller's own calls raise the error; here it only lengthens the
            # pause before the next attempt.
            self._failures = max(self._failures, 3)
            return False
        link.on_lost = self._lost
        link.listen(self._receive)
        link.write("SUBSCRIBE", self._channel)
        # Also set when the link is lost.
        await self._subscribed.wait()
        return link.lost is None

    def _receive(self, reply: Any) -> None:
        self._pinged = False
        if isinstance(reply, list) and reply:
            if reply[0] == b"message":
                self._messages.append(reply[2])
                self._woken.set()
            elif reply[0] == b"subscribe":
                self._failures = 0
                self._subscribed.set()
        elif isinstance(reply, Exception) and self._link is not None:
            self._link.close(str(reply))

    def _lost(self) -> None:
        self._subscribed.set()
        self._woken.set()

    def _probe(self) -> None:
        """Send a ping after a quiet period; a second quiet period without a reply means a dead connection."""
        if self._link is None or self._link.lost is not None:
            return
        if self._pinged:
            self._link.close("no reply to PING")
        else:
            self._pinged = True
            self._link.write("PING")
