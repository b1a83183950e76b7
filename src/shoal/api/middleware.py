"""The outermost layer of the API, the same for every route.

Owns the security headers of every response, the size and time limits of request bodies, the rate limit, the check of
Host and Origin, and the conversion of errors to problem details. Knows no route.
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
from shoal.api.problem_details import Problem, RequestRefused, problem_of, problem_response

BODY_SECONDS = 30.0
_BURST_SECONDS = 2.0
_MOST_BUCKETS = 10_000
# Key of the scope: the function that turns a problem into a response, if that is not problem+json.
RESPOND = "shoal.problem_response"
# No response of the API is a page with scripts, frames or foreign images.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class RateLimiter:
    """A token bucket per caller, refilled at `rate` per second. The caller passes the time."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._size = max(1.0, rate * _BURST_SECONDS)
        self._buckets: dict[str, tuple[float, float]] = {}

    def wait_seconds(self, caller: str, now: float) -> float:
        """Return 0 if the request is allowed, otherwise the time until the next request is."""
        left, then = self._buckets.get(caller, (self._size, now))
        left = min(self._size, left + (now - then) * self._rate)
        if len(self._buckets) >= _MOST_BUCKETS and caller not in self._buckets:
            self._buckets.clear()
        if left < 1.0:
            self._buckets[caller] = (left, now)
            return (1.0 - left) / self._rate
        self._buckets[caller] = (left - 1.0, now)
        return 0.0


class LimitsMiddleware:
    """ASGI middleware.

    With `local` (no tokens are configured), only requests to a loopback address are accepted. `on_problem` receives
    the scope, the problem, the exception, and the traceback of an internal error.
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
        started = False
        # With an app in the scope, the router raises its errors instead of responding.
        scope["app"] = self

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                own = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *((k.lower().encode(), v.encode()) for k, v in HEADERS.items() if k.lower().encode() not in own),
                ]
            await send(message)

        try:
            self._check_origin(Request(scope))
            await self._app(scope, receive, send_with_headers)
        except Exception as error:
            problem, headers = problem_of(error)
            # The traceback may contain values, so it goes to the log only.
            trace = "".join(traceback.format_exception(error)).rstrip() if problem.status == 500 else ""
            self._on_problem(scope, problem, error, trace)
            if started:
                raise
            respond = scope.get(RESPOND, problem_response)
            await respond(problem, headers)(scope, receive, send_with_headers)

    def _check_origin(self, request: Request) -> None:
        """Refuse requests that another site's page makes through a browser on this machine."""
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        try:
            name = urlsplit(f"//{host}").hostname or ""
            site = None if origin is None else urlsplit(origin).netloc
        except ValueError:
            raise RequestRefused(400, "The Host or Origin header is not valid.") from None
        if self._local and not is_loopback(name):
            raise RequestRefused(
                403, "Without tokens, the API accepts only requests to localhost or a loopback address."
            )
        if site is not None and site != host:
            raise RequestRefused(403, "Cross-origin requests are not allowed.")


async def read_body(request: Request, max_bytes: int, media: str = "application/json") -> bytes:
    """The body of a request, limited in size and time."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != media:
        raise RequestRefused(415, f"Send the body with Content-Type: {media}.")
    length = request.headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and (len(length) > 18 or int(length) > max_bytes):
        raise RequestRefused(413, f"The body has {length[:18]} bytes; the limit is {max_bytes:,}.")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > max_bytes:
                    raise RequestRefused(413, f"The body has more than {max_bytes:,} bytes.")
                parts.append(part)
    except TimeoutError:
        raise RequestRefused(408, f"The body was not received within {BODY_SECONDS:g} seconds.") from None
    return b"".join(parts)


def now() -> float:
    return time.monotonic()
