"""Errors as answers: application/problem+json (RFC 9457) with an id that is also in the server's log.

Owns the table of which error is which status. A message of Shoal's own is for people to read; of any other error only
its id is told.
"""

from __future__ import annotations

import secrets
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from shoal import errors

TYPE = "urn:shoal:problem:"
_STATUSES: tuple[tuple[type[errors.ShoalError], int], ...] = (
    (errors.UnknownCrawl, 404),
    (errors.CrawlExists, 409),
    (errors.CrawlEnded, 409),
    (errors.InvalidInput, 422),
    (errors.SinkRefused, 422),
    (errors.StoreUnavailable, 503),
    (errors.StoreHeld, 503),
    (errors.StoreFull, 507),
    (errors.SinkUnavailable, 503),
)
_TITLES = {
    400: "The request is malformed", 401: "A token is needed", 403: "This token may not do that",
    404: "There is no such thing", 405: "This method is not for this path", 406: "This cannot be had so",
    408: "The request took too long", 409: "The crawl is not in a state for that",
    413: "The request is too large", 415: "The request must be JSON", 422: "The request cannot be used",
    429: "Too many requests", 500: "This is a defect of Shoal", 503: "The store or an output is away",
    507: "The store is full",
}  # fmt: skip


class RequestRefused(Exception):
    """A request that is answered with a status of its own."""

    def __init__(self, status: int, detail: str, *, kind: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.kind = kind
        self.headers = headers or {}


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """`type` ends in the name of the error; `id` finds it in the server's log."""

    type: str
    title: str
    status: int
    detail: str
    id: str


def problem(error: BaseException) -> tuple[Problem, dict[str, str]]:
    """What is told of an error, and headers that go with it."""
    headers: dict[str, str] = {}
    if isinstance(error, RequestRefused):
        status, detail, kind, headers = error.status, error.detail, error.kind, error.headers
    elif isinstance(error, HTTPException):
        # What the router itself refuses: unknown paths and methods.
        status, detail, kind, headers = error.status_code, f"{error.detail}.", "", dict(error.headers or {})
    elif isinstance(error, errors.ShoalError):
        status = next((code for family, code in _STATUSES if isinstance(error, family)), 500)
        detail, kind = str(error), type(error).__name__
    else:
        status, detail, kind = 500, "What went wrong is in the server's log, under this id.", "Defect"
    title = _TITLES.get(status, "The request was refused")
    told = Problem(type=f"{TYPE}{kind or status}", title=title, status=status, detail=detail, id=secrets.token_hex(6))
    if status == 503:
        headers = {"Retry-After": "5", **headers}
    return told, headers


def answer(told: Problem, headers: dict[str, str]) -> Response:
    return Response(msgspec.json.encode(told), told.status, headers, "application/problem+json")


class Json(Response):
    """What msgspec makes of a value."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)
