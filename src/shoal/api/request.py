"""The argument of a handler: the server's shared state, the caller, and typed access to the request."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import Any

import msgspec
from starlette.requests import Request

from shoal.api.auth import Caller, Role
from shoal.api.fleet_stats import CrawlTotals
from shoal.api.middleware import RateLimiter, read_body
from shoal.api.pagination import parse_cursor
from shoal.api.problem_details import RequestRefused
from shoal.errors import InvalidLimit, UnknownCrawl
from shoal.frontier import Frontier
from shoal.model import validation
from shoal.model.crawl import Crawl, State, crawl_id_of
from shoal.operations.indexnow import IndexNow
from shoal.operations.maintenance import Maintainer
from shoal.operations.spider_options import SpiderOptions
from shoal.settings import Settings

MAX_TEXT = 1000
# Requests of IndexNow from one address: they need no token.
_REPORTS_PER_SECOND = 5.0


class ApiServer:
    """State that all requests share."""

    def __init__(self, frontier: Frontier, settings: Settings) -> None:
        self.frontier = frontier
        self.settings = settings
        # Ends all event streams, so that the server can stop.
        self.stopping = asyncio.Event()
        # Open event streams by caller.
        self.streams: Counter[str] = Counter()
        self.totals = CrawlTotals(frontier)
        # Options that the spiders of [spiders] set for their crawls.
        self.spider_options: SpiderOptions = {}
        # The OpenAPI document.
        self.description: dict[str, Any] = {}
        # The background task that maintains crawls; None in a server without one.
        self.maintainer: Maintainer | None = None
        self.indexnow = IndexNow(frontier, settings)
        self.indexnow_rates = RateLimiter(_REPORTS_PER_SECOND)


class RequestContext:
    """One request and its caller."""

    def __init__(self, request: Request, server: ApiServer, caller: Caller) -> None:
        self.request = request
        self.server = server
        self.caller = caller
        self.frontier = server.frontier

    async def body(self, max_bytes: int) -> bytes:
        return await read_body(self.request, max_bytes)

    async def json(self, type_: Any, max_bytes: int = 100_000) -> Any:
        """The body as a value of this type. A missing body means the type's defaults."""
        headers = self.request.headers
        empty = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
        raw = b"{}" if empty else await self.body(max_bytes)
        try:
            return msgspec.json.decode(raw or b"{}", type=type_)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise RequestRefused(422, f"Invalid body: {error}.", kind="InvalidInput") from None

    def path(self, name: str) -> str:
        return str(self.request.path_params[name])

    def text(self, name: str, *allowed: str) -> str:
        """A query parameter, '' when it is missing."""
        value = self.request.query_params.get(name, "")
        if len(value) > MAX_TEXT or (value and allowed and value not in allowed):
            raise RequestRefused(
                422, f"{name} must be {' or '.join(allowed) or f'at most {MAX_TEXT} characters'}.", kind="InvalidInput"
            )
        return value

    def integer(self, name: str, default: int, highest: int) -> int:
        value = self.request.query_params.get(name)
        if value is None:
            return default
        if not value.isascii() or not value.isdigit() or len(value) > 12 or not 1 <= int(value) <= highest:
            raise RequestRefused(422, f"{name} must be an integer from 1 to {highest}.", kind="InvalidInput")
        return int(value)

    def cursor(self, type_: Any, *of: str) -> Any:
        """The position to resume at, None for the first page. `of` is the same as for `make_cursor`."""
        return parse_cursor(self.request.query_params.get("cursor", ""), type_, *of)

    async def crawl(self) -> Crawl:
        """The crawl of the path. A caller that is bound to an application sees that application's crawls only."""
        crawl_id = validation.crawl_id(self.path("crawl"))
        # With a token of an application, the path may omit the application.
        for name in dict.fromkeys((crawl_id_of(self.caller.app, crawl_id), crawl_id)):
            with contextlib.suppress(UnknownCrawl, InvalidLimit):
                crawl = await self.frontier.crawls.get(name)
                if crawl.state is not State.DELETED and self.sees(crawl):
                    return crawl
        raise UnknownCrawl(f"There is no crawl {crawl_id!r}.")

    def sees(self, crawl: Crawl) -> bool:
        return not self.caller.app or crawl.app == self.caller.app

    def require_fleet_admin(self, what: str) -> None:
        """Require the role admin and a token that is not bound to an application."""
        self.require_role(Role.ADMIN, what)
        if self.caller.app:
            raise RequestRefused(403, f"{what} requires a token that is not bound to an application.")

    def require_role(self, role: Role, what: str) -> None:
        if self.caller.role < role:
            raise RequestRefused(403, f"{what} requires a token with the role {role.name.lower()}.")
