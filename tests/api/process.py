"""Runs `shoal serve` as a separate process, and sends requests to it.

with serve_api(folder, store="--folder", place) as api:
    api.client.submit(seeds=[...])
    assert api.ask("GET", "/v1/crawls").status == 200
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shoal.client import Client
from tests.forking import start
from tests.servers import WAIT_SECONDS, wait_until

ROOT = Path(__file__).resolve().parents[2]
MODULE = ("-m", "shoal")
for package in ("starlette", "uvicorn", "prometheus_client"):
    if os.environ.get("CI") != "true":
        pytest.importorskip(package, reason=f"{package} is not installed; run: pip install 'shoal[api]'")


@dataclass
class ApiResponse:
    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.raw)


@dataclass
class ApiProcess:
    process: subprocess.Popen[bytes]
    errors: Path
    host: str
    port: int
    token: str = ""
    clients: list[Client] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def client(self) -> Client:
        self.clients.append(Client(self.url, token=self.token, timeout_seconds=60))
        return self.clients[-1]

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> ApiResponse:
        """Send one request without the client. A body of bytes is sent unchanged."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=WAIT_SECONDS)
        try:
            if self.token:
                headers = {"Authorization": f"Bearer {self.token}", **headers}
            if body is not None and not isinstance(body, bytes):
                body, headers = json.dumps(body).encode(), {"Content-Type": "application/json", **headers}
            named = {name.replace("_", "-"): value for name, value in headers.items() if value}
            connection.request(method, path, body, named)
            response = connection.getresponse()
            return ApiResponse(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def output(self) -> str:
        return self.errors.read_text()

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextlib.contextmanager
def serve_api(
    folder: Path, *flags: object, settings: str = "", token: str = "", program: Sequence[str] = MODULE
) -> Iterator[ApiProcess]:
    """A server in a folder of its own, with this shoal.toml. It must exit with code 0 and without an internal error.

    `program` are the arguments of Python for the command `shoal`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shoal.toml").write_text(settings)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
    errors = folder / "serve.err"
    with errors.open("wb") as err:
        process = start(
            sys.executable, *program, "serve", "--port", "0", "--allow-network", "127.0.0.0/8", *map(str, flags),
            cwd=folder, environ=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err,
        )  # fmt: skip
    try:

        def address() -> re.Match[str] | None:
            assert process.poll() is None, errors.read_text()
            return re.search(r"http://([0-9.]+):([0-9]+)", errors.read_text())

        match = wait_until(address, "the server prints its address")
        api = ApiProcess(process, errors, match[1], int(match[2]), token)
        yield api
        for client in api.clients:
            client.close()
        if process.poll() is None:
            assert api.end() == 0, api.output()
        assert "Defect" not in api.output()
        assert "Traceback" not in api.output()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
