"""Whether the worker processes of one machine make progress, as a value and over HTTP.

A worker publishes a report twice a second from its event loop, also while it waits for politeness, for an output or for
the store. A worker without reports is stuck: it is frozen, or a page keeps it busy beyond `worker.parse_seconds`. An
unavailable store does not make workers unhealthy: a restart would not help.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator

from shoal.errors import SettingsError
from shoal.fleet.supervisor import Supervisor
from shoal.settings import Settings

# A page may keep the event loop busy for `worker.parse_seconds` of CPU time, and other processes use the CPU, too.
_PARSE_TIMES = 2.0
_LEAST_SECONDS = 5.0
# Before the first report a worker opens the store and loads its spiders.
_START_SECONDS = 60.0
_REQUEST_SECONDS, _MOST_BYTES = 5.0, 4096


class FleetHealth:
    """The health of the workers of one supervisor."""

    def __init__(self, supervisor: Supervisor, settings: Settings) -> None:
        self._supervisor = supervisor
        self._silent_seconds = max(_LEAST_SECONDS, _PARSE_TIMES * settings.worker.parse_seconds)
        self._start_seconds = settings.store.timeout_seconds + _START_SECONDS

    @property
    def problem(self) -> str:
        """What is wrong, in one sentence; '' if all workers make progress."""
        stuck = self._supervisor.silent(self._silent_seconds, self._start_seconds)
        return f"No report from {', '.join(sorted(stuck))} for {self._silent_seconds:g} s." if stuck else ""

    @property
    def ready(self) -> bool:
        """Whether a worker has started its work."""
        return bool(self._supervisor.reports)

    def answer(self, path: str) -> tuple[int, dict[str, object]]:
        """The status and the body for a path of the HTTP endpoint."""
        if path == "/healthz":
            problem = self.problem
            return (503, {"alive": False, "problem": problem}) if problem else (200, {"alive": True})
        if path == "/readyz":
            return (200 if self.ready else 503), {"ready": self.ready}
        return 404, {"problem": "Not found; use /healthz or /readyz."}


@contextlib.asynccontextmanager
async def serve_health(health: FleetHealth, address: str) -> AsyncIterator[None]:
    """Answer GET /healthz and /readyz at [ADDRESS:]PORT. Without ADDRESS, only for this machine; '' is off."""
    if not address:
        yield
        return
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_REQUEST_SECONDS):
                line = await reader.readuntil(b"\n")
                # Some clients treat a response before the end of their request as an error.
                while (await reader.readuntil(b"\n")).strip():
                    pass
                parts = line.decode("latin-1").split()
                status, body = health.answer(parts[1].partition("?")[0] if len(parts) > 1 else "")
                content = json.dumps(body).encode() + b"\n"
                head = f"HTTP/1.1 {status} {'OK' if status == 200 else 'Not OK'}\r\nContent-Type: application/json\r\n"
                head += f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
                writer.write(head.encode() + content)
                await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(respond, host, int(port), limit=_MOST_BYTES)
    except OSError as error:
        # asyncio puts its own words into strerror.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise SettingsError(f"Cannot answer health checks at {address}: {reason}.") from None
    try:
        yield
    finally:
        server.close()
