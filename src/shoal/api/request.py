"""What a handler is given: the frontier, the settings, who asks, and what was asked."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.requests import Request

from shoal.api.auth import Caller, Role
from shoal.api.fleet_stats import CrawlTotals
from shoal.api.middleware import read_body
from shoal.api.pagination import parse_cursor
from shoal.api.problem_details import RequestRefused
from shoal.errors import UnknownCrawl
from shoal.frontier import Frontier
from shoal.model.crawl import Crawl, State
from shoal.operations.maintenance import Maintainer
from shoal.settings import Settings

MOST_TEXT = 1000


class ApiServer:
    """What all requests share."""

    def __init__(self, frontier: Frontier, settings: Settings) -> None:
        self.frontier = frontier
        self.settings = settings
        # Streams end when it is set: a server that stops does not wait for people who watch.
        self.stopping = asyncio.Event()
        self.streams = 0
        self.totals = CrawlTotals(frontier)
        # The OpenAPI document.
        self.description: dict[str, Any] = {}
        # Who tends the crawls beside this server, if somebody does.
        self.tender: Maintainer | None = None


class RequestContext:
    """One request, and who makes it."""

    def __init__(self, request: Request, server: ApiServer, caller: Caller) -> None:
        self.request = request
        self.server = server
        self.caller = caller
        self.frontier = server.frontier

    async def body(self, most: int) -> bytes:
        return await read_body(self.request, most)

    async def json(self, type_: Any, most: int = 100_000) -> Any:
        """The body as a value of this type; an absent one as the type's defaults."""
        raw = b"{}" if self.request.headers.get("content-length", "") == "0" else await self.body(most)
        try:
            return msgspec.json.decode(raw or b"{}", type=type_)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise RequestRefused(422, f"The body cannot be used: {error}.", kind="InvalidInput") from None

    def path(self, name: str) -> str:
        return str(self.request.path_params[name])

    def text(self, name: str, *allowed: str) -> str:
        """A query parameter, '' when it is absent."""
        value = self.request.query_params.get(name, "")
        if len(value) > MOST_TEXT or (value and allowed and value not in allowed):
            raise RequestRefused(422, f"{name} must be {' or '.join(allowed) or 'shorter'}.", kind="InvalidInput")
        return value

    def whole(self, name: str, default: int, most: int) -> int:
        value = self.request.query_params.get(name)
        if value is None:
            return default
        if not value.isascii() or not value.isdigit() or len(value) > 12 or not 1 <= int(value) <= most:
            raise RequestRefused(422, f"{name} must be a whole number from 1 to {most}.", kind="InvalidInput")
        return int(value)

    def cursor(self, type_: Any, *of: str) -> Any:
        """Where to go on, None to begin. `of` is what was said to `cursor_of` when the page before was made."""
        return parse_cursor(self.request.query_params.get("cursor", ""), type_, *of)

    async def crawl(self) -> Crawl:
        """The crawl of the path. Those of other applications are not there for a caller who has one."""
        crawl_id = self.path("crawl")
        crawl = await self.frontier.crawls.get(crawl_id)
        if crawl.state is State.DELETED or not self.sees(crawl):
            raise UnknownCrawl(f"There is no crawl {crawl_id!r}.")
        return crawl

    def sees(self, crawl: Crawl) -> bool:
        return not self.caller.app or crawl.spec.get("app", "") == self.caller.app

    def must_be(self, role: Role, what: str) -> None:
        if self.caller.role < role:
            raise RequestRefused(403, f"{what} needs a token with the role {role.name.lower()}.")
