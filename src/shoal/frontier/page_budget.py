"""`max_pages` across shards: the home shard has the remaining pages, and other shards draw the pages that they lease.

    pages = left at home + granted, not yet received + budget in shards + leased + stored

Every move is written as a total that only grows, on both sides, so it can be repeated, and any worker can complete it
after its caller has died.
"""

from __future__ import annotations

from shoal.frontier.crawls import Crawls
from shoal.frontier.scripts import Status
from shoal.frontier.shards import SLOW_SECONDS, Shards
from shoal.model.crawl import Crawl


class PageBudget:
    def __init__(self, shards: Shards, crawls: Crawls) -> None:
        self._shards = shards
        self._crawls = crawls
        # By crawl, the pages that the home shard had left at the last call.
        self._left: dict[str, int] = {}

    async def distribute(self, key: str) -> None:
        """Give pages to the shards that need some; finish the crawl when all pages are stored."""
        crawl = await self._crawls.by_key(key)
        state = await self._allow_all(crawl, "", "0")
        if sum(counts[4] for counts in state.values()) >= crawl.limits.max_pages:
            await self._crawls.end(crawl, "max pages")
            return
        without_budget = [shard for shard, (_, _, budget, waiting, _) in state.items() if waiting and not budget]
        if not await self._grant(crawl, state, without_budget):
            # The home shard has no pages left: first return the pages that other shards have and cannot use.
            state = await self._allow_all(crawl, "", "1")
            for shard, (received, returned, *_) in state.items():
                await self._draw(crawl, shard, received, returned, 0)
            await self._grant(crawl, state, without_budget)

    async def _grant(self, crawl: Crawl, state: dict[int, list[int]], without_budget: list[int]) -> bool:
        """True when every shard that needs pages got some."""
        for shard in without_budget:
            received, returned, _, waiting, _ = state[shard]
            # A share of the remaining pages, so that at the end no shard holds pages that others need.
            left = self._left.get(crawl.key, crawl.limits.max_pages)
            requested = max(1, min(waiting, left // (2 * self._shards.count)))
            granted = await self._draw(crawl, shard, received, returned, requested)
            if granted <= received:
                return False
            await self._shards.call("allow", shard, (crawl.key, granted, "0"), replicated=True)
        return True

    async def _draw(self, crawl: Crawl, shard: int, received: int, returned: int, requested: int) -> int:
        args = (crawl.id, shard, received, returned, requested)
        reply = await self._shards.call("draw", self._shards.home(crawl.id), args, replicated=True)
        self._left[crawl.key] = int(reply[2])
        return int(reply[1])

    async def _allow_all(self, crawl: Crawl, granted: int | str, back: str) -> dict[int, list[int]]:
        args = dict.fromkeys(range(self._shards.count), (crawl.key, granted, back))
        # Shards that do not respond now are left out: the others get their budget without them.
        replies = await self._shards.call_all("allow", args, replicated=True, within_seconds=2 * SLOW_SECONDS)
        return {shard: reply[1:] for shard, reply in replies.items() if reply[0] == Status.OK}
