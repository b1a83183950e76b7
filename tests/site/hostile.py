"""A web server that sends exactly the bytes that a test gives it, whether that is HTTP or not.

It runs in the test's own loop on a loopback port and keeps what it saw: connections and request
heads. An answer is raw bytes, after which the connection is closed, or a coroutine that talks as it likes.
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


class Talk:
    """One connection, from the server's side."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Send a RST instead of a FIN."""
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def until_closed(self) -> None:
        """Wait, saying nothing, until the other side hangs up."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


Answer = bytes | Callable[[Talk], Awaitable[None]]


def ok(body: bytes = b"", *lines: str, status: str = "200 OK") -> bytes:
    """A whole answer with its length and these further header lines."""
    head = "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *lines))
    return head.encode("latin-1") + b"\r\n" + body


def keep(data: bytes) -> Answer:
    """Say this and leave the connection open for the next request."""

    async def answer(talk: Talk) -> None:
        await talk.say(data)

    return answer


def silent() -> Answer:
    return Talk.until_closed


def drip(data: bytes, *, seconds: float, first: bytes = b"") -> Answer:
    """`first` at once, then one byte of `data` every few seconds."""

    async def answer(talk: Talk) -> None:
        await talk.say(first)
        for byte in data:
            await talk.say(bytes((byte,)))
            await asyncio.sleep(seconds)

    return answer


def endless(first: bytes, again: bytes) -> Answer:
    """`first`, then `again` until nobody listens."""

    async def answer(talk: Talk) -> None:
        await talk.say(first)
        while True:
            await talk.say(again)

    return answer


def resetting(first: bytes = b"") -> Answer:
    async def answer(talk: Talk) -> None:
        await talk.say(first)
        talk.reset()

    return answer


class Hostile:
    """`async with Hostile({"/path": answer}) as site:` and then `site.url("/path")`.

    A path that is not named gets the answer of "*". A callable that returns with the connection open serves the next
    request on it. A greeting is sent before any request, and instead of listening.
    """

    def __init__(
        self,
        replies: Mapping[str, Answer],
        *,
        tls: ssl.SSLContext | None = None,
        address: str = "127.0.0.1",
        port: int = 0,
        greeting: Callable[[Talk], Awaitable[None]] | None = None,
    ) -> None:
        self.answers = dict(replies)
        self.address = address
        self.port = port
        self.connections = 0
        self.open = 0
        self.requests: list[bytes] = []
        self.asked = asyncio.Event()
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
        """The value of one header as it was sent, '' when it was not."""
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
            # A cancellation comes from __aexit__ alone, and streams complain of one that leaves here.
            with contextlib.suppress(
                ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, asyncio.CancelledError
            ):
                await self._serve(Talk(reader, writer))
        finally:
            writer.close()
            # Only now is the other side told.
            with contextlib.suppress(ConnectionError, ssl.SSLError, TimeoutError, asyncio.CancelledError):
                await writer.wait_closed()
            self._tasks.discard(task)
            self.open -= 1
            self._closed.set()

    async def _serve(self, talk: Talk) -> None:
        if self._greeting is not None:
            await self._greeting(talk)
            return
        while True:
            head = await talk.reader.readuntil(b"\r\n\r\n")
            self.requests.append(head)
            self.asked.set()
            path = head.split(b" ", 2)[1].decode("latin-1")
            answer = self.answers.get(path, self.answers.get("*", ok(b"", status="404 Not Found")))
            if isinstance(answer, bytes):
                await talk.say(answer)
                return
            await answer(talk)
            if talk.writer.is_closing():
                return
