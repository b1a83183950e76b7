"""The dashboard's endpoints: sign-in, pages and changes, and the headers of their responses.

A change is a call of the API's own handler with the caller of the session: roles, checks and the audit log are those of
the API. Any site may link to a page; a change needs a form of the dashboard.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, quote

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route as Path
from starlette.types import Message

from shoal.api.audit import start_entry
from shoal.api.auth import LOCAL_CALLER, Caller, Tokens
from shoal.api.dashboard import frame
from shoal.api.dashboard.actions import ACTIONS, PageAction, note_of
from shoal.api.dashboard.components import note as note_element
from shoal.api.dashboard.fleet import Fleet
from shoal.api.dashboard.html import E
from shoal.api.dashboard.live import MAX_STREAMS, LiveUpdates
from shoal.api.dashboard.session import Sessions, delete_cookie, session_of, set_cookie
from shoal.api.dashboard.table_of_pages import PAGES, PageRoute
from shoal.api.dashboard.view import DashboardPage, View, live_parts
from shoal.api.middleware import RESPOND, now, read_body
from shoal.api.problem_details import Problem, RequestRefused
from shoal.api.request import ApiServer
from shoal.api.routes import ROUTES, Route

Endpoint = Callable[[Request], Awaitable[Response]]
CarryOut = Callable[[Route, Request, ApiServer, Caller], Awaitable[Response]]
_FORM = "application/x-www-form-urlencoded"
_MAX_FORM_BYTES = 6_000_000
_YEAR_SECONDS = 31_536_000
_BY_NAME = {route.name: route for route in ROUTES}


class Dashboard:
    """`check_rate` refuses too many requests of a caller, `carry_out` handles a request of the API."""

    def __init__(
        self, server: ApiServer, tokens: Tokens, check_rate: Callable[[Request, Caller | None], None],
        carry_out: CarryOut,
    ) -> None:  # fmt: skip
        self._server = server
        self._sessions = Sessions(tokens, server.frontier.sessions)
        self._fleet = Fleet(server)
        self._updates = LiveUpdates(server.stopping)
        self._check_rate = check_rate
        self._carry_out = carry_out

    def paths(self, *, index: Endpoint) -> list[Path]:
        """`index` is the response at `/` for programs."""
        paths = []
        for route in PAGES:
            endpoint = self._page(route)
            paths.append(Path(route.path, _by_accept(endpoint, index) if route.path == "/" else endpoint))
            paths.append(Path(f"/live{route.path}", self._live(route)))
        paths += [Path(action.path, self._change(action), methods=["POST"]) for action in ACTIONS]
        return [
            *paths,
            Path("/sign-in", self._shows_problems(self._sign_in), methods=["GET", "POST"]),
            Path("/sign-out", self._shows_problems(self._sign_out), methods=["POST"]),
            Path("/static/{name}", _static),
        ]

    def _page(self, route: PageRoute) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            caller = await self._caller(request)
            if caller is None:
                return _to_sign_in(request)
            _check_access(route, caller)
            view = self._view(request, caller)
            page = await route.page(view)
            if page.redirect:
                return RedirectResponse(page.redirect, 303)
            query = "?" + request.url.query if request.url.query else ""
            live = f"/live{quote(request.url.path)}{query}" if live_parts(page) else ""
            done = note_of(request.query_params.get("done", ""), request.query_params.get("n", ""))
            note = note_element("good", done) if done else None
            return _html(frame.document(page, view, live=live, note=note, signed_in=self._sessions.required))

        return self._shows_problems(endpoint)

    def _live(self, route: PageRoute) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            caller = await self._caller(request)
            if caller is None:
                raise RequestRefused(401, "Sign in first.")
            _check_access(route, caller)
            if self._updates.viewers >= MAX_STREAMS:
                raise RequestRefused(503, "Too many open dashboards.")
            view = self._view(request, caller, prefix="/live")

            async def render() -> dict[str, str]:
                return live_parts(await route.page(view))

            session = session_of(request)
            key = (request.url.path, request.url.query, caller.role, caller.app)

            async def allowed() -> bool:
                return await self._sessions.caller(session, now()) is not None

            stream = self._updates.stream(key, render, allowed)
            return StreamingResponse(stream, media_type="text/event-stream")

        return endpoint

    def _change(self, action: PageAction) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            caller = await self._caller(request)
            if caller is None:
                raise RequestRefused(403, "Your session has ended: sign in and repeat the change.")
            form = await _form(request)
            self._sessions.check_proof(request, session_of(request), form.get("proof", ""))
            if action.answer is not None:
                return _html(await action.answer(self._view(request, caller), form))
            params = {**request.path_params, **action.params(form)}
            response = await self._call(request, caller, action.route, params, action.body(form))
            result = msgspec.json.decode(response.body) if response.body else {}
            return RedirectResponse(action.following(params, result), 303)

        return self._shows_problems(endpoint)

    async def _call(
        self, request: Request, caller: Caller, name: str, params: dict[str, Any], body: dict[str, Any] | None
    ) -> Response:
        """Call a route of the API as this caller."""
        route = _BY_NAME[name]
        raw = b"" if body is None else msgspec.json.encode(body)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode())]
        scope = {
            **request.scope, "method": route.method, "path": route.path, "path_params": params, "headers": headers,
            "query_string": b"",
        }  # fmt: skip
        # In both scopes: a refusal is logged with the request of the browser.
        start_entry(request.scope, route)
        scope |= {name: value for name, value in request.scope.items() if name.startswith("shoal.")}

        async def receive() -> Message:
            return {"type": "http.request", "body": raw, "more_body": False}

        return await self._carry_out(route, Request(scope, receive), self._server, caller)

    async def _sign_in(self, request: Request) -> Response:
        session = session_of(request)
        following = request.query_params.get("next", "/")
        if request.method != "POST":
            if await self._caller(request) is not None:
                return RedirectResponse("/", 303)
            return _html(frame.sign_in("", _local(following)))
        self._check_rate(request, None)
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise RequestRefused(403, "A page of another site cannot sign in.")
        form = await _form(request)
        new = await self._sessions.sign_in(form.get("token", ""))
        following = _local(form.get("next", "/"))
        if not new:
            return _html(frame.sign_in("", following, "Invalid token."), 401)
        await self._sessions.sign_out(session)
        response = RedirectResponse(following, 303)
        set_cookie(request, response, new)
        return response

    async def _sign_out(self, request: Request) -> Response:
        session = session_of(request)
        form = await _form(request)
        self._sessions.check_proof(request, session, form.get("proof", ""))
        await self._sessions.sign_out(session)
        response = RedirectResponse("/sign-in", 303)
        delete_cookie(response)
        return response

    async def _caller(self, request: Request) -> Caller | None:
        session = session_of(request)
        if not self._sessions.is_fresh(session, now()):
            # Invented session ids must not cause an unlimited number of calls to the store.
            self._check_rate(request, None)
        caller = await self._sessions.caller(session, now())
        self._check_rate(request, caller)
        return caller

    def _view(self, request: Request, caller: Caller, *, prefix: str = "") -> View:
        return View(
            self._server, self._fleet, caller, path=request.url.path.removeprefix(prefix) or "/",
            params=request.path_params, query=request.url.query, proof=self._sessions.proof(session_of(request)),
            for_updates=bool(prefix),
        )  # fmt: skip

    def _shows_problems(self, endpoint: Endpoint) -> Endpoint:
        """Return an endpoint whose errors are shown as a page."""

        async def shown(request: Request) -> Response:
            def respond(problem: Problem, headers: dict[str, str]) -> Response:
                caller = self._sessions.known(session_of(request)) or Caller("", LOCAL_CALLER.role, "-")
                content = [
                    E.h1(problem.title),
                    E.p(problem.detail, class_="note bad", role="alert"),
                    E.p(f"{problem.status} · {problem.id}", class_="quiet"),
                    E.p(E.a("Overview", href="/")),
                ]
                view = self._view(request, caller)
                return _html(frame.document(DashboardPage(problem.title, content), view), problem.status, headers)

            request.scope[RESPOND] = respond
            return await endpoint(request)

        return shown


def _check_access(route: PageRoute, caller: Caller) -> None:
    if caller.role < route.role:
        raise RequestRefused(403, f"This page requires the role {route.role.name.lower()}.")
    if route.fleet_wide and caller.app:
        raise RequestRefused(403, f"This token is bound to the application {caller.app!r} and cannot see the fleet.")


def _by_accept(page: Endpoint, index: Endpoint) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return await (page if "text/html" in request.headers.get("accept", "") else index)(request)

    return endpoint


def _to_sign_in(request: Request) -> Response:
    query = "?" + request.url.query if request.url.query else ""
    return RedirectResponse(f"/sign-in?next={quote(request.url.path + query)}", 303)


def _local(following: str) -> str:
    """Return the path if it is a path of this server, otherwise the path of the overview."""
    safe = following.startswith("/") and not following.startswith(("//", "/\\")) and following.isprintable()
    return following[:2000] if safe else "/"


def _html(text: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(text, status, {**frame.HEADERS, **(headers or {})}, "text/html; charset=utf-8")


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in frame.MEDIA_TYPES:
        raise RequestRefused(404, "File not found.")
    headers = {"Cache-Control": f"public, max-age={_YEAR_SECONDS}, immutable"}
    return Response(frame.static(name), 200, headers, frame.MEDIA_TYPES[name])


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form. The values of a repeated field are joined as lines."""
    raw = await read_body(request, _MAX_FORM_BYTES, _FORM)
    try:
        fields = parse_qs(raw.decode(), keep_blank_values=True, max_num_fields=1000)
    except ValueError:
        raise RequestRefused(400, "The form cannot be read.") from None
    return {name: "\n".join(values) for name, values in fields.items()}
