"""A web server that sends exactly the bytes that a test gives it, whether that is HTTP or not.

It runs in the event loop of the test on a loopback port, counts connections and records the heads of requests.
A reply is raw bytes, after which the connection is closed, or a coroutine that uses the connection as it likes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self

from tests.servers import WAIT_SECONDS


class Connection:
    """One connection, from the server's side."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Send a RST instead of a FIN."""
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def until_closed(self) -> None:
        """Wait until the client closes the connection. Nothing is sent."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


Reply = bytes | Callable[[Connection], Awaitable[None]]


def ok(body: bytes = b"", *lines: str, status: str = "200 OK") -> bytes:
    """A complete response with its length and these further header lines."""
    head = "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *lines))
    return head.encode("latin-1") + b"\r\n" + body


def keep(data: bytes) -> Reply:
    """Send this and leave the connection open for the next request."""

    async def reply(connection: Connection) -> None:
        await connection.send(data)

    return reply


def silent() -> Reply:
    return Connection.until_closed


def drip(data: bytes, *, seconds: float, first: bytes = b"") -> Reply:
    """`first` at once, then one byte of `data` every few seconds."""

    async def reply(connection: Connection) -> None:
        await connection.send(first)
        for byte in data:
            await connection.send(bytes((byte,)))
            await asyncio.sleep(seconds)

    return reply


def endless(first: bytes, again: bytes) -> Reply:
    """`first`, then `again` until the client closes the connection."""

    async def reply(connection: Connection) -> None:
        await connection.send(first)
        while True:
            await connection.send(again)

    return reply


def resetting(first: bytes = b"") -> Reply:
    async def reply(connection: Connection) -> None:
        await connection.send(first)
        connection.reset()

    return reply


class Hostile:
    """`async with Hostile({"/path": reply}) as site:` and then `site.url("/path")`.

    A path that is not named gets the reply of "*". A callable that returns with the connection open serves the next
    request on it. A greeting is sent before any request, and no request is read.
    """

    def __init__(
        self,
        replies: Mapping[str, Reply],
        *,
        tls: ssl.SSLContext | None = None,
        address: str = "127.0.0.1",
        port: int = 0,
        greeting: Callable[[Connection], Awaitable[None]] | None = None,
    ) -> None:
        self.replies = dict(replies)
        self.address = address
        self.port = port
        self.connections = 0
        self.open = 0
        self.requests: list[bytes] = []
        self.requested = asyncio.Event()
        self._tls = tls
        self._greeting = greeting
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = asyncio.Event()

    def url(self, path: str = "/", host: str = "") -> str:
        shown = host or (f"[{self.address}]" if ":" in self.address else self.address)
        return f"http{'s' if self._tls else ''}://{shown}:{self.port}{path}"

    async def hung_up(self, left: int = 0) -> None:
        """Wait until at most so many connections are open."""
        async with asyncio.timeout(WAIT_SECONDS):
            while self.open > left:
                self._closed.clear()
                await self._closed.wait()

    def header(self, name: str, request: int = -1) -> str:
        """The value of one header as it was sent, '' if it was not sent."""
        for line in self.requests[request].decode("latin-1").split("\r\n")[1:]:
            key, _, value = line.partition(":")
            if key.lower() == name:
                return value.strip()
        return ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._meet, self.address, self.port, ssl=self._tls, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        try:
            # Only __aexit__ cancels this task, and asyncio logs an error if a cancellation leaves this function.
            with contextlib.suppress(
                ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, asyncio.CancelledError
            ):
                await self._serve(Connection(reader, writer))
        finally:
            writer.close()
            # Only this closes the connection for the client.
            with contextlib.suppress(ConnectionError, ssl.SSLError, TimeoutError, asyncio.CancelledError):
                await writer.wait_closed()
            self._tasks.discard(task)
            self.open -= 1
            self._closed.set()

    async def _serve(self, connection: Connection) -> None:
        if self._greeting is not None:
            await self._greeting(connection)
            return
        while True:
            head = await connection.reader.readuntil(b"\r\n\r\n")
            self.requests.append(head)
            self.requested.set()
            path = head.split(b" ", 2)[1].decode("latin-1")
            reply = self.replies.get(path, self.replies.get("*", ok(b"", status="404 Not Found")))
            if isinstance(reply, bytes):
                await connection.send(reply)
                return
            await reply(connection)
            if connection.writer.is_closing():
                return
