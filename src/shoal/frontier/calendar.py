"""The calendar: the scheduled visits of a perpetual crawl, and the pace and pages of a host. Reads only.

Pages get into the calendar by `acknowledge` and leave it by `lease` (lua/include/calendar.lua).
"""

from __future__ import annotations

from typing import NamedTuple

from shoal.frontier import keys, visit_codec
from shoal.frontier.crawls import Crawls
from shoal.frontier.scripts import Status
from shoal.frontier.shards import Shards

# Buckets of a shard, and pages of a bucket, that are read for an estimate.
_SAMPLED = 10


class HostPages(NamedTuple):
    """The pages of one host in a perpetual crawl.

    pace_seconds  duration of a request with the delay after it
    pages         number of pages by rate class (politeness.revisit)
    """

    pace_seconds: float
    pages: dict[int, int]


class Upcoming(NamedTuple):
    """The scheduled visits of a perpetual crawl.

    pages    number of pages in the calendar; other pages wait or are being visited
    seconds  time until the next of them is due; None if unknown
    visited_ago_seconds  time since the last visit of a page, the mean of a sample
    """

    pages: int
    seconds: float | None
    visited_ago_seconds: float


class Calendar:
    """Reached as `frontier.calendar`."""

    def __init__(self, shards: Shards, crawls: Crawls) -> None:
        self._shards = shards
        self._crawls = crawls

    async def host(self, crawl_id: str, host: str) -> HostPages:
        """The pages of a host, by how often they change."""
        crawl = await self._crawls.known(crawl_id)
        reply = await self._shards.call("schedule", self._shards.of(host), (crawl.key, host))
        if reply[0] != Status.OK:
            return HostPages(0.0, {})
        pairs = (part.partition(":") for part in reply[5].decode().split())
        return HostPages(float(reply[4]) / 1000, {int(number): int(pages) for number, _, pages in pairs})

    async def upcoming(self, crawl_id: str) -> Upcoming:
        """The scheduled visits of the crawl and its branches."""
        pages, first = 0, None
        ages: list[float] = []
        for name in [crawl_id, *await self._crawls.branches(crawl_id)]:
            crawl = await self._crawls.known(name)
            args = dict.fromkeys(range(self._shards.count), (crawl.key, ""))
            for shard, reply in (await self._shards.call_all("schedule", args)).items():
                if reply[0] == Status.OK and reply[2] > 0:
                    pages += reply[2]
                    ages += await self._ages(self._shards.prefixes[shard], crawl.key, reply[1] / 1000)
                    if reply[3] >= 0:
                        first = reply[3] if first is None else min(first, reply[3])
        return Upcoming(pages, None if first is None else first / 1000, sum(ages) / len(ages) if ages else 0.0)

    async def _ages(self, prefix: str, key: str, now: float) -> list[float]:
        """How long ago some pages of this shard were visited."""
        command, calendar = self._shards.store.command, keys.calendar(prefix)
        ages = []
        for bucket in await command("ZRANDMEMBER", calendar, _SAMPLED, key=calendar):
            if bucket.startswith(key.encode() + b":"):
                name = keys.due(prefix, bucket.decode())
                for member in await command("LRANGE", name, 0, _SAMPLED - 1, key=name):
                    ages.append(max(0.0, now - visit_codec.history_of(member).last_visited))
        return ages
