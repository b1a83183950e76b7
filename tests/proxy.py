"""A TCP proxy that misbehaves on request: cuts, delays, resets, or goes silent without closing.

It runs in the test's event loop and notes when each connection was accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator

# A connection is noted when the proxy has its turn, which may be this much later than it was made.
_LATE_SECONDS = 0.2


class Proxy:
    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.port = 0
        self.accepted: list[float] = []
        self.delay_seconds = 0.0
        self.silent = False  # half-open: takes everything, passes nothing on
        self.refuse = False  # accepts and hangs up at once
        self.swallow_replies = False  # passes requests on, drops the replies
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def most_in_a_second(self) -> int:
        """The largest number of connections accepted within any one second, less what a busy machine is late by."""
        times, seconds = self.accepted, 1.0 - _LATE_SECONDS
        return max((sum(1 for other in times if 0 <= other - time < seconds) for time in times), default=0)

    def cut(self) -> None:
        """Close every connection."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    def reset(self) -> None:
        """Close every connection with a TCP reset."""
        for writer in tuple(self._writers):
            with contextlib.suppress(OSError, AttributeError):
                end = writer.get_extra_info("socket")
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted.append(asyncio.get_running_loop().time())
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            if self.refuse:
                return
            there_reader, there = await asyncio.open_connection("127.0.0.1", self.target_port)
            self._writers.add(there)
            try:
                await asyncio.gather(
                    self._pass_on(reader, there, replies=False), self._pass_on(there_reader, writer, replies=True)
                )
            finally:
                self._writers.discard(there)
                there.transport.abort()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool) -> None:
        while data := await reader.read(65536):
            if self.delay_seconds:
                await asyncio.sleep(self.delay_seconds)
            if self.silent or (replies and self.swallow_replies):
                continue
            writer.write(data)
            await writer.drain()
        raise ConnectionError("one end closed")

    async def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def proxy(target_port: int) -> AsyncIterator[Proxy]:
    """A proxy on a free loopback port in front of `target_port`."""
    opened = Proxy(target_port)
    listening = await asyncio.start_server(opened.accept, "127.0.0.1", 0)
    opened.port = listening.sockets[0].getsockname()[1]
    try:
        yield opened
    finally:
        listening.close()
        await opened.close()
