"""The connection of a client to the API: one request in, one JSON object out, and the errors that the API names.

Owns the socket, the token, pages of a list and the wait of a rate-limited request. Knows no route.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

from shoal import errors
from shoal.settings.loading import variable_value
from shoal.settings.sections import TOKEN_VARIABLE

JsonObject = dict[str, Any]
_MOST_BYTES = 64_000_000
# The server closes connections that are idle for longer.
_IDLE_SECONDS = 10.0
_RATE_LIMIT_TRIES, _RETRY_SECONDS = 10, 10.0
_ERRORS = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}


def is_api(url: str) -> bool:
    """Whether a URL is an API's and not a store's."""
    return url.startswith(("http://", "https://"))


class ApiConnection:
    """One connection, kept open between calls. Threads may share it."""

    def __init__(self, url: str, *, token: str | None = None, timeout_seconds: float = 30.0) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            # The URL may contain a password, so it is not quoted.
            raise errors.InvalidInput("Invalid API URL: the host or the port cannot be parsed.") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise errors.InvalidInput("Invalid API URL: it must start with http:// or https:// and a host.")
        self.shown = f"{parts.scheme}://{parts.hostname}" + (f":{port}" if port else "")
        self._connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._address = (parts.hostname, port)
        self._root = parts.path.rstrip("/")
        self._token = (variable_value(os.environ, TOKEN_VARIABLE) if token is None else token).strip()
        if not re.fullmatch(r"[!-~]*", self._token):
            raise errors.InvalidInput(
                "Invalid token: it contains a space, a line break or another character that tokens do not have."
            )
        self._timeout = timeout_seconds
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None
        self._used_mono = 0.0

    def close(self) -> None:
        with self._lock:
            self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def _pages(self, path: str, field: str, query: dict[str, str]) -> Iterator[JsonObject]:
        cursor = ""
        while True:
            parameters = {name: value for name, value in (query | {"cursor": cursor}).items() if value}
            page = self._request("GET", f"{path}?{urlencode(parameters)}" if parameters else path)
            if not isinstance(page.get(field), list):
                raise self._not_shoal()
            yield from page[field]
            cursor = page.get("next") or ""
            if not cursor:
                return

    def _request(self, method: str, path: str, body: JsonObject | None = None) -> JsonObject:
        for _ in range(_RATE_LIMIT_TRIES):
            with self._lock:
                status, raw, retry_after = self._exchange(method, path, body)
            if status != 429:
                break
            # A rate-limited request had no effect, so it can be repeated.
            time.sleep(min(float(retry_after) if retry_after.isdigit() else 1.0, _RETRY_SECONDS))
        if status >= 400:
            raise _error(status, raw)
        with contextlib.suppress(ValueError):
            content = json.loads(raw or b"{}")
            if status < 300 and isinstance(content, dict):
                return content
        raise self._not_shoal()

    def _stream(self, path: str, idle_seconds: float) -> Iterator[tuple[str, JsonObject]]:
        """Names and objects of server-sent events, on a connection of their own."""
        connection = self._connect(*self._address, timeout=idle_seconds)
        try:
            response = self._send(connection, "GET", path, None)
            if response.status != 200:
                raise _error(response.status, response.read(_MOST_BYTES))
            name = ""
            for line in response:
                if line.startswith(b"event: "):
                    name = line[7:].strip().decode()
                elif line.startswith(b"data: "):
                    yield name, json.loads(line[6:])
        except (OSError, http.client.HTTPException) as error:
            raise self._unavailable(error) from None
        finally:
            connection.close()

    def _exchange(self, method: str, path: str, body: JsonObject | None) -> tuple[int, bytes, str]:
        """Send a request; returns the status, the body and the Retry-After header."""
        if self._connection is not None and time.monotonic() - self._used_mono > _IDLE_SECONDS:
            self._drop()
        if self._connection is None:
            self._connection = self._connect(*self._address, timeout=self._timeout)
        try:
            response = self._send(self._connection, method, path, body)
            raw = response.read(_MOST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            raise self._unavailable(error) from None
        self._used_mono = time.monotonic()
        return response.status, raw, response.getheader("Retry-After", "")

    def _send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: JsonObject | None
    ) -> http.client.HTTPResponse:
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        content = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            content = json.dumps(body).encode()
        connection.request(method, self._root + path, content, headers)
        return connection.getresponse()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _not_shoal(self) -> errors.ShoalError:
        return errors.ShoalError(f"{self.shown} is not a Shoal API. Check the URL.")

    def _unavailable(self, error: Exception) -> errors.StoreUnavailable:
        reason = str(error) or type(error).__name__
        return errors.StoreUnavailable(f"The API at {self.shown} is unavailable: {reason}.")


def _error(status: int, raw: bytes) -> errors.ShoalError:
    """The exception that an error response names. For any other server's response, the message has only its status."""
    problem: Any = None
    with contextlib.suppress(ValueError):
        problem = json.loads(raw)
    if not isinstance(problem, dict) or not isinstance(problem.get("detail"), str):
        return errors.ShoalError(
            f"The server returned status {status} without an error description; check that it is a Shoal API."
        )
    name = str(problem.get("type", "")).rpartition(":")[2]
    kind = _ERRORS.get(name, errors.StoreUnavailable if status == 503 else errors.ShoalError)
    if not issubclass(kind, errors.ShoalError) or kind is errors.FetchError:
        kind = errors.ShoalError
    error: errors.ShoalError = kind(problem["detail"])
    return error
