"""When a process closes: the crawl is finished, was stopped, or has only requests left that this process cannot make.

Owns the heartbeat, because both need the same calls. A process that becomes idle checks at once; while it stays idle,
because other processes are busy, it checks less and less often.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from shoal.errors import ShoalError
from shoal.frontier import Frontier, mono
from shoal.model.crawl import Crawl, State
from shoal.operations.run import finish_if_over
from shoal.scrapy import crawl_join, left_to_others
from shoal.scrapy.lease_feed import LeaseFeed
from shoal.scrapy.outbox import Outbox
from shoal.scrapy.peers import Peers
from shoal.scrapy.unscheduled import UnscheduledRequests

log = logging.getLogger("shoal.scrapy")
# How soon an idle process checks whether the crawl is finished, and its longest interval.
_CHECK_SECONDS = 0.1
_MAX_CHECK_SECONDS = 1.0
# A process that becomes idle checks after this time: usually it has leased the next request by then.
_SETTLE_SECONDS = 0.05
_HEARTBEAT_SECONDS = 5.0
_STOPPED_STATES = (State.STOPPED, State.EXPIRED, State.DELETED)


class CrawlEnd:
    """`filling` is whether requests are still being added from elsewhere; `wake` lets the engine check again."""

    def __init__(
        self, frontier: Frontier, crawl: Crawl, feed: LeaseFeed, outbox: Outbox, peers: Peers,
        unscheduled: UnscheduledRequests, left: left_to_others.LeftToOthers, *, idle_seconds: float,
        filling: Callable[[], bool], wake: Callable[[], None],
    ) -> None:  # fmt: skip
        self._frontier = frontier
        self._crawl = crawl.id
        self._has_deadline = bool(crawl.limits.max_seconds)
        self._feed = feed
        self._outbox = outbox
        self._peers = peers
        self._unscheduled = unscheduled
        self._left = left
        self._idle_seconds = idle_seconds
        self._filling = filling
        self._wake = wake
        # Nothing is left to do, so Scrapy may close.
        self.finished = False
        # The crawl accepts nothing more.
        self.ended = not crawl.state.open
        # The reason for Scrapy to close, unless the crawl is finished.
        self.reason = ""
        # Waiting requests of all processes, as of the last heartbeat.
        self.waiting = 0
        # Requests that this process has added so far. A check that began before one of them decides nothing.
        self._added = 0
        self._finished_mono = 0.0
        self._settled = asyncio.Event()

    def changed(self) -> None:
        """Something was sent to the store; perhaps this process is idle now."""
        if self._idle:
            self._settled.set()

    def request_added(self) -> None:
        self._added += 1
        self.finished = False

    async def reopen(self) -> bool:
        """Another process finished the crawl while this one had more requests to add."""
        if await crawl_join.reopen(self._frontier, self._crawl):
            return True
        self.ended = True
        return False

    async def run(self) -> None:
        """Send heartbeats, and check whether the crawl is finished or was stopped."""
        heartbeat_mono, pause = mono(), _CHECK_SECONDS
        while True:
            if await self._settles(pause):
                pause = _CHECK_SECONDS
            try:
                if mono() - heartbeat_mono > _HEARTBEAT_SECONDS:
                    heartbeat_mono = mono()
                    await self._heartbeat()
                checked = await self._check()
                pause = min(1.5 * pause, _MAX_CHECK_SECONDS) if checked else _CHECK_SECONDS
            except ShoalError as error:
                log.error("%s", error)

    @property
    def _idle(self) -> bool:
        return self._feed.idle and not len(self._outbox)

    async def _settles(self, seconds: float) -> bool:
        """Wait until this process becomes idle; False if it does not within this time."""
        try:
            async with asyncio.timeout(seconds):
                await self._settled.wait()
        except TimeoutError:
            return False
        self._settled.clear()
        await asyncio.sleep(_SETTLE_SECONDS)
        return True

    async def _heartbeat(self) -> None:
        await self._peers.heartbeat()
        await self._unscheduled.check()
        if self._has_deadline:
            await finish_if_over(self._frontier, self._crawl, seeded=True)
        state = (await self._frontier.crawls.get(self._crawl)).state
        self.ended = self.ended or state in _STOPPED_STATES
        added = self._added
        counts = await self._frontier.crawls.count(self._crawl)
        self.waiting = counts.waiting
        if self._idle and self._added == added and self._left.is_all(counts):
            self.reason, self.finished = left_to_others.REASON, True
            self._wake()

    async def _check(self) -> bool:
        """Check whether the crawl is finished. False when this process is busy, so that there was nothing to check."""
        if not self._idle:
            self._finished_mono = 0.0
            return False
        added = self._added
        if not self.ended and not await self._frontier.crawls.finished(self._crawl):
            self._finished_mono = 0.0
            return True
        if not self._finished_mono:
            self._finished_mono = mono()
        if mono() - self._finished_mono < self._idle_seconds:
            return True
        # Also if it was not known to have ended: a crawl that was just stopped has nothing left to do.
        state = (await self._frontier.crawls.get(self._crawl)).state
        self.reason = state.value if state in _STOPPED_STATES else ""
        if self._idle and self._added == added and not self._filling():
            self.finished = True
            self._wake()
        return True
