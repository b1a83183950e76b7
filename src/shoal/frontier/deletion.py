"""Deletion: everything an ended crawl holds is removed, shard by shard. Its id and its counts stay.

Ids that a program makes up, e.g. one for each run, would fill the store with such records. `erase` removes one of them,
and adds its counts to a sum in its home shard.

Owns `freed` in a crawl's record: totals over all crawls must not fall when one is deleted. It is written once, before
the first count is removed, because a second attempt after a crash would find lower counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from shoal.errors import StoreCorrupt
from shoal.frontier import keys
from shoal.frontier.scripts import Status
from shoal.frontier.shards import Shards
from shoal.model.crawl import Counts

# Each has at most 80 bytes. No real crawl has this many.
_MOST_REASONS = 1000


async def note(shards: Shards, crawl_id: str, counts: Counts) -> None:
    reasons: Counter[str] = Counter()
    for index, (reason, count) in enumerate(Counter(counts.reasons).most_common()):
        reasons[reason if index < _MOST_REASONS else f"{reason.partition(':')[0]}:other"] += count
    ended = Counts(stored=counts.stored, failed=counts.failed, excluded=counts.excluded, reasons=dict(reasons))
    await shards.call("note", shards.home(crawl_id), (crawl_id, msgspec.json.encode(ended)), replicated=True)


async def noted(shards: Shards, crawl_id: str) -> Counts | None:
    """The counts of a crawl when it was deleted; None if it was not."""
    reply = await shards.call("note", shards.home(crawl_id), (crawl_id, ""))
    try:
        return msgspec.json.decode(reply[1], type=Counts) if len(reply) > 1 and reply[1] else None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreCorrupt(f"Invalid counts of crawl {crawl_id} in the store: {error}.") from None


async def erase(shards: Shards, crawl_id: str) -> bool:
    """Remove the record of a deleted crawl. False if it is not deleted, or is unknown."""
    reply = await shards.call("erase", shards.home(crawl_id), (crawl_id,))
    return bool(reply[0] == Status.OK)


async def erased(shards: Shards) -> list[Counts]:
    """The summed counts of all erased crawls, by shard."""
    sums = []
    for text in await shards.command_all("HGET", keys.meta, "erased"):
        try:
            sums.append(msgspec.json.decode(text or b"{}", type=Counts, strict=False))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StoreCorrupt(f"Invalid counts of erased crawls in the store: {error}.") from None
    return sums


def total(all_counts: Iterable[Counts]) -> Counts:
    numbers: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for counts in all_counts:
        fields = msgspec.structs.asdict(counts)
        reasons.update(fields.pop("reasons"))
        numbers.update(fields)
    return Counts(**numbers, reasons=dict(reasons))


async def purge(shards: Shards, key: str) -> None:
    """Remove everything that shards hold of a crawl, in calls of bounded work."""
    for shard in range(shards.count):
        stage, rank = b"ready", 0
        while stage != b"done":
            _, stage, rank = await shards.call("purge", shard, (key, stage, rank))
        while (await shards.call("sweep", shard, ()))[1]:
            pass
