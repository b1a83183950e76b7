"""What holds for every request before anybody looks at what it asks: who, how much, how often, and from where.

Owns the outermost layer: security headers on every answer, the size and time of bodies, the rate of each caller, the
refusal of other sites' pages, and errors as problems. Knows no route.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shoal.api.auth import is_loopback
from shoal.api.problem_details import Problem, RequestRefused, answer, problem

BODY_SECONDS = 30.0
_BURST_SECONDS = 2.0
_MOST_BUCKETS = 10_000
# Nothing that comes from here is a page with scripts, frames or pictures of others.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Rates:
    """A bucket for each caller, filled again at `rate` a second. Time is passed in."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._most = max(1.0, rate * _BURST_SECONDS)
        self._buckets: dict[str, tuple[float, float]] = {}

    def wait_seconds(self, caller: str, now: float) -> float:
        """0 when the request may go on, else when the next one may."""
        left, then = self._buckets.get(caller, (self._most, now))
        left = min(self._most, left + (now - then) * self._rate)
        if len(self._buckets) >= _MOST_BUCKETS and caller not in self._buckets:
            self._buckets.clear()
        if left < 1.0:
            self._buckets[caller] = (left, now)
            return (1.0 - left) / self._rate
        self._buckets[caller] = (left - 1.0, now)
        return 0.0


class LimitsMiddleware:
    """ASGI middleware. `local`: there are no tokens, so only this machine is answered.

    `on_problem` gets what was refused or failed, the error, and for a defect its trace.
    """

    def __init__(
        self, app: ASGIApp, *, local: bool, on_problem: Callable[[Scope, Problem, BaseException, str], None]
    ) -> None:
        self._app = app
        self._local = local
        self._on_problem = on_problem

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False
        # With an application in it, the router raises what it refuses instead of answering by itself.
        scope["app"] = self

        async def guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                own = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *((k.lower().encode(), v.encode()) for k, v in HEADERS.items() if k.lower().encode() not in own),
                ]
            await send(message)

        try:
            self._check_origin(Request(scope))
            await self._app(scope, receive, guarded)
        except Exception as error:
            told, headers = problem(error)
            # The trace goes to the log alone: what it says of values is nobody's business.
            trace = "".join(traceback.format_exception(error)).rstrip() if told.status == 500 else ""
            self._on_problem(scope, told, error, trace)
            if begun:
                raise
            await answer(told, headers)(scope, receive, guarded)

    def _check_origin(self, request: Request) -> None:
        """Pages of other sites may not use a browser on this machine as their arm."""
        host = request.headers.get("host", "")
        name = urlsplit(f"//{host}").hostname or ""
        if self._local and not is_loopback(name):
            raise RequestRefused(
                403, "Without tokens only this machine is answered, by the name localhost or its address."
            )
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            raise RequestRefused(403, "The request comes from a page of another site.")


async def read_body(request: Request, most: int) -> bytes:
    """The body, as JSON is sent: bounded in size and time."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestRefused(415, "Send the body with Content-Type: application/json.")
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > most:
        raise RequestRefused(413, f"The body has {int(length):,} bytes; it may have {most:,}.")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise RequestRefused(413, f"The body has more than {most:,} bytes.")
                parts.append(part)
    except TimeoutError:
        raise RequestRefused(408, f"The body did not come within {BODY_SECONDS:g} seconds.") from None
    return b"".join(parts)


def now() -> float:
    return time.monotonic()
