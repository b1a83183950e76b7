"""Outputs that are away: their crawls are paused and their pages kept, so that nobody else's crawl waits with them.

The pages stay leased and in memory; nothing is fetched twice. When the output is back they are delivered, and their
crawls go on. A worker says of itself which crawls it has paused, so that a tender takes that back when it is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable

from shoal.errors import CrawlEnded, StoreError, UnknownCrawl
from shoal.frontier import Frontier, mono
from shoal.model.crawl import OUTPUT_AWAY
from shoal.worker.crawl_context import CrawlContext
from shoal.worker.hold import Hold
from shoal.worker.outcome import VisitResult
from shoal.worker.outputs import Outputs, OutputUnavailable

# Beyond this, pages are not kept but made again.
_MOST_WEIGHT = 50_000_000
# One that is away again within this time is left alone for longer, each time by so much.
_AGAIN_SECONDS, _SECONDS_A_TIME = 120.0, 15.0


class _Outage:
    """One output that is away."""

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence
        self.kept: list[VisitResult] = []
        self.crawls: set[str] = set()
        self.waiting: asyncio.Task[None] | None = None


class OutputHealth:
    def __init__(self, frontier: Frontier, outputs: Outputs, deliver: Callable[[VisitResult], None]) -> None:
        """`deliver` takes each page that was kept, when its output is back."""
        self._frontier = frontier
        self._outputs = outputs
        self._deliver = deliver
        self._outages: dict[str, _Outage] = {}
        # When the last one ended, and how many there were, one soon after the other.
        self._before: dict[str, tuple[float, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._outages)

    def __len__(self) -> int:
        """How many pages are kept."""
        return sum(len(outage.kept) for outage in self._outages.values())

    @property
    def _weight(self) -> int:
        return sum(one.weight for outage in self._outages.values() for one in outage.kept)

    @property
    def crawls(self) -> list[str]:
        """Those that this worker has paused."""
        return sorted({name for outage in self._outages.values() for name in outage.crawls})

    @property
    def sentence(self) -> str:
        return next((outage.sentence for outage in self._outages.values()), "")

    def output_of(self, conduct: CrawlContext | None) -> str:
        """The URI of an output of this crawl that is away, '' if there is none."""
        if not self._outages or conduct is None:
            return ""
        return next((uri for uri in conduct.places if uri in self._outages), "")

    async def take_out(
        self, batch: list[VisitResult], away: OutputUnavailable | None
    ) -> tuple[list[VisitResult], set[Hold]]:
        """Keep the pages of an output that is away, `away` or one that was before. Also returns whose they are."""
        if away is not None and away.uri not in self._outages:
            files = any(one.conduct is not None and away.uri == one.conduct.policy.files for one in batch)
            self._outages[away.uri] = outage = _Outage(str(away))
            outage.waiting = asyncio.create_task(self._wait(away.uri, outage, files=files))
        rest, holds, crawls, room = [], set(), set(), _MOST_WEIGHT - self._weight
        for one in batch:
            uri = self.output_of(one.conduct)
            if not uri or one.conduct is None:
                rest.append(one)
                continue
            crawls.add((uri, one.conduct.name))
            room -= one.weight
            if room > 0:
                self._outages[uri].kept.append(one)
                holds.add(one.hold)
            else:
                # Made again when its crawl goes on.
                rest.append(VisitResult(one.hold, one.visit, one.visit.retry(1.0)))
        for uri, crawl in sorted(crawls):
            await self.pause(uri, crawl)
        return rest, holds

    async def pause(self, uri: str, crawl: str) -> None:
        """See to it that nobody takes more of this crawl."""
        outage = self._outages.get(uri)
        if outage is None:
            return
        if crawl not in outage.crawls:
            outage.crawls.add(crawl)
            print(f"Crawl {crawl} is paused until its output is back: {outage.sentence}", file=sys.stderr, flush=True)
        # A store that is away pauses everything by itself.
        with contextlib.suppress(StoreError, CrawlEnded, UnknownCrawl):
            await self._frontier.crawls.pause(crawl, OUTPUT_AWAY)

    async def _wait(self, uri: str, outage: _Outage, *, files: bool) -> None:
        ended_mono, times = self._before.get(uri, (0.0, 0))
        if mono() - ended_mono > _AGAIN_SECONDS:
            times = 0
        # It could be reached, and took nothing: whoever tries holds up the others for some seconds.
        await asyncio.sleep(min(_SECONDS_A_TIME * times, _AGAIN_SECONDS / 2))
        # One that refuses now, or whatever it does, says so to whoever writes to it.
        with contextlib.suppress(Exception):
            await self._outputs.reach(uri, files=files)
        del self._outages[uri]
        self._before[uri] = (mono(), times + 1)
        for one in outage.kept:
            self._deliver(one)
        for crawl in sorted(outage.crawls):
            print(f"Crawl {crawl} goes on: its output is back.", file=sys.stderr, flush=True)
            # If this is lost, a tender does it.
            with contextlib.suppress(StoreError, CrawlEnded, UnknownCrawl):
                await self._frontier.crawls.resume(crawl, OUTPUT_AWAY)

    async def close(self) -> None:
        """Wait no longer: what is kept is given back with its leases."""
        waiting = [outage.waiting for outage in self._outages.values() if outage.waiting is not None]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
