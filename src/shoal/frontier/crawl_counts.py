"""Counts of crawls, summed over all shards and branches, and the check whether a crawl is finished."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from shoal.frontier.crawl_codec import reasons_now
from shoal.frontier.crawl_records import CrawlRecords, family
from shoal.frontier.scripts import Status
from shoal.frontier.shards import Shards
from shoal.model.crawl import Counts, Crawl


class CrawlCounts:
    def __init__(self, shards: Shards, records: CrawlRecords) -> None:
        self._shards = shards
        self._records = records
        # Adds links again that a shard may have lost; returns how many there were.
        self.replay_links: Callable[[], Awaitable[int]] | None = None

    async def count(
        self, crawl_id: str, *, all_admissions: bool = False, within_seconds: float | None = None
    ) -> Counts:
        """The counts of the crawl's URLs by their current state, summed over all shards.

        With `all_admissions`, a URL that failed and was retried is counted as failed, and again in its current state:
        then no count of ended visits ever decreases. With `within_seconds`, only shards that reply in time are counted.
        """
        totals = [0] * 10
        reasons: dict[str, int] = {}
        for reply in await self._count_all(crawl_id, within_seconds):
            for index, number in enumerate((*reply[3:10], *reply[11:14])):
                totals[index] += number
            for name, number in zip(reply[14::2], reply[15::2], strict=True):
                reason = name.decode(errors="replace")
                reasons[reason] = reasons.get(reason, 0) + (int(number) if number.isdigit() else 0)
        admitted, waiting, leased, later, stored, failed, excluded, retried, readmitted, revisited = totals
        if all_admissions:
            retried = readmitted = revisited = 0
        return Counts(
            admitted=admitted - retried - readmitted - revisited, waiting=waiting, leased=leased, later=later,
            stored=stored - revisited, failed=failed - retried, excluded=excluded - readmitted,
            reasons=reasons_now(reasons, all_admissions=all_admissions),
        )  # fmt: skip

    async def finished(self, crawl_id: str) -> bool:
        """True exactly when nothing is waiting, leased or due later in any shard.

        A perpetual crawl is not finished while it is open.

        Ended visits are read from all shards before admitted ones: a visit that ends in between has added its links
        before, so the sums cannot be equal too early. Branches are looked up each time for the same reason.
        """
        if (await self._records.known(crawl_id)).perpetual and (await self._records.get(crawl_id)).state.open:
            # No other process adds links again that a shard has lost.
            if self.replay_links is not None:
                await self.replay_links()
            return False
        ended, servers = await self._sum(crawl_id, slice(7, 10))
        if self.replay_links is not None and await self.replay_links():
            return False
        admitted, same_servers = await self._sum(crawl_id, slice(3, 4))
        return ended == admitted and servers == same_servers

    async def _sum(self, crawl_id: str, fields: slice) -> tuple[int, list[bytes]]:
        """A sum over all shards, and the server processes that replied: after a failover, counts may be older."""
        total, servers = 0, []
        for name in await family(self._records, crawl_id):
            for reply in (await self._count(await self._records.known(name))).values():
                if reply[0] == Status.OK:
                    total += sum(reply[fields])
                servers.append(reply[10 if reply[0] == Status.OK else 1])
        return total, servers

    async def _count_all(self, crawl_id: str, within_seconds: float | None = None) -> list[list[Any]]:
        """One reply of each shard that has the crawl or a branch of it."""
        names = await family(self._records, crawl_id)
        replies = [
            reply
            for name in names
            for reply in (await self._count(await self._records.known(name), within_seconds)).values()
        ]
        return [reply for reply in replies if reply[0] == Status.OK]

    async def _count(self, crawl: Crawl, within_seconds: float | None = None) -> dict[int, list[Any]]:
        args = dict.fromkeys(range(self._shards.count), (crawl.key,))
        return await self._shards.call_all("count", args, within_seconds=within_seconds)
