"""A client of Shoal's HTTP API: `Client` is synchronous, `AsyncClient` is for asyncio.

It needs HTTP only, no store and no worker. Responses are the API's JSON objects as dicts. An error of the API is raised
as the exception class of shoal.errors that it names, so that code for a store and code for the API handle it alike.

    client = shoal.Client("http://127.0.0.1:8080", token="shoal_...")
    crawl = client.submit(seeds=["https://example.org/"], outputs=["warehouse"])["id"]
    client.wait(crawl)
    for record in client.records(crawl): ...
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.client
import json
import os
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from shoal import errors
from shoal.settings.loading import variable_value
from shoal.settings.sections import TOKEN_VARIABLE

JsonObject = dict[str, Any]
T = TypeVar("T")
_MOST_BYTES = 64_000_000
# The server closes connections that are idle for longer.
_IDLE_SECONDS = 10.0
_RATE_LIMIT_TRIES, _RETRY_SECONDS = 10, 10.0
_ERRORS = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}


def is_api(url: str) -> bool:
    """Whether a URL is an API's and not a store's."""
    return url.startswith(("http://", "https://"))


class Client:
    """One connection, kept open between calls. Threads may share it. The default token is $SHOAL_TOKEN.

    SHOAL_TOKEN_FILE may name a file that has it.
    """

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

    # Crawls

    def submit(self, **request: Any) -> JsonObject:
        """Submit a crawl. `request` has the fields of CrawlRequest; returns `id`, and whether it was `created`."""
        return self._request("POST", "/v1/crawls", request)

    def crawls(self, *, state: str = "", app: str = "") -> Iterator[JsonObject]:
        """Every crawl, newest first."""
        return self._pages("/v1/crawls", "crawls", {"state": state, "app": app})

    def crawl(self, crawl: str) -> JsonObject:
        return self._request("GET", _path(crawl))

    def pause(self, crawl: str) -> JsonObject:
        return self._request("POST", _path(crawl, "pause"))

    def resume(self, crawl: str) -> JsonObject:
        return self._request("POST", _path(crawl, "resume"))

    def stop(self, crawl: str) -> JsonObject:
        return self._request("POST", _path(crawl, "stop"))

    def delete(self, crawl: str) -> None:
        self._request("DELETE", _path(crawl))

    def change(self, crawl: str, *, preview: bool = False, **options: Any) -> JsonObject:
        """Change options of an open crawl; with `preview`, only count the waiting URLs that new rules exclude."""
        return self._request("PATCH", _path(crawl), {"preview": preview, **options})

    def add(self, crawl: str, seeds: Iterable[str]) -> JsonObject:
        """Add URLs to an open crawl."""
        return self._request("POST", _path(crawl, "seeds"), {"seeds": list(seeds)})

    def touch(self, crawl: str, urls: Iterable[str]) -> JsonObject:
        """Visit pages of a perpetual crawl soon, at most 1,000; returns how many, and which URLs were refused."""
        return self._request("POST", _path(crawl, "touch"), {"urls": list(urls)})

    def failed(self, crawl: str) -> Iterator[JsonObject]:
        """Every failed URL with its reason, fetched page by page."""
        return self._pages(_path(crawl, "failed"), "failed", {"limit": "1000"})

    def retry(self, crawl: str, *, urls: Iterable[str] | None = None, reason: str = "") -> int:
        """Retry failed URLs: all, or only these URLs or those that failed for this reason. Returns how many."""
        chosen: JsonObject = {} if urls is None else {"urls": list(urls)}
        if reason:
            chosen["reason"] = reason
        return int(self._request("POST", _path(crawl, "retry"), chosen or None)["retried"])

    def forget(self, crawl: str, urls: Iterable[str]) -> int:
        """Forget that a crawl has seen these URLs: they are visited when they are found again. Returns how many."""
        return int(self._request("POST", _path(crawl, "forget"), {"urls": list(urls)})["forgotten"])

    def revisit(self, crawl: str, urls: Iterable[str]) -> int:
        """Visit these URLs again now, although the crawl has seen them. Returns how many."""
        return int(self._request("POST", _path(crawl, "revisit"), {"urls": list(urls)})["queued"])

    def explain(self, crawl: str, url: str) -> JsonObject:
        """Whether a URL is visited by a crawl, and which rule decides."""
        return self._request("GET", f"{_path(crawl, 'explain')}?{urlencode({'url': url})}")

    def records(self, crawl: str, *, kind: str = "page", fields: Iterable[str] = ()) -> Iterator[JsonObject]:
        """Every record of a crawl, fetched page by page."""
        return self._pages(_path(crawl, "records"), "records", {"kind": kind, "fields": ",".join(fields)})

    def events(self, crawl: str) -> Iterator[tuple[str, JsonObject]]:
        """Yield ('counts', ...) whenever the counts change, then ('end', ...) when the crawl has ended."""
        return self._events(crawl, max(60.0, self._timeout))

    def _events(self, crawl: str, idle_seconds: float) -> Iterator[tuple[str, JsonObject]]:
        connection = self._connect(*self._address, timeout=idle_seconds)
        try:
            response = self._send(connection, "GET", _path(crawl, "events"), None)
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

    def wait(self, crawl: str, *, timeout_seconds: float = float("inf")) -> JsonObject:
        """Wait until a crawl has ended and return its description; TimeoutError after `timeout_seconds`.

        While the server is unavailable, it retries.
        """
        return next(filter(None, self._polled(crawl, timeout_seconds)))

    def _polled(self, crawl: str, timeout_seconds: float) -> Iterator[JsonObject | None]:
        """Yield None at every event of a crawl, then its description when it has ended."""
        until = time.monotonic() + timeout_seconds
        while True:
            with contextlib.suppress(errors.StoreUnavailable):
                for name, _ in self._events(crawl, min(60.0, max(0.1, until - time.monotonic()))):
                    if name == "end":
                        yield self.crawl(crawl)
                        return
                    if time.monotonic() > until:
                        break
                    yield None
            if time.monotonic() > until:
                raise TimeoutError(f"Crawl {crawl} did not end within {timeout_seconds:g} s.")
            time.sleep(min(1.0, max(0.0, until - time.monotonic())))

    # The fleet

    def hosts(self) -> Iterator[JsonObject]:
        """Hosts that have waiting URLs or a lease."""
        return self._pages("/v1/hosts", "hosts", {})

    def host(self, host: str) -> JsonObject:
        return self._request("GET", f"/v1/hosts/{quote(host, safe='')}")

    def back_offs(self, host: str) -> list[JsonObject]:
        """The last back-offs of a host, newest first."""
        return list(self._request("GET", f"/v1/hosts/{quote(host, safe='')}/back-offs")["back_offs"])

    def change_host(self, host: str, **changes: Any) -> JsonObject:
        """Set `delay_seconds` or `places` (None removes the setting), or `blocked` (a reason, '' to unblock)."""
        return self._request("PATCH", f"/v1/hosts/{quote(host, safe='')}", changes)

    def workers(self) -> list[JsonObject]:
        return list(self._pages("/v1/workers", "workers", {}))

    def stats(self) -> JsonObject:
        return self._request("GET", "/v1/stats")

    def history(self, crawl: str = "", *, step: str = "minute") -> list[JsonObject]:
        """What was done in each minute of the last day, or each hour of the last 90 days, by a crawl or the fleet."""
        path = _path(crawl, "history") if crawl else "/v1/history"
        points: list[JsonObject] = self._request("GET", f"{path}?step={quote(step)}")["points"]
        return points

    def close(self) -> None:
        with self._lock:
            self._drop()

    def __enter__(self) -> Client:
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


class AsyncClient:
    """The same methods for asyncio. Each call runs in a thread, so that it does not block the event loop."""

    def __init__(self, url: str, *, token: str | None = None, timeout_seconds: float = 30.0) -> None:
        self._client = Client(url, token=token, timeout_seconds=timeout_seconds)

    async def submit(self, **request: Any) -> JsonObject:
        return await asyncio.to_thread(functools.partial(self._client.submit, **request))

    def crawls(self, *, state: str = "", app: str = "") -> AsyncIterator[JsonObject]:
        return _iterate(lambda: self._client.crawls(state=state, app=app))

    async def crawl(self, crawl: str) -> JsonObject:
        return await asyncio.to_thread(self._client.crawl, crawl)

    async def pause(self, crawl: str) -> JsonObject:
        return await asyncio.to_thread(self._client.pause, crawl)

    async def resume(self, crawl: str) -> JsonObject:
        return await asyncio.to_thread(self._client.resume, crawl)

    async def stop(self, crawl: str) -> JsonObject:
        return await asyncio.to_thread(self._client.stop, crawl)

    async def delete(self, crawl: str) -> None:
        await asyncio.to_thread(self._client.delete, crawl)

    async def change(self, crawl: str, *, preview: bool = False, **options: Any) -> JsonObject:
        return await asyncio.to_thread(functools.partial(self._client.change, crawl, preview=preview, **options))

    async def add(self, crawl: str, seeds: Iterable[str]) -> JsonObject:
        return await asyncio.to_thread(self._client.add, crawl, seeds)

    async def touch(self, crawl: str, urls: Iterable[str]) -> JsonObject:
        return await asyncio.to_thread(self._client.touch, crawl, urls)

    def failed(self, crawl: str) -> AsyncIterator[JsonObject]:
        return _iterate(lambda: self._client.failed(crawl))

    async def retry(self, crawl: str, *, urls: Iterable[str] | None = None, reason: str = "") -> int:
        return await asyncio.to_thread(functools.partial(self._client.retry, crawl, urls=urls, reason=reason))

    async def forget(self, crawl: str, urls: Iterable[str]) -> int:
        return await asyncio.to_thread(self._client.forget, crawl, urls)

    async def revisit(self, crawl: str, urls: Iterable[str]) -> int:
        return await asyncio.to_thread(self._client.revisit, crawl, urls)

    async def explain(self, crawl: str, url: str) -> JsonObject:
        return await asyncio.to_thread(self._client.explain, crawl, url)

    def records(self, crawl: str, *, kind: str = "page", fields: Iterable[str] = ()) -> AsyncIterator[JsonObject]:
        return _iterate(lambda: self._client.records(crawl, kind=kind, fields=fields))

    def events(self, crawl: str) -> AsyncIterator[tuple[str, JsonObject]]:
        return _iterate(lambda: self._client.events(crawl))

    async def wait(self, crawl: str, *, timeout_seconds: float = float("inf")) -> JsonObject:
        descriptions = _iterate(lambda: self._client._polled(crawl, timeout_seconds))
        return await anext(description async for description in descriptions if description is not None)

    def hosts(self) -> AsyncIterator[JsonObject]:
        return _iterate(self._client.hosts)

    async def host(self, host: str) -> JsonObject:
        return await asyncio.to_thread(self._client.host, host)

    async def back_offs(self, host: str) -> list[JsonObject]:
        return await asyncio.to_thread(self._client.back_offs, host)

    async def change_host(self, host: str, **changes: Any) -> JsonObject:
        return await asyncio.to_thread(functools.partial(self._client.change_host, host, **changes))

    async def workers(self) -> list[JsonObject]:
        return await asyncio.to_thread(self._client.workers)

    async def stats(self) -> JsonObject:
        return await asyncio.to_thread(self._client.stats)

    async def history(self, crawl: str = "", *, step: str = "minute") -> list[JsonObject]:
        return await asyncio.to_thread(self._client.history, crawl, step=step)

    async def close(self) -> None:
        await asyncio.to_thread(self._client.close)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.close()


async def _iterate(make: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
    """Iterate in a thread. A sentinel ends it, because StopIteration cannot be raised out of a thread."""
    end = object()
    iterator = await asyncio.to_thread(make)
    while (value := await asyncio.to_thread(next, iterator, end)) is not end:
        yield value  # type: ignore[misc]


def _path(crawl: str, *rest: str) -> str:
    return "/".join(["/v1/crawls", quote(crawl, safe=""), *rest])


def _error(status: int, raw: bytes) -> errors.ShoalError:
    """The exception that a problem names. The response of another server is not quoted, only its status."""
    problem: Any = None
    with contextlib.suppress(ValueError):
        problem = json.loads(raw)
    if not isinstance(problem, dict) or not isinstance(problem.get("detail"), str):
        return errors.ShoalError(f"The server returned status {status} without a problem of Shoal.")
    name = str(problem.get("type", "")).rpartition(":")[2]
    kind = _ERRORS.get(name, errors.StoreUnavailable if status == 503 else errors.ShoalError)
    if not issubclass(kind, errors.ShoalError) or kind is errors.FetchError:
        kind = errors.ShoalError
    error: errors.ShoalError = kind(problem["detail"])
    return error
