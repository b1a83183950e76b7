"""How soon an idle fleet requests the first URL of a crawl that is submitted to the API."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from bench.figures import Figure
from bench.server import Server
from bench.size import Size
from shoal.client import Client

_WORKERS = 2
_READY_SECONDS = 60.0
_PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"


async def submit(size: Size) -> list[Figure]:
    """The time from sending the request to the first byte of its robots.txt at a new host."""
    count = 60 if size.quick else 200
    with Server(durable=True) as server, tempfile.TemporaryDirectory(prefix="bench-submit-") as folder:
        place = Path(folder)
        (place / "shoal.toml").write_text(f'[outputs]\nmain = "{place / "main.db"}"\n')
        async with _site(count) as (hosts, arrivals):
            flags = ("--allow-network", "127.0.0.0/8", "--store", server.url)
            with (
                _running(place, "worker", "--workers", _WORKERS, *flags),
                _running(place, "serve", "--port", 0, *flags),
            ):
                client = Client(await _address(place), timeout_seconds=30)
                while len(await asyncio.to_thread(client.workers)) < _WORKERS:  # noqa: ASYNC110 - it sends no signal
                    await asyncio.sleep(0.1)
                times = [await _once(client, host, arrivals) for host in hosts]
                await asyncio.to_thread(client.close)
    times.sort()
    how = f"{count} crawls, one after the other, {_WORKERS} idle workers, over HTTP, append-only store"
    return [
        Figure(name="submit to first request, median", unit="ms", values=[times[count // 2]], at_most=20, note=how),
        Figure(name="submit to first request, p99", unit="ms", values=[times[int(count * 0.99) - 1]], at_most=100),
    ]


async def _once(client: Client, host: str, arrivals: dict[str, asyncio.Future[float]]) -> float:
    arrivals[host] = asyncio.get_running_loop().create_future()
    # Let the workers become idle: they finish the one page of the previous crawl, and check the other shards, too.
    await asyncio.sleep(random.uniform(0.3, 0.4))
    began = time.monotonic()
    await asyncio.to_thread(client.submit, seeds=[f"http://{host}/"], outputs=["main"], delay_seconds=0)
    return (await asyncio.wait_for(arrivals[host], 30) - began) * 1000


@contextlib.asynccontextmanager
async def _site(count: int) -> AsyncIterator[tuple[list[str], dict[str, asyncio.Future[float]]]]:
    """Serve `count` hosts at addresses of this machine, and record the time of the first request to each."""
    arrivals: dict[str, asyncio.Future[float]] = {}

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        now = time.monotonic()
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            host = re.search(r"(?i)^host: (\S+)", head, re.M)
            if host and host[1] in arrivals and not arrivals[host[1]].done():
                arrivals[host[1]].set_result(now)
            writer.write(_PAGE)
            await writer.drain()
        writer.close()

    first = await asyncio.start_server(respond, "127.0.10.1", 0)
    port = first.sockets[0].getsockname()[1]
    names = [f"127.0.{10 + n // 200}.{n % 200 + 2}" for n in range(count)]
    servers = [first, *[await asyncio.start_server(respond, name, port) for name in names]]
    try:
        yield [f"{name}:{port}" for name in names], arrivals
    finally:
        for server in servers:
            server.close()


@contextlib.contextmanager
def _running(place: Path, command: str, *flags: object) -> Iterator[None]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
    with (place / f"{command}.err").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "shoal", command, *map(str, flags)], cwd=place, env=environ,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True,
        )  # fmt: skip
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _address(place: Path) -> str:
    until = time.monotonic() + _READY_SECONDS
    while time.monotonic() < until:
        if match := re.search(r"http://[0-9.]+:[0-9]+", (place / "serve.err").read_text()):
            return match[0]
        await asyncio.sleep(0.05)
    raise RuntimeError(f"The server does not start: {(place / 'serve.err').read_text()[-500:]}")
