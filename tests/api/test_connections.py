"""Slow and silent clients: they lose their own connections, and other clients are not affected."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from shoal.api import connections
from shoal.api.connections import ConnectionLimits
from tests.api.process import ApiProcess, serve_api

HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    with serve_api(tmp_path_factory.mktemp("silent"), settings="[api]\nrate = 10000\n") as api:
        yield api


def connect(api: ApiProcess, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection((api.host, api.port), timeout=30, source_address=(source, 0))


def test_a_flood_of_idle_connections_does_not_lock_out_other_clients(api: ApiProcess) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(1300):
            # Half of them have begun a request.
            silent = stack.enter_context(connect(api, f"127.0.{number // 100}.1"))
            if number % 2:
                with contextlib.suppress(OSError):
                    silent.sendall(HEAD)
        for path in ("/healthz", "/readyz", "/v1/crawls"):
            assert api.ask("GET", path).status == 200, path


def test_an_address_with_too_many_connections_loses_its_own_connections(api: ApiProcess) -> None:
    with contextlib.ExitStack() as stack:
        others = [stack.enter_context(connect(api, "127.7.0.1")) for _ in range(3)]
        own = [stack.enter_context(connect(api, "127.8.0.1")) for _ in range(250)]
        for connection in (own[-1], *others):
            connection.sendall(HEAD + b"\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        with contextlib.suppress(OSError):
            assert own[0].recv(1) == b"", "the oldest silent connection of the address is closed"


class _App:
    """Delays its response until it is released."""

    def __init__(self) -> None:
        self.respond = asyncio.Event()
        self.started = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/healthz":
            self.started.set()
            await self.respond.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


@contextlib.asynccontextmanager
async def serving(app: _App, limits: ConnectionLimits) -> AsyncIterator[int]:
    import uvicorn

    config = uvicorn.Config(app, lifespan="off", log_config=None, http=limits.protocol(), port=0)
    config.load()
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    try:
        yield listener.getsockname()[1]
    finally:
        app.respond.set()
        server.should_exit = True
        await task


async def test_a_request_head_that_is_not_complete_in_time_closes_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    async with serving(_App(), ConnectionLimits(10)) as port:
        for sent in (b"", HEAD, HEAD + b"\r\n" + HEAD, HEAD + b"Content-Length: 9\r\n\r\n1"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)

            async def drip(writer: asyncio.StreamWriter = writer, sent: bytes = sent) -> None:
                while sent.startswith(b"GET") and b"\r\n\r\n" not in sent:
                    writer.write(b"X-Drip: 1\r\n")
                    await asyncio.sleep(0.1)

            dripping = asyncio.create_task(drip())
            async with asyncio.timeout(30):
                with contextlib.suppress(ConnectionError):
                    await reader.read()
            dripping.cancel()
            writer.close()


async def test_connections_above_the_limit_get_health_checks_only() -> None:
    app = _App()
    async with serving(app, ConnectionLimits(2)) as port:
        busy = []
        for _ in range(2):
            app.started.clear()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /work HTTP/1.1\r\nHost: h\r\n\r\n")
            await app.started.wait()
            busy.append((reader, writer))
        statuses = []
        for path in ("/healthz", "/work"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
            statuses.append((await reader.read()).split(b" ")[1])
            writer.close()
        assert statuses == [b"200", b"503"]
        app.respond.set()
        for reader, writer in busy:
            assert (await reader.readline()).startswith(b"HTTP/1.1 200"), "requests under way are answered"
            writer.close()
