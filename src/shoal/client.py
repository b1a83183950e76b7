"""A client of Shoal's HTTP API: `Client` for programs that wait, `AsyncClient` for those that do not.

Speaks HTTP and nothing else: no store, no worker is needed where it runs. Answers are plain dicts as the API gives
them; what the API refuses is raised as the error that it names, so that code for a store and for an API is the same.

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

Answer = dict[str, Any]
T = TypeVar("T")
_MOST_BYTES = 64_000_000
# The server closes connections that were silent for longer.
_IDLE_SECONDS = 10.0
_PATIENT_TRIES, _LONGEST_SECONDS = 10, 10.0
_NAMED = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}


def is_api(url: str) -> bool:
    """Whether a URL is that of an API, and not of a store."""
    return url.startswith(("http://", "https://"))


class Client:
    """One connection at a time, kept open between calls; threads may share it. The token may be in SHOAL_TOKEN."""

    def __init__(self, url: str, *, token: str | None = None, timeout_seconds: float = 30.0) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            # Without what was given: there may be a password in it.
            raise errors.InvalidInput("The URL of the API is none: its host or its port cannot be read.") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise errors.InvalidInput("The URL of an API begins with http:// or https:// and a host.")
        self.shown = f"{parts.scheme}://{parts.hostname}" + (f":{port}" if port else "")
        self._make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._place = (parts.hostname, port)
        self._root = parts.path.rstrip("/")
        self._token = (os.environ.get("SHOAL_TOKEN", "") if token is None else token).strip()
        if not re.fullmatch(r"[!-~]*", self._token):
            raise errors.InvalidInput("The token has a space, a line break or another character that no token has.")
        self._timeout = timeout_seconds
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None
        self._used_mono = 0.0

    # Crawls

    def submit(self, **request: Any) -> Answer:
        """Hand a crawl over. `request` has the fields of CrawlRequest; returns its `id` and if it was `created`."""
        return self._ask("POST", "/v1/crawls", request)

    def crawls(self, *, state: str = "", app: str = "") -> Iterator[Answer]:
        """Every crawl, the newest first."""
        return self._pages("/v1/crawls", "crawls", {"state": state, "app": app})

    def crawl(self, crawl: str) -> Answer:
        return self._ask("GET", _of(crawl))

    def pause(self, crawl: str) -> Answer:
        return self._ask("POST", _of(crawl, "pause"))

    def resume(self, crawl: str) -> Answer:
        return self._ask("POST", _of(crawl, "resume"))

    def stop(self, crawl: str) -> Answer:
        return self._ask("POST", _of(crawl, "stop"))

    def delete(self, crawl: str) -> None:
        self._ask("DELETE", _of(crawl))

    def add(self, crawl: str, seeds: Iterable[str]) -> Answer:
        """Add URLs to a crawl that is open."""
        return self._ask("POST", _of(crawl, "seeds"), {"seeds": list(seeds)})

    def failed(self, crawl: str) -> Iterator[Answer]:
        """Every URL that failed, with its reason, fetched a page at a time."""
        return self._pages(_of(crawl, "failed"), "failed", {"limit": "1000"})

    def retry(self, crawl: str) -> int:
        return int(self._ask("POST", _of(crawl, "retry"))["retried"])

    def records(self, crawl: str, *, kind: str = "page", fields: Iterable[str] = ()) -> Iterator[Answer]:
        """Every record of a crawl, fetched a page at a time."""
        return self._pages(_of(crawl, "records"), "records", {"kind": kind, "fields": ",".join(fields)})

    def events(self, crawl: str) -> Iterator[tuple[str, Answer]]:
        """('counts', ...) whenever they change, ('end', ...) when the crawl has ended; then it is over."""
        return self._events(crawl, max(60.0, self._timeout))

    def _events(self, crawl: str, silence_seconds: float) -> Iterator[tuple[str, Answer]]:
        connection = self._make(*self._place, timeout=silence_seconds)
        try:
            response = self._send(connection, "GET", _of(crawl, "events"), None)
            if response.status != 200:
                raise _refusal(response.status, response.read(_MOST_BYTES))
            name = ""
            for line in response:
                if line.startswith(b"event: "):
                    name = line[7:].strip().decode()
                elif line.startswith(b"data: "):
                    yield name, json.loads(line[6:])
        except (OSError, http.client.HTTPException) as error:
            raise self._away(error) from None
        finally:
            connection.close()

    def wait(self, crawl: str, *, timeout_seconds: float = float("inf")) -> Answer:
        """Wait for the end of a crawl, and return its description; TimeoutError when that takes longer.

        A server that is away is asked again.
        """
        return next(filter(None, self._waited(crawl, timeout_seconds)))

    def _waited(self, crawl: str, timeout_seconds: float) -> Iterator[Answer | None]:
        """None whenever something was heard of a crawl, and its description when it has ended."""
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
                raise TimeoutError(f"Crawl {crawl} has not ended within {timeout_seconds:g} s.")
            time.sleep(min(1.0, max(0.0, until - time.monotonic())))

    # The fleet

    def hosts(self) -> Iterator[Answer]:
        """Hosts that have something to do."""
        return self._pages("/v1/hosts", "hosts", {})

    def host(self, host: str) -> Answer:
        return self._ask("GET", f"/v1/hosts/{quote(host, safe='')}")

    def change_host(self, host: str, **changes: Any) -> Answer:
        """Set `delay_seconds`, `places` (None takes them back) or `blocked` (a reason, '' to unblock)."""
        return self._ask("PATCH", f"/v1/hosts/{quote(host, safe='')}", changes)

    def workers(self) -> list[Answer]:
        return list(self._pages("/v1/workers", "workers", {}))

    def stats(self) -> Answer:
        return self._ask("GET", "/v1/stats")

    def close(self) -> None:
        with self._lock:
            self._drop()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def _pages(self, path: str, field: str, query: dict[str, str]) -> Iterator[Answer]:
        cursor = ""
        while True:
            given = {name: value for name, value in (query | {"cursor": cursor}).items() if value}
            page = self._ask("GET", f"{path}?{urlencode(given)}" if given else path)
            if not isinstance(page.get(field), list):
                raise self._strange()
            yield from page[field]
            cursor = page.get("next") or ""
            if not cursor:
                return

    def _ask(self, method: str, path: str, body: Answer | None = None) -> Answer:
        for _ in range(_PATIENT_TRIES):
            with self._lock:
                status, raw, wait = self._answer(method, path, body)
            if status != 429:
                break
            # Nothing was done: who asks too often is told when to come back.
            time.sleep(min(float(wait) if wait.isdigit() else 1.0, _LONGEST_SECONDS))
        if status >= 400:
            raise _refusal(status, raw)
        with contextlib.suppress(ValueError):
            answer = json.loads(raw or b"{}")
            if status < 300 and isinstance(answer, dict):
                return answer
        raise self._strange()

    def _answer(self, method: str, path: str, body: Answer | None) -> tuple[int, bytes, str]:
        """Status, body, and what Retry-After says."""
        if self._connection is not None and time.monotonic() - self._used_mono > _IDLE_SECONDS:
            self._drop()
        if self._connection is None:
            self._connection = self._make(*self._place, timeout=self._timeout)
        try:
            response = self._send(self._connection, method, path, body)
            raw = response.read(_MOST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            raise self._away(error) from None
        self._used_mono = time.monotonic()
        return response.status, raw, response.getheader("Retry-After", "")

    def _send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Answer | None
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

    def _strange(self) -> errors.ShoalError:
        return errors.ShoalError(f"{self.shown} answers, but not as an API of Shoal does; is it the right URL?")

    def _away(self, error: Exception) -> errors.StoreUnavailable:
        why = str(error) or type(error).__name__
        return errors.StoreUnavailable(f"The API at {self.shown} does not answer: {why}.")


class AsyncClient:
    """The same for asyncio: each call in a thread of its own, so that none holds up the loop."""

    def __init__(self, url: str, *, token: str | None = None, timeout_seconds: float = 30.0) -> None:
        self._client = Client(url, token=token, timeout_seconds=timeout_seconds)

    async def submit(self, **request: Any) -> Answer:
        return await asyncio.to_thread(functools.partial(self._client.submit, **request))

    def crawls(self, *, state: str = "", app: str = "") -> AsyncIterator[Answer]:
        return _each(lambda: self._client.crawls(state=state, app=app))

    async def crawl(self, crawl: str) -> Answer:
        return await asyncio.to_thread(self._client.crawl, crawl)

    async def pause(self, crawl: str) -> Answer:
        return await asyncio.to_thread(self._client.pause, crawl)

    async def resume(self, crawl: str) -> Answer:
        return await asyncio.to_thread(self._client.resume, crawl)

    async def stop(self, crawl: str) -> Answer:
        return await asyncio.to_thread(self._client.stop, crawl)

    async def delete(self, crawl: str) -> None:
        await asyncio.to_thread(self._client.delete, crawl)

    async def add(self, crawl: str, seeds: Iterable[str]) -> Answer:
        return await asyncio.to_thread(self._client.add, crawl, seeds)

    def failed(self, crawl: str) -> AsyncIterator[Answer]:
        return _each(lambda: self._client.failed(crawl))

    async def retry(self, crawl: str) -> int:
        return await asyncio.to_thread(self._client.retry, crawl)

    def records(self, crawl: str, *, kind: str = "page", fields: Iterable[str] = ()) -> AsyncIterator[Answer]:
        return _each(lambda: self._client.records(crawl, kind=kind, fields=fields))

    def events(self, crawl: str) -> AsyncIterator[tuple[str, Answer]]:
        return _each(lambda: self._client.events(crawl))

    async def wait(self, crawl: str, *, timeout_seconds: float = float("inf")) -> Answer:
        heard = _each(lambda: self._client._waited(crawl, timeout_seconds))
        return await anext(told async for told in heard if told is not None)

    def hosts(self) -> AsyncIterator[Answer]:
        return _each(self._client.hosts)

    async def host(self, host: str) -> Answer:
        return await asyncio.to_thread(self._client.host, host)

    async def change_host(self, host: str, **changes: Any) -> Answer:
        return await asyncio.to_thread(functools.partial(self._client.change_host, host, **changes))

    async def workers(self) -> list[Answer]:
        return await asyncio.to_thread(self._client.workers)

    async def stats(self) -> Answer:
        return await asyncio.to_thread(self._client.stats)

    async def close(self) -> None:
        await asyncio.to_thread(self._client.close)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.close()


async def _each(make: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
    """What an iterator gives, each in a thread; a `StopIteration` may not leave one."""
    over = object()
    found = await asyncio.to_thread(make)
    while (one := await asyncio.to_thread(next, found, over)) is not over:
        yield one  # type: ignore[misc]


def _of(crawl: str, *rest: str) -> str:
    return "/".join(["/v1/crawls", quote(crawl, safe=""), *rest])


def _refusal(status: int, raw: bytes) -> errors.ShoalError:
    """The error that a problem names; of another server's answers only the status is told."""
    told: Any = None
    with contextlib.suppress(ValueError):
        told = json.loads(raw)
    if not isinstance(told, dict) or not isinstance(told.get("detail"), str):
        return errors.ShoalError(f"The API answers with status {status}, and not as Shoal does.")
    name = str(told.get("type", "")).rpartition(":")[2]
    kind = _NAMED.get(name, errors.StoreUnavailable if status == 503 else errors.ShoalError)
    if not issubclass(kind, errors.ShoalError) or kind is errors.FetchError:
        kind = errors.ShoalError
    error: errors.ShoalError = kind(told["detail"])
    return error
