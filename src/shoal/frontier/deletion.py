"""Freeing an ended crawl: all that it held goes, shard by shard; its id stays, and how many visits ended in which way.

Owns `freed` in a crawl's record: totals over all crawls must not fall when one of them goes. It is noted once, before
the first count goes: who deletes the crawl again, because the first to do so died, finds less.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from shoal.errors import StoreCorrupt
from shoal.frontier.shards import Shards
from shoal.model.crawl import Counts

# Each is of 80 bytes at most; there are that many only where somebody makes them up.
_MOST_REASONS = 1000


async def note(shards: Shards, crawl_id: str, counts: Counts) -> None:
    reasons: Counter[str] = Counter()
    for place, (reason, count) in enumerate(Counter(counts.reasons).most_common()):
        reasons[reason if place < _MOST_REASONS else f"{reason.partition(':')[0]}:other"] += count
    ended = Counts(stored=counts.stored, failed=counts.failed, excluded=counts.excluded, reasons=dict(reasons))
    await shards.call("note", shards.home(crawl_id), (crawl_id, msgspec.json.encode(ended)), replicated=True)


async def noted(shards: Shards, crawl_id: str) -> Counts | None:
    """What a crawl had when it was freed; None where nobody has begun with that."""
    reply = await shards.call("note", shards.home(crawl_id), (crawl_id, ""))
    try:
        return msgspec.json.decode(reply[1], type=Counts) if len(reply) > 1 and reply[1] else None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreCorrupt(f"The counts of crawl {crawl_id} in the store are not Shoal's: {error}.") from None


async def purge(shards: Shards, key: str) -> None:
    """Everything that shards hold of a crawl, a little with each call."""
    for shard in range(shards.count):
        stage, rank = b"ready", 0
        while stage != b"done":
            _, stage, rank = await shards.call("purge", shard, (key, stage, rank))
        while (await shards.call("sweep", shard, ()))[1]:
            pass
