"""The client for asyncio: each method of `Client`, run in a thread."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, TypeVar

from shoal.client.client import Client
from shoal.client.connection import JsonObject

T = TypeVar("T")


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
