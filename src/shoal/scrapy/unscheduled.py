"""Requests that do not come from the scheduler, e.g. files of a media pipeline. Each waits for its host's turn too.

Such a request is a visit of a crawl that belongs to this process alone. So pages and files of all processes together
keep to the host's delay. The visit ends when Scrapy has finished it. If this process dies, no other process makes it,
because the page that requested it is made again. A peer deletes the crawl of a dead process, or it expires.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from scrapy import Request
from scrapy.exceptions import IgnoreRequest

from shoal.errors import CrawlEnded, ShoalError, UnknownCrawl
from shoal.frontier import Frontier
from shoal.frontier.retry import until_ready
from shoal.model.limits import Limits
from shoal.model.visit import Added, Visit
from shoal.operations.scrapy_crawl import generation_id
from shoal.scrapy.request_target import target_of

log = logging.getLogger("shoal.scrapy")
_PREFIX = "guests:"
_NUMBER_KEY = "scrapy.guest"
_EXPIRY_SECONDS = 6 * 3600.0


class UnscheduledRequests:
    def __init__(self, frontier: Frontier, limits: Limits) -> None:
        self._frontier = frontier
        self.tag = tag_of(frontier.worker)
        self._limits = msgspec.structs.replace(limits, spider=self.tag, order="fifo")
        self._waiting: dict[int, tuple[Request, asyncio.Future[None]]] = {}
        self._number = 0
        self._generation = 0
        self._ended = True
        self._expires_at = 0.0
        self._joining = asyncio.Lock()
        # Called when a request waits in the store.
        self.on_waiting: Callable[[], None] = lambda: None

    @property
    def active(self) -> bool:
        """Whether this process has made any unscheduled request."""
        return self._generation > 0

    def __len__(self) -> int:
        """The number of requests that wait for their turn."""
        return len(self._waiting)

    async def wait_turn(self, request: Request) -> None:
        """Wait until the host may be requested. IgnoreRequest when the request was refused or has failed."""
        self._number += 1
        number, turn = self._number, asyncio.get_running_loop().create_future()
        self._waiting[number] = (request, turn)
        try:
            await self._add(Visit(url=target_of(request.url).url, found="other", meta={_NUMBER_KEY: number}))
            self.on_waiting()
            await turn
        finally:
            self._waiting.pop(number, None)

    def admit(self, visit: Visit) -> Request | None:
        """Let the request of a visit proceed. None when it does not wait any more."""
        request, turn = self._waiting.pop(_number(visit), (None, None))
        if turn is None or turn.done():
            return None
        turn.set_result(None)
        return request

    async def check(self) -> None:
        """Refuse the requests whose host has failed, or all of them when the crawl was stopped."""
        if self._ended:
            return
        crawls = self._frontier.crawls
        if not (await crawls.get(self._crawl)).state.open:
            self._ended = True
            for number in list(self._waiting):
                self._refuse(number, "its crawl was stopped")
            return
        if self._expires_at < time.time() + _EXPIRY_SECONDS / 2:
            self._expires_at = time.time() + _EXPIRY_SECONDS
            await crawls.expire(self._crawl, self._expires_at)
        if not self._waiting:
            return
        for visit, reason in await self._frontier.crawls.failed(self._crawl, 1000):
            self._refuse(_number(visit), reason)

    def _refuse(self, number: int, reason: str) -> None:
        request, turn = self._waiting.pop(number, (None, None))
        if turn is not None and not turn.done():
            turn.set_exception(IgnoreRequest(f"{request} was not made: {reason}."))

    async def close(self) -> None:
        if self._generation:
            await clear(self._frontier, self._frontier.worker)

    @property
    def _crawl(self) -> str:
        return generation_id(_crawl_name(self._frontier.worker), self._generation)

    async def _add(self, visit: Visit) -> None:
        while True:
            try:
                added = await until_ready(partial(self._add_once, visit), partial(log.error, "%s Retrying."))
            except CrawlEnded:
                self._ended = True
                continue
            if not added.new:
                raise IgnoreRequest(f"{visit.url} was not made: {', '.join(added.refused)}.")
            return

    async def _add_once(self, visit: Visit) -> Added:
        async with self._joining:
            if self._ended:
                await self._create_crawl()
        return await self._frontier.add(self._crawl, [visit], force=True)

    async def _create_crawl(self) -> None:
        """Create the crawl of this process. It expires, in case the process is killed and no peer notices."""
        self._generation += 1
        self._expires_at = time.time() + _EXPIRY_SECONDS
        limits = msgspec.structs.replace(self._limits, expires_at=self._expires_at)
        await self._frontier.crawls.create(self._crawl, limits, {"scrapy": "guests"}, exist_ok=True)
        self._ended = False


def tag_of(worker: str) -> str:
    """The `spider` of the unscheduled visits of a process."""
    return f"scrapy:guests:{hashlib.sha1(worker.encode(), usedforsecurity=False).hexdigest()[:16]}"


def is_unscheduled(visit: Visit) -> bool:
    return _NUMBER_KEY in visit.meta


async def clear(frontier: Frontier, worker: str) -> None:
    """Stop and delete the crawls of a process's unscheduled requests."""
    generation = 1
    while True:
        crawl = generation_id(_crawl_name(worker), generation)
        try:
            await frontier.crawls.get(crawl)
        except UnknownCrawl:
            return
        with contextlib.suppress(CrawlEnded):
            await frontier.crawls.stop(crawl, "its process is gone")
        with contextlib.suppress(ShoalError):
            await frontier.crawls.delete(crawl)
            await frontier.crawls.erase(crawl)
        generation += 1


def is_unscheduled_crawl(crawl_id: str) -> bool:
    return crawl_id.startswith(_PREFIX)


def _crawl_name(worker: str) -> str:
    return f"{_PREFIX}{worker}"


def _number(visit: Visit) -> int:
    number: Any = visit.meta.get(_NUMBER_KEY)
    return number if type(number) is int else 0
