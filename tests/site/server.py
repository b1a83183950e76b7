"""A web server in its own process with configured responses and a log of every request: HTTP/1.1, raw, keep-alive.

It is started with listening sockets (tests/site/site.py) and reads orders from stdin, one JSON list per line. It
confirms each with a line on stdout, and exits at the end of stdin. For many small responses it uses asyncio's own event
loop: its `write` passes bytes to the kernel at once, so the log has the time at which a response ends (uvloop would
send later).
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from pathlib import Path

import msgspec

from tests.site.log import NOTED, Began, Ended, Writer
from tests.site.responses import HTML, Open, Order, Plant, Response, Responses, Shut
from tests.site.tree import Tree

_REASONS = {200: "OK", 301: "Moved Permanently", 302: "Found", 304: "Not Modified", 404: "Not Found", 503: "Busy"}
_MISSING = Response(status=404, body="There is nothing here.", type="text/plain")
_MOST_BYTES = 1_000_000
_FILLER = b"All work and no play makes Jack a dull boy.\n" * 1500
_STEPS = 20


def _head(status: int, headers: list[tuple[str, str]]) -> bytes:
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Unnamed')}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "surrogateescape")


def _now_us() -> int:
    return time.monotonic_ns() // 1000


class _Ready:
    """A response as bytes."""

    def __init__(self, response: Response) -> None:
        self.response = response
        body = response.body.encode("utf-8", "surrogateescape")
        missing = response.size - len(body)
        self.body = body + (_FILLER * (missing // len(_FILLER) + 1))[:missing] if missing > 0 else body
        validators = [("ETag", response.etag), ("Last-Modified", response.modified)]
        headers = [*response.headers, *((name, value) for name, value in validators if value)]
        length = [] if response.fault == "endless" else [("Content-Length", str(len(self.body)))]
        closing = [("Connection", "close")] if response.fault == "endless" else []
        kind = [("Content-Type", response.type)] if response.type else []
        self.head = _head(response.status, [*kind, *headers, *length, *closing])
        self.unchanged = _head(304, headers)
        self.simple = not (response.after or response.lasting or response.cut >= 0 or response.fault)

    def confirmed(self, headers: dict[str, str]) -> bool:
        """Whether the client has it already (RFC 9110 13.1: an ETag takes precedence over a date)."""
        tag, date = headers.get("if-none-match"), headers.get("if-modified-since")
        if tag is not None:
            return bool(self.response.etag) and tag == self.response.etag
        return bool(self.response.modified) and date == self.response.modified


class Served:
    """All that the site has, and its open connections."""

    def __init__(self, log: Writer) -> None:
        self.log = log
        self.numbers = 0
        self.connections: dict[_Connection, str] = {}
        self._listening: dict[str, asyncio.Server] = {}
        self._rules: dict[tuple[str, str], list[_Ready]] = {}
        self._trees: dict[str, list[Tree]] = {}
        self._missing = _Ready(_MISSING)

    async def listen(self, listening: socket.socket) -> None:
        address, port = listening.getsockname()[:2]
        loop = asyncio.get_running_loop()
        self._listening[f"{address}:{port}"] = await loop.create_server(lambda: _Connection(self), sock=listening)

    async def obey(self, order: Order) -> None:
        match order:
            case Responses(host, path, responses):
                self._rules[host, path] = [_Ready(response) for response in responses]
            case Plant(tree):
                for host in tree.hosts:
                    self._trees.setdefault(host, []).append(tree)
            case Shut(address):
                self._listening.pop(address).close()
                for connection in [other for other, where in self.connections.items() if where == address]:
                    connection.transport.abort()
            case Open(address):
                name, _, port = address.rpartition(":")
                await self.listen(socket.create_server((name, int(port)), backlog=1024))

    def find(self, host: str, path: str) -> _Ready | bytes:
        rule = self._rules.get((host, path))
        if rule is None:
            for tree in self._trees.get(host, ()):
                body = tree.body(host, path)
                if body is not None:
                    return body
            rule = self._rules.get((host, "*"))
            if rule is None or path == "/robots.txt":
                return self._missing
        return rule.pop(0) if len(rule) > 1 else rule[0]


class _Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, served: Served) -> None:
        self._served = served
        self._data = b""
        self._began_us = 0
        self._number = 0
        self._status = self._sent = 0
        self._after_sending: str = ""
        self._work: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        # Paused while the kernel does not take all of it: resume_writing then is the end of a response.
        transport.set_write_buffer_limits(0)
        name = transport.get_extra_info("sockname")
        self._address = f"{name[0]}:{name[1]}"
        self._served.connections[self] = self._address

    def connection_lost(self, error: Exception | None) -> None:
        del self._served.connections[self]
        if self._work is not None:
            self._work.cancel()
        if self._number:
            self._note(self._after_sending if self._after_sending in ("close", "reset") else "gone", _now_us())

    def data_received(self, data: bytes) -> None:
        if not self._data and not self._number:
            self._began_us = _now_us()
        self._data += data
        if not self._number:
            self._next()

    def _next(self) -> None:
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            # Data that is not HTTP, such as a TLS handshake, is not a request.
            if self._data[:1] < b"A" or len(self._data) > _MOST_BYTES:
                self.transport.close()
            return
        first, *lines = self._data[:end].decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        end += 4 + int(headers.get("content-length", 0))
        if len(self._data) < end:
            return
        self._data = self._data[end:]
        method, path, *_ = [*first.split(" "), ""]
        host = headers.get("host", "").lower()
        self._served.numbers += 1
        self._number = self._served.numbers
        noted = {name: value for name, value in headers.items() if name in NOTED or name.startswith("x-")}
        self._served.log.write(Began(self._number, self._began_us, host, self._address, method, path, noted))
        content = self._served.find(host, path)
        if isinstance(content, bytes):
            self._respond(200, _head(200, [("Content-Type", HTML), ("Content-Length", str(len(content)))]), content)
        elif content.simple:
            self._whole(content, headers)
        else:
            self._work = asyncio.ensure_future(self._slowly(content, headers))

    def _whole(self, ready: _Ready, headers: dict[str, str]) -> None:
        if ready.confirmed(headers):
            self._respond(304, ready.unchanged, b"")
        else:
            self._respond(ready.response.status, ready.head, ready.body)

    def _respond(self, status: int, head: bytes, body: bytes) -> None:
        self._status, self._sent = status, len(body)
        self._last(head + body, "done")

    async def _slowly(self, ready: _Ready, headers: dict[str, str]) -> None:
        response = ready.response
        await asyncio.sleep(response.after)
        if response.fault in ("close", "reset"):
            self._after_sending = response.fault
            if response.fault == "reset":
                # With this option closing sends a reset instead of a farewell.
                lingering = b"\1\0\0\0\0\0\0\0"
                self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, lingering)
            self.transport.abort()
        elif response.fault == "endless":
            self._status = response.status
            self.transport.write(ready.head + ready.body)
            while True:
                self.transport.write(_FILLER)
                self._sent += len(_FILLER)
                while self.transport.get_write_buffer_size():  # noqa: ASYNC110 (waits for a client that does not read)
                    await asyncio.sleep(0.001)
                await asyncio.sleep(0)
        elif response.fault != "silent":
            body = ready.body if response.cut < 0 else ready.body[: response.cut]
            if response.lasting:
                await self._drop_by_drop(ready, body)
            elif response.cut < 0:
                self._whole(ready, headers)
            else:
                self._status, self._sent = response.status, len(body)
                self._last(ready.head + body, "cut")

    async def _drop_by_drop(self, ready: _Ready, body: bytes) -> None:
        self._status = ready.response.status
        self.transport.write(ready.head)
        drop = len(body) // _STEPS + 1
        drops = [body[start : start + drop] for start in range(0, len(body), drop)] or [b""]
        for number, part in enumerate(drops, 1):
            await asyncio.sleep(ready.response.lasting / len(drops))
            self._sent += len(part)
            if number < len(drops):
                self.transport.write(part)
            else:
                self._last(part, "done" if ready.response.cut < 0 else "cut")

    def _last(self, data: bytes, how: str) -> None:
        """Send the last bytes of a response, and log the time before that.

        A client cannot have them sooner; and if this process is stopped after the call, the gap to the next request
        does not seem shorter than it was.
        """
        now = _now_us()
        self._after_sending = how
        self.transport.write(data)
        if not self.transport.get_write_buffer_size():
            self._over(now)

    def resume_writing(self) -> None:
        if self._after_sending:
            self._over(_now_us())

    def _over(self, now_us: int) -> None:
        how = self._after_sending
        self._note(how, now_us)
        if how == "cut":
            self.transport.close()
        elif self._data:
            self._began_us = _now_us()
            self._next()

    def _note(self, how: str, now_us: int) -> None:
        self._served.log.write(Ended(self._number, now_us, self._status, self._sent, how))
        self._number = self._status = self._sent = 0
        self._after_sending = ""
        self._work = None


async def serve(log: Path, sockets: list[socket.socket]) -> None:
    served = Served(Writer(log))
    for listening in sockets:
        await served.listen(listening)
    orders = asyncio.StreamReader(limit=1 << 26)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    decode = msgspec.json.Decoder(list[Order]).decode
    print("ready", flush=True)
    while line := await orders.readline():
        for order in decode(line):
            await served.obey(order)
        print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), [socket.socket(fileno=int(number)) for number in sys.argv[2:]]))
