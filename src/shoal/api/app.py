"""The ASGI application: every route behind its role and the limits, every change in the audit log."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Path
from starlette.routing import Router
from starlette.types import ASGIApp

from shoal.api import openapi
from shoal.api.audit import AuditedRequest, AuditLog, log_to_stderr
from shoal.api.auth import LOCAL_CALLER, Caller, Tokens
from shoal.api.dashboard.app import Dashboard
from shoal.api.middleware import LimitsMiddleware, RateLimiter, now
from shoal.api.problem_details import RequestRefused
from shoal.api.request import ApiServer, RequestContext
from shoal.api.routes import ROUTES, Route
from shoal.operations.events import Emit

Endpoint = Callable[[Request], Awaitable[Response]]
_DENIED = {"WWW-Authenticate": 'Bearer realm="shoal"'}


def application(server: ApiServer, *, emit: Emit = log_to_stderr) -> ASGIApp:
    tokens = Tokens(server.settings.tokens)
    rates = RateLimiter(server.settings.api.rate)
    audit = AuditLog(emit)
    server.description = openapi.describe(ROUTES, tokens=bool(tokens))
    # A bare Router: Starlette's own error handling would respond before LimitsMiddleware does.
    endpoints: dict[str, dict[str, Endpoint]] = {}
    for route in ROUTES:
        endpoints.setdefault(route.path, {})[route.method] = _endpoint(route, server, tokens, rates, audit)
    paths = [Path(path, _by_method(methods), methods=list(methods)) for path, methods in endpoints.items()]
    # At /, a browser gets the dashboard and a program the index.
    dashboard = Dashboard(server, tokens, partial(check_rate, rates), partial(carry_out, audit))
    paths = [*dashboard.paths(index=endpoints["/"]["GET"]), *(path for path in paths if path.path != "/")]
    # A redirect to a path without its slash would follow the Host header, and come before the token is checked.
    return LimitsMiddleware(Router(paths, redirect_slashes=False), local=not tokens, on_problem=audit.log_problem)


def _by_method(endpoints: dict[str, Endpoint]) -> Endpoint:
    """One endpoint for all methods of a path, so that `Allow` names each of them."""

    async def endpoint(request: Request) -> Response:
        return await endpoints["GET" if request.method == "HEAD" else request.method](request)

    return endpoint


def _endpoint(
    route: Route, server: ApiServer, tokens: Tokens, rates: RateLimiter, audit: AuditLog
) -> Endpoint:  # fmt: skip
    async def endpoint(request: Request) -> Response:
        audit.start(request, route)
        if route.role is None:
            return await route.handler(RequestContext(request, server, LOCAL_CALLER))
        return await carry_out(audit, route, request, server, _caller(request, tokens, rates))

    return endpoint


async def carry_out(audit: AuditLog, route: Route, request: Request, server: ApiServer, caller: Caller) -> Response:
    """Handle a request if its caller is authorized, and log the change."""
    context = AuditedRequest(request, server, caller)
    if route.role is not None and caller.role < route.role:
        has, needed = caller.role.name.lower(), route.role.name.lower()
        raise RequestRefused(403, f"{request.method} {route.path} requires the role {needed}; this token has {has}.")
    if route.fleet_wide and caller.app:
        raise RequestRefused(403, f"This token is bound to the application {caller.app!r} and cannot access the fleet.")
    response = await route.handler(context)
    await audit.log_change(context, route, response)
    return response


def check_rate(rates: RateLimiter, request: Request, caller: Caller | None) -> None:
    """Refuse a request above the rate limit, which counts valid tokens by name and invalid tokens by address."""
    address = request.client.host if request.client else ""
    seconds = rates.wait_seconds(f"token {caller.name}" if caller else f"address {address}", now())
    if seconds:
        raise RequestRefused(429, "Too many requests; retry later.", headers={"Retry-After": str(math.ceil(seconds))})


def _caller(request: Request, tokens: Tokens, rates: RateLimiter) -> Caller:
    caller = tokens.caller(request.headers.get("authorization", "")) if tokens else LOCAL_CALLER
    check_rate(rates, request, caller)
    if caller is None:
        raise RequestRefused(401, "Missing or invalid token: send `Authorization: Bearer ...`.", headers=_DENIED)
    return caller
