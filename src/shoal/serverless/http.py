"""A WSGI application for platforms that call functions over HTTP, e.g. Cloud Run, Knative or a scheduler.

    POST /   a CloudEvent (structured or binary) or plain JSON. The type `shoal.crawl`, or a body with `seeds`, is a
             crawl request; anything else is work for `seconds` (default 50).

If SHOAL_TOKEN is set, requests need it as `Authorization: Bearer`; otherwise the platform must check who calls. One
request is handled at a time.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from shoal.errors import InvalidInput, SettingsError, ShoalError
from shoal.frontier import Frontier
from shoal.operations.submit import MAX_REQUEST_BYTES, submit_message
from shoal.serverless.timed_worker import work
from shoal.settings import Settings, load
from shoal.settings.loading import variable_value
from shoal.settings.sections import TOKEN_VARIABLE

_WORK_SECONDS = 50.0
_CRAWL_TYPE = "shoal.crawl"
# A server may use threads, and two workers in one process would share the limits of one.
_turn = threading.Lock()


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """The WSGI callable."""
    status, body = _respond(environ)
    content = json.dumps(body).encode() + b"\n"
    start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(content)))])
    return [content]


def _respond(environ: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    try:
        token = variable_value(os.environ, TOKEN_VARIABLE)
        given = str(environ.get("HTTP_AUTHORIZATION", "")).removeprefix("Bearer ")
        if token and not hmac.compare_digest(given.encode(), token.encode()):
            return "401 Unauthorized", {"problem": "The token is missing or invalid: send Authorization: Bearer TOKEN."}
        if environ.get("REQUEST_METHOD") != "POST":
            return "405 Method Not Allowed", {"problem": "Use POST."}
        kind, event_id, data = _event(environ)
        settings = load().settings
        with _turn:
            if kind == _CRAWL_TYPE or "seeds" in data:
                return "202 Accepted", asyncio.run(_submit(settings, data, event_id))
            return "200 OK", asyncio.run(_work(settings, data))
    except SettingsError as error:
        return "500 Internal Server Error", {"problem": str(error)}
    except InvalidInput as error:
        return "400 Bad Request", {"problem": str(error)}
    except ShoalError as error:
        return "503 Service Unavailable", {"problem": str(error)}


def _event(environ: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """The type, id and data of a CloudEvent; the first two are '' for plain JSON."""
    try:
        length = int(environ.get("CONTENT_LENGTH") or 0)
    except ValueError:
        length = 0
    if length > MAX_REQUEST_BYTES:
        raise InvalidInput(f"The request has {length:,} bytes; the limit is {MAX_REQUEST_BYTES:,}.")
    raw = environ["wsgi.input"].read(length) if length else b"{}"
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidInput(f"The request is not JSON: {error}.") from None
    kind, event_id = str(environ.get("HTTP_CE_TYPE", "")), str(environ.get("HTTP_CE_ID", ""))
    if str(environ.get("CONTENT_TYPE", "")).startswith("application/cloudevents+json") and isinstance(body, dict):
        kind, event_id, body = str(body.get("type", "")), str(body.get("id", "")), body.get("data") or {}
    if not isinstance(body, dict):
        raise InvalidInput("The request must be a JSON object.")
    return kind, event_id, body


async def _submit(settings: Settings, data: dict[str, Any], event_id: str) -> dict[str, Any]:
    async with await Frontier.from_settings(settings) as frontier:
        body = msgspec.json.encode(data)
        submitted = await submit_message(frontier, body, message_id=event_id, settings=settings)
    return dict(msgspec.to_builtins(submitted))


async def _work(settings: Settings, data: dict[str, Any]) -> dict[str, Any]:
    seconds = data.get("seconds", _WORK_SECONDS)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 86400:
        raise InvalidInput("seconds must be a number from 0 to 86400.")
    return dict(
        msgspec.to_builtins(await work(settings, float(seconds), until_idle=data.get("until_idle") is not False))
    )
