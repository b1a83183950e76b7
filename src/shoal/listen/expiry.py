"""Scrapy Cluster's `expired` message: sent to the replies of the source that a crawl came from, when it expires.

At least once: the message is marked as sent afterwards, and two bridges of one source may both send it.
"""

from __future__ import annotations

import heapq

import msgspec

from shoal.errors import UnknownCrawl
from shoal.frontier import Frontier
from shoal.frontier.inspect import store_seconds
from shoal.listen.source import DeliveryRefused, ReceivedMessage, Source
from shoal.model.crawl import Crawl, State
from shoal.model.crawl_request import CrawlRequest
from shoal.operations.events import Emit
from shoal.operations.scrapy_cluster import expired_message


class ExpiryNotices:
    """The crawls of one source that will expire. Kept in memory, and read again from the store after a restart."""

    def __init__(self, frontier: Frontier, source: Source, emit: Emit) -> None:
        self._frontier = frontier
        self._source = source
        self._emit = emit
        self._loaded = False
        # When each crawl expires by the store's clock, the earliest first.
        self._due: list[tuple[float, str]] = []

    def mark(self, request: CrawlRequest) -> CrawlRequest:
        """The request with the source that gets the message, if it is one of Scrapy Cluster's that expires."""
        if not request.expired_message:
            return request
        return msgspec.structs.replace(
            request, expired_message={**request.expired_message, "source": self._source.shown}
        )

    def watch(self, crawl_id: str, request: CrawlRequest) -> None:
        if request.expired_message and (request.expires_at, crawl_id) not in self._due:
            heapq.heappush(self._due, (request.expires_at, crawl_id))

    async def send_due(self) -> None:
        if not self._loaded:
            await self._load()
        while self._due and self._due[0][0] <= await store_seconds(self._frontier):
            # It stays in the list until it is sent: a store or source that fails is tried again.
            await self._send(*self._due[0])
            heapq.heappop(self._due)

    async def _load(self) -> None:
        due = [
            (crawl.limits.expires_at, crawl.id)
            async for crawl in self._frontier.crawls.all()
            if crawl.limits.expires_at and _ids(crawl).get("source") == self._source.shown
        ]
        self._due = sorted({*self._due, *due})
        self._loaded = True

    async def _send(self, expires_at: float, crawl_id: str) -> None:
        try:
            crawl = await self._frontier.crawls.get(crawl_id)
        except UnknownCrawl:
            return
        # An `expire` request has changed the time, and has had its own reply.
        if crawl.state is not State.EXPIRED or crawl.limits.expires_at != expires_at:
            return
        if (await self._frontier.crawls.facts.read(crawl_id)).notified:
            return
        body = await expired_message(self._frontier, crawl)
        try:
            await self._source.reply(ReceivedMessage(b"", "", None), "", msgspec.json.encode(body))
        except DeliveryRefused as error:
            text = f"The message that crawl {crawl_id} has expired cannot be sent: {error}"
            self._emit(text, event="request.dropped", source=self._source.shown, crawl=crawl_id)
        await self._frontier.crawls.facts.mark_notified(crawl_id)


def _ids(crawl: Crawl) -> dict[str, str]:
    ids = crawl.spec.get("expired_message")
    return ids if isinstance(ids, dict) else {}
