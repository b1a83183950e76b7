"""Connections to the API server: how many there may be, and how long one may keep the server waiting.

A connection is waiting while the server has not received the whole head of its next request. Waiting connections are
closed after HEAD_SECONDS, or earlier if new connections need the room, the longest-waiting one first. So silent clients
cannot lock out others. Connections above the limits are answered only if they request a health check.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from shoal.api.problem_details import RequestRefused, problem_of, problem_response
from shoal.fetch.open_files import connection_limit

HEAD_SECONDS = 15.0
# A client that reads nothing of a response for this long is disconnected.
WRITE_SECONDS = 60.0
MAX_CONNECTIONS = 1000
_HEALTH_CONNECTIONS = 50
_HEALTH_PATHS = ("/healthz", "/readyz")


class ConnectionLimits:
    """The connections of one server."""

    def __init__(self, per_address: int) -> None:
        self._per_address = per_address
        self._most = connection_limit(MAX_CONNECTIONS)
        self._by_address: Counter[str] = Counter()
        # In the order in which they began to wait.
        self._waiting: dict[_LimitedProtocol, None] = {}

    def protocol(self) -> type[H11Protocol]:
        """The protocol class for uvicorn."""
        return type("LimitedProtocol", (_LimitedProtocol,), {"limits": self})

    def add(self, connection: _LimitedProtocol) -> bool:
        """Make room for a connection. Returns False if it cannot: every other connection has a request open."""
        address = connection.address
        room = True
        if self._by_address[address] >= self._per_address:
            room = self._close_oldest(address)
        elif self._by_address.total() >= self._most:
            room = self._close_oldest("")
        self._by_address[address] += 1
        return room

    def remove(self, connection: _LimitedProtocol) -> None:
        self._waiting.pop(connection, None)
        self._by_address[connection.address] -= 1
        if not self._by_address[connection.address]:
            del self._by_address[connection.address]

    def overflows(self) -> bool:
        """Whether there are more connections than even health checks may have."""
        return self._by_address.total() > self._most + _HEALTH_CONNECTIONS

    def set_waiting(self, connection: _LimitedProtocol, waiting: bool) -> None:
        self._waiting.pop(connection, None)
        if waiting:
            self._waiting[connection] = None

    def _close_oldest(self, address: str) -> bool:
        for connection in self._waiting:
            if address in ("", connection.address):
                del self._waiting[connection]
                connection.transport.abort()
                return True
        return False


class _LimitedProtocol(H11Protocol):
    limits: ConnectionLimits
    address = ""
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if not self.limits.add(self):
            if self.limits.overflows():
                transport.abort()
                return
            self.app = _HealthOnly(self.app)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self.limits.remove(self)
        self._stop_timers()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and not self.cycle.response_complete:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        # Before uvicorn handles a pipelined request, which ends the wait again.
        if not self.transport.is_closing():
            self._wait_for_head()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self.flow.pause_writing()
        self._write_timer = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self.flow.resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()

    def _wait_for_head(self) -> None:
        """Start to wait for the whole head of a request, however slowly its bytes arrive."""
        self._stop_waiting()
        self.limits.set_waiting(self, True)
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        self.limits.set_waiting(self, False)
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        if self.conn.our_state is h11.IDLE and self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            response = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            self.transport.write(response)
        self.transport.close()

    def _stop_timers(self) -> None:
        self._stop_waiting()
        if self._write_timer is not None:
            self._write_timer.cancel()


class _HealthOnly:
    """An application that refuses everything but health checks."""

    def __init__(self, app: Any) -> None:
        self._app: ASGIApp = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in _HEALTH_PATHS:
            problem, headers = problem_of(RequestRefused(503, "Too many open connections; retry later."))
            await problem_response(problem, headers)(scope, receive, send)
            return
        await self._app(scope, receive, send)
