"""Counts the bytes and items that a worker has received for each crawl, and reports them to the store.

Reports samples of excluded URLs as well.
"""

from __future__ import annotations

import contextlib

from shoal.errors import CrawlEnded, StoreError, UnknownCrawl
from shoal.frontier import Frontier, mono
from shoal.frontier.samples import add_samples
from shoal.worker.crawl_context import CrawlContexts
from shoal.worker.shard_backlog import ShardBacklog

_REPORT_SECONDS = 0.5


class ReceivedBytes:
    def __init__(self, frontier: Frontier, contexts: CrawlContexts, shards: ShardBacklog) -> None:
        self._frontier = frontier
        self._contexts = contexts
        self._shards = shards
        self._counts: dict[str, int] = {}
        self._items: dict[str, int] = {}
        self._reported_mono = mono()

    def add(self, crawl: str, count: int, items: int = 0) -> None:
        self._counts[crawl] = self._counts.get(crawl, 0) + count
        if items:
            self._items[crawl] = self._items.get(crawl, 0) + items

    async def report(self, *, now: bool = False) -> None:
        """Report the bytes, and finish a crawl that has reached its byte limit."""
        await self._report_samples()
        if not self._counts:
            return
        with contextlib.suppress(StoreError, UnknownCrawl):
            contexts = [await self._contexts.of(crawl) for crawl in self._counts]
            limited = any(context.policy.max_bytes for context in contexts)
            if not (now or limited or mono() - self._reported_mono > _REPORT_SECONDS):
                return
        self._reported_mono = mono()
        counts, self._counts = self._counts, {}
        for crawl, count in counts.items():
            if self._frontier.shards.home(crawl) in self._shards.unavailable:
                self.add(crawl, count)
                continue
            with contextlib.suppress(StoreError, UnknownCrawl, CrawlEnded):
                received = await self._shards.unless_stuck(self._frontier.crawls.facts.add_bytes(crawl, count))
                if items := self._items.pop(crawl, 0):
                    await self._shards.unless_stuck(self._frontier.crawls.tally(crawl, items=items))
                context = await self._contexts.of(crawl)
                max_bytes = context.policy.max_bytes
                if max_bytes and received is not None and received >= max_bytes:
                    await self._frontier.crawls.end(context.crawl, "bytes")

    async def _report_samples(self) -> None:
        """Nothing depends on them: samples that the store does not take are lost."""
        for crawl, samples in self._contexts.take_samples():
            if self._frontier.shards.home(crawl) not in self._shards.unavailable:
                with contextlib.suppress(StoreError, UnknownCrawl):
                    await self._shards.unless_stuck(add_samples(self._frontier, crawl, samples))
