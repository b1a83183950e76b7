"""The application: routes, each behind its role, all of them behind the guard, all changes told."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Path
from starlette.routing import Router
from starlette.types import ASGIApp

from shoal.api import openapi
from shoal.api.audit import AuditedRequest, AuditLog, log
from shoal.api.auth import OWNER, Caller, Tokens
from shoal.api.middleware import LimitsMiddleware, Rates, now
from shoal.api.problem_details import RequestRefused
from shoal.api.request import ApiServer, RequestContext
from shoal.api.routes import ROUTES, Route
from shoal.operations.events import Emit

_DENIED = {"WWW-Authenticate": 'Bearer realm="shoal"'}


def application(server: ApiServer, *, tell: Emit = log) -> ASGIApp:
    tokens = Tokens(server.settings.tokens)
    rates = Rates(server.settings.api.rate)
    telling = AuditLog(tell)
    server.description = openapi.describe(ROUTES)
    # Not a whole Starlette: its own handling of errors would answer before the guard does.
    paths = [
        Path(route.path, _endpoint(route, server, tokens, rates, telling), methods=[route.method]) for route in ROUTES
    ]
    return LimitsMiddleware(Router(paths), local=not tokens, on_problem=telling.problem)


def _endpoint(
    route: Route, server: ApiServer, tokens: Tokens, rates: Rates, telling: AuditLog
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        telling.note(request, route)
        if route.role is None:
            return await route.handler(RequestContext(request, server, OWNER))
        asked = AuditedRequest(request, server, _caller(request, tokens, rates))
        caller = asked.caller
        if caller.role < route.role:
            has, needed = caller.role.name.lower(), route.role.name.lower()
            raise RequestRefused(403, f"{request.method} {route.path} needs the role {needed}; this token has {has}.")
        if route.whole and caller.app:
            raise RequestRefused(
                403, f"This token is bound to the application {caller.app!r}; this is about the fleet."
            )
        response = await route.handler(asked)
        await telling.done(asked, route, response)
        return response

    return endpoint


def _caller(request: Request, tokens: Tokens, rates: Rates) -> Caller:
    """Who asks. Wrong tokens are counted by address, so that guessing is slow, right ones by name."""
    address = request.client.host if request.client else ""
    caller = tokens.caller(request.headers.get("authorization", "")) if tokens else OWNER
    seconds = rates.wait_seconds(f"token {caller.name}" if caller else f"address {address}", now())
    if seconds:
        raise RequestRefused(429, "Too many requests; wait a little.", headers={"Retry-After": str(math.ceil(seconds))})
    if caller is None:
        raise RequestRefused(401, "Send a token as `Authorization: Bearer ...`; this one is none.", headers=_DENIED)
    return caller
