"""Requests that do not come from the scheduler, such as files for a media pipeline: each waits for its host's turn too.

A guest is a visit of a crawl that only this process is given visits of, so that pages and files of all processes are
asked for as by one visitor. It is over when Scrapy is through with it; nobody else makes it when this process dies, as
the page that asked for it is made again. What such a process leaves is cleared away by a peer, or expires.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from typing import Any

import msgspec
from scrapy import Request
from scrapy.exceptions import IgnoreRequest

from shoal.errors import CrawlEnded, ShoalError, StoreHeld, StoreUnavailable, UnknownCrawl
from shoal.frontier import Frontier
from shoal.model.crawl_spec import Limits
from shoal.model.visit import Visit
from shoal.urls.canonical import canonical

log = logging.getLogger("shoal.scrapy")
_MARK = "scrapy.guest"
_LASTS_SECONDS = 6 * 3600.0
_AGAIN_SECONDS = 1.0


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

    @property
    def begun(self) -> bool:
        return self._generation > 0

    def __len__(self) -> int:
        """How many wait for their turn."""
        return len(self._waiting)

    async def turn(self, request: Request) -> None:
        """Wait until its host may be asked. IgnoreRequest when it never will be."""
        self._number += 1
        number, turn = self._number, asyncio.get_running_loop().create_future()
        self._waiting[number] = (request, turn)
        try:
            await self._add(Visit(url=canonical(request.url).url, found="other", meta={_MARK: number}))
            await turn
        finally:
            self._waiting.pop(number, None)

    def call(self, visit: Visit) -> Request | None:
        """It is this one's turn. None when nobody waits for it any more."""
        request, turn = self._waiting.pop(_number(visit), (None, None))
        if turn is None or turn.done():
            return None
        turn.set_result(None)
        return request

    async def look(self) -> None:
        """A host that is given up takes those along that wait for it, and a crawl that somebody stops all of them."""
        if self._ended:
            return
        crawls = self._frontier.crawls
        if not (await crawls.get(self._crawl)).state.open:
            self._ended = True
            for number in list(self._waiting):
                self._refuse(number, "its crawl was stopped")
            return
        if self._expires_at < time.time() + _LASTS_SECONDS / 2:
            self._expires_at = time.time() + _LASTS_SECONDS
            await crawls.expire(self._crawl, self._expires_at)
        if not self._waiting:
            return
        for visit, reason in await self._frontier.crawls.failed(self._crawl, 1000):
            self._refuse(_number(visit), reason)

    def _refuse(self, number: int, reason: str) -> None:
        request, turn = self._waiting.pop(number, (None, None))
        if turn is not None and not turn.done():
            turn.set_exception(IgnoreRequest(f"{request} is not asked for: {reason}."))

    async def close(self) -> None:
        if self._generation:
            await clear(self._frontier, self._frontier.worker)

    @property
    def _crawl(self) -> str:
        return f"{_name(self._frontier.worker)}@{self._generation}"

    async def _add(self, visit: Visit) -> None:
        while True:
            try:
                async with self._joining:
                    if self._ended:
                        await self._begin()
                added = await self._frontier.add(self._crawl, [visit], force=True)
                if not added.new:
                    raise IgnoreRequest(f"{visit.url} is not asked for: {', '.join(added.refused)}.")
                return
            except CrawlEnded:
                self._ended = True
            except (StoreUnavailable, StoreHeld) as error:
                log.error("%s Trying again.", error)
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _begin(self) -> None:
        """Those of a process that was killed where nobody sees it end by themselves."""
        self._generation += 1
        self._expires_at = time.time() + _LASTS_SECONDS
        limits = msgspec.structs.replace(self._limits, expires_at=self._expires_at)
        await self._frontier.crawls.create(self._crawl, limits, {"scrapy": "guests"}, exist_ok=True)
        self._ended = False


def tag_of(worker: str) -> str:
    """What the visits of a process's guests are marked with."""
    return f"scrapy:guests:{hashlib.sha1(worker.encode(), usedforsecurity=False).hexdigest()[:16]}"


def is_guest(visit: Visit) -> bool:
    return _MARK in visit.meta


async def clear(frontier: Frontier, worker: str) -> None:
    """Take away what the guests of a process have left."""
    generation = 1
    while True:
        crawl = f"{_name(worker)}@{generation}"
        try:
            await frontier.crawls.get(crawl)
        except UnknownCrawl:
            return
        with contextlib.suppress(CrawlEnded):
            await frontier.crawls.stop(crawl, "its process is gone")
        with contextlib.suppress(ShoalError):
            await frontier.crawls.delete(crawl)
        generation += 1


def _name(worker: str) -> str:
    return f"guests:{worker}"


def _number(visit: Visit) -> int:
    number: Any = visit.meta.get(_MARK)
    return number if type(number) is int else 0
