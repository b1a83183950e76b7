"""History: the counts of each crawl and of the fleet over time, by minute for a day and by hour for 90 days.

Owns the points in the store. They are for people: no decision depends on them, and a dump does not contain them. The
lists are bounded; docs/reference/store-keys.md lists their cost. operations/history.py writes them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from shoal.frontier import keys
from shoal.frontier.shards import STORE, Shards
from shoal.model.crawl import Crawl

_FLEET = "fleet"


class Step(StrEnum):
    MINUTE = "minute"
    HOUR = "hour"

    @property
    def seconds(self) -> int:
        return 60 if self is Step.MINUTE else 3600


class Totals(NamedTuple):
    """Counts since a crawl was created; of the fleet, since its history began. `open`: URLs without a final state."""

    stored: int = 0
    failed: int = 0
    excluded: int = 0
    bytes: int = 0
    open: int = 0
    workers: int = 0


class Point(NamedTuple):
    """Totals as they were in one minute or hour. `at` is its start, in seconds since 1970."""

    at: int
    totals: Totals


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """The growth of the totals between two points in time.

    at        the later point, in seconds since 1970
    seconds   time since the earlier point
    stored    pages that were stored
    failed    URLs that failed
    excluded  URLs that were excluded
    bytes     bytes that were received
    open      URLs without a final state at the later point
    workers   live workers at the later point; 0 in the history of a crawl
    """

    at: int
    seconds: int
    stored: int
    failed: int
    excluded: int
    bytes: int
    open: int
    workers: int


class CountHistory:
    """Reached as `frontier.history`. A crawl of None is the fleet."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    async def last(self, crawl: Crawl | None) -> Point | None:
        """The last point by minute."""
        return await self._call(crawl, 0, 0, b"", b"")

    async def write(self, crawl: Crawl | None, now: float, totals: Totals) -> Point | None:
        """Write the totals of this minute, and return the point before it."""
        minute, hour = (int(now) // step.seconds for step in Step)
        by_minute, by_hour = (msgspec.msgpack.encode((time, *totals)) for time in (minute, hour))
        return await self._call(crawl, minute, hour, by_minute, by_hour)

    async def read(self, crawl: Crawl | None, step: Step, most: int = 0) -> list[Point]:
        """The last `most` points (0: all), oldest first."""
        if crawl is None:
            prefix = keys.store_meta(self._shards.namespace).removesuffix("meta")
        else:
            prefix = self._shards.prefixes[self._shards.home(crawl.id)]
        key = keys.history(prefix, step.value, _name(crawl))
        packed = await self._shards.command("LRANGE", key, -most, -1)
        return [point for entry in packed if (point := _point(entry, step)) is not None]

    async def _call(
        self, crawl: Crawl | None, minute: int, hour: int, by_minute: bytes, by_hour: bytes
    ) -> Point | None:
        shard = STORE if crawl is None else self._shards.home(crawl.id)
        reply = await self._shards.call("history", shard, (_name(crawl), minute, hour, by_minute, by_hour))
        return _point(reply[1], Step.MINUTE) if reply[1] else None


def growth(points: Sequence[Point]) -> list[Growth]:
    """The growth between consecutive points. A total that fell, because of a lost write, has not grown."""
    grown = []
    for before, after in itertools.pairwise(points):
        changes = [max(0, new - old) for old, new in zip(before.totals[:4], after.totals[:4], strict=True)]
        grown.append(
            Growth(
                at=after.at, seconds=after.at - before.at, stored=changes[0], failed=changes[1], excluded=changes[2],
                bytes=changes[3], open=after.totals.open, workers=after.totals.workers,
            )
        )  # fmt: skip
    return grown


def _name(crawl: Crawl | None) -> str:
    return _FLEET if crawl is None else crawl.key


def _point(packed: bytes, step: Step) -> Point | None:
    """A point that another version wrote in another form counts as missing."""
    try:
        at, *totals = msgspec.msgpack.decode(packed, type=tuple[int, int, int, int, int, int, int])
    except msgspec.MsgspecError:
        return None
    return Point(at * step.seconds, Totals(*totals))
