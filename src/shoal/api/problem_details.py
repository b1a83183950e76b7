"""Errors as responses: application/problem+json (RFC 9457), with an id that is also in the server's log.

Owns the status of each error class. The response shows the message of Shoal's own errors; for any other error it shows
the id only.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any

import msgspec
from msgspec import Meta
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
    (errors.StoreNotReady, 503),
    (errors.StoreFull, 507),
    (errors.SinkUnavailable, 503),
)
_TITLES = {
    400: "Bad request", 401: "Authentication required", 403: "Forbidden", 404: "Not found", 405: "Method not allowed",
    406: "Not acceptable", 408: "Request timeout", 409: "Conflict with the crawl's state", 413: "Request too large",
    415: "Unsupported media type", 422: "Invalid request", 429: "Too many requests",
    500: "Internal error (a bug in Shoal)", 503: "Store or output unavailable", 507: "Store full",
}  # fmt: skip


class RequestRefused(Exception):
    """A request that the API refuses, with the status of the response."""

    def __init__(self, status: int, detail: str, *, kind: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.kind = kind
        self.headers = headers or {}


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An error. `type` ends with the name of the error class; `id` is also in the server's log."""

    type: Annotated[str, Meta(description="`urn:shoal:problem:` and the name of the error class, or the status.")]
    title: Annotated[str, Meta(description="Meaning of the status.")]
    status: Annotated[int, Meta(description="HTTP status.")]
    detail: Annotated[str, Meta(description="What went wrong.")]
    id: Annotated[str, Meta(description="Also in the server's log.")]


def problem_of(error: BaseException) -> tuple[Problem, dict[str, str]]:
    """The problem details of an error, and the headers of its response."""
    headers: dict[str, str] = {}
    if isinstance(error, RequestRefused):
        status, detail, kind, headers = error.status, error.detail, error.kind, error.headers
    elif isinstance(error, HTTPException):
        # The router's own errors: unknown paths and methods.
        status, detail, kind, headers = error.status_code, f"{error.detail}.", "", dict(error.headers or {})
    elif isinstance(error, errors.ShoalError):
        status = next((code for family, code in _STATUSES if isinstance(error, family)), 500)
        detail, kind = str(error), type(error).__name__
    else:
        status, detail, kind = 500, "The server's log has the details, under this id.", "Defect"
    title = _TITLES.get(status, "Request refused")
    problem = Problem(
        type=f"{TYPE}{kind or status}", title=title, status=status, detail=detail, id=secrets.token_hex(6)
    )
    if status == 503:
        headers = {"Retry-After": "5", **headers}
    return problem, headers


def problem_response(problem: Problem, headers: dict[str, str]) -> Response:
    return Response(msgspec.json.encode(problem), problem.status, headers, "application/problem+json")


class Json(Response):
    """A value as JSON, encoded by msgspec."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)
