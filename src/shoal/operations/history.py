"""Writing the history: once a minute, the counts of each open crawl and the growth of the whole fleet.

The maintainer writes it beside its other work, and never in the path of a page.
"""

from __future__ import annotations

from shoal.frontier import Frontier
from shoal.frontier.history import Point, Totals
from shoal.frontier.inspect import list_crawls, store_seconds
from shoal.model.crawl import Crawl, CrawlKind

# A crawl that ended within this time is still written: its last pages belong to the history.
_ENDED_SECONDS = 180.0


class HistoryWriter:
    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self._minute = 0

    async def write_if_due(self) -> bool:
        """Write this minute's points. Returns False if they were already written."""
        now = await store_seconds(self._frontier)
        if int(now) // 60 == self._minute:
            return False
        await self.write(now)
        self._minute = int(now) // 60
        return True

    async def write(self, now: float) -> None:
        """Write the points for `now`, a time of the store's clock."""
        history = self._frontier.history
        grown = [0, 0, 0, 0]
        left = 0
        async for created_at, crawl in list_crawls(self._frontier):
            if crawl.kind is CrawlKind.BRANCH or not (crawl.state.open or now - crawl.ended_at < _ENDED_SECONDS):
                continue
            totals = await self._totals(crawl)
            before = await history.write(crawl, now, totals)
            left += totals.open
            for index, growth in enumerate(_growth(before, totals, new=now - created_at < _ENDED_SECONDS)):
                grown[index] += growth
        last = await history.last(None)
        counted = last.totals[:4] if last is not None else (0, 0, 0, 0)
        stored, failed, excluded, received = (total + growth for total, growth in zip(counted, grown, strict=True))
        workers = len(await self._frontier.workers.alive())
        await history.write(None, now, Totals(stored, failed, excluded, received, left, workers))

    async def _totals(self, crawl: Crawl) -> Totals:
        # Counts of all admissions only grow: a failed URL that is retried does not make a rate negative.
        counts = await self._frontier.crawls.count(crawl.id, all_admissions=True)
        received = (await self._frontier.crawls.facts.read(crawl.id)).bytes_received
        return Totals(counts.stored, counts.failed, counts.excluded, received, counts.open)


def _growth(before: Point | None, totals: Totals, *, new: bool) -> list[int]:
    """The growth since the last point: all counts of a new crawl, none of an old crawl without a history."""
    if before is None:
        return list(totals[:4]) if new else [0, 0, 0, 0]
    return [max(0, total - previous) for previous, total in zip(before.totals[:4], totals[:4], strict=True)]
