"""A site whose pages change at known times, served by a separate process.

    with changing(folder, [[[3.0, 7.5], []]]) as site:      # one host, whose first page changes twice
        ... crawl site.url(0, 0) ...
        for served in site.log():
            ...

The version of a page is how many of its changes have passed. The log says which version each response had: it is the
judge of what a crawler could know. Moments are seconds since the site was started.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import NamedTuple

from tests.site.site import ROOT, _listening

# Moments of change of each page of each host.
Changes = Sequence[Sequence[Sequence[float]]]


class Served(NamedTuple):
    """One response. `wire` is the number of bytes of its request and of itself, headers included."""

    moment: float
    host: int
    page: int
    version: int
    status: int
    wire: int


@dataclass
class ChangingSite:
    folder: Path
    port: int
    began_mono: float

    def url(self, host: int, page: int) -> str:
        return f"http://127.0.2.{host + 1}:{self.port}/p{page}"

    @property
    def now(self) -> float:
        return time.monotonic() - self.began_mono

    def log(self) -> list[Served]:
        path = self.folder / "served"
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return [Served(float(moment), *map(int, rest)) for moment, *rest in (line.split() for line in lines)]


@contextlib.contextmanager
def changing(folder: Path, changes: Changes) -> Iterator[ChangingSite]:
    folder.mkdir(parents=True, exist_ok=True)
    sockets = _listening([f"127.0.2.{number + 1}" for number in range(len(changes))], 0)
    began_mono = time.monotonic()
    (folder / "changes").write_text(json.dumps({"began_mono": began_mono, "changes": changes}))
    numbers = [listening.fileno() for listening in sockets]
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.site.changing_site", str(folder), *map(str, numbers)], pass_fds=numbers, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}, start_new_session=True,
    )  # fmt: skip
    port = sockets[0].getsockname()[1]
    for listening in sockets:
        listening.close()
    try:
        yield ChangingSite(folder, port, began_mono)
    finally:
        process.kill()
        process.wait()


class _Connection(asyncio.Protocol):
    def __init__(self, host: int, pages: Sequence[Sequence[float]], began_mono: float, log: int) -> None:
        self._host, self._pages, self._began_mono, self._log = host, pages, began_mono, log
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            request, self._data = self._data[: end + 4], self._data[end + 4 :]
            self._respond(request)

    def _respond(self, request: bytes) -> None:
        path = request.split(b" ", 2)[1].decode()
        page = int(path[2:]) if path[:2] == "/p" and path[2:].isdigit() else -1
        if not 0 <= page < len(self._pages):
            self._transport.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return
        moment = time.monotonic() - self._began_mono
        version = bisect_right(self._pages[page], moment)
        tag = f'"{self._host}-{page}-{version}"'
        headers = f"Date: {formatdate(usegmt=True)}\r\nETag: {tag}\r\nCache-Control: max-age=0\r\n"
        if f"if-none-match: {tag}\r\n".encode() in request.lower():
            status, response = 304, f"HTTP/1.1 304 Not Modified\r\n{headers}\r\n".encode()
        else:
            body = f"<title>Version {version}</title><p>Page {page} in version {version}."
            head = f"HTTP/1.1 200 OK\r\n{headers}Content-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n"
            status, response = 200, (head + body).encode()
        wire = len(request) + len(response)
        os.write(self._log, f"{moment:.6f} {self._host} {page} {version} {status} {wire}\n".encode())
        self._transport.write(response)


async def _serve(folder: Path, numbers: list[int]) -> None:
    import socket

    config = json.loads((folder / "changes").read_text())
    log = os.open(folder / "served", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    loop = asyncio.get_running_loop()
    for host, number in enumerate(numbers):
        pages, listening = config["changes"][host], socket.socket(fileno=number)
        await loop.create_server(
            lambda host=host, pages=pages: _Connection(host, pages, config["began_mono"], log),  # type: ignore[misc]
            sock=listening,
        )
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), [int(number) for number in sys.argv[2:]]))
