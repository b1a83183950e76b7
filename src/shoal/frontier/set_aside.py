"""URLs that a limit of depth or of a host set aside: they are added again when the limit is raised.

`over:<crawl>` has URLs that were refused when they were added, `dropped:<crawl>` those that were excluded later. Both
are bounded in each shard: beyond that, URLs over a limit are not kept.
"""

from __future__ import annotations

from shoal.errors import StoreCorrupt
from shoal.frontier import keys, visit_codec
from shoal.frontier.frontier import Frontier
from shoal.frontier.scripts import Status
from shoal.model.crawl import Crawl
from shoal.model.visit import AddResult, Visit

_PART = 200


async def readmit(frontier: Frontier, crawl_id: str) -> int:
    """Add the URLs that limits of a crawl and its branches set aside and now allow. Returns their number."""
    total = 0
    for name in [crawl_id, *await frontier.crawls.branches(crawl_id)]:
        crawl = await frontier.crawls.get(name)
        for shard in range(frontier.shards.count):
            total += await _refused(frontier, crawl, shard) + await _excluded(frontier, crawl, shard)
    return total


async def _refused(frontier: Frontier, crawl: Crawl, shard: int) -> int:
    """URLs that were never admitted. A URL that is refused again stays set aside."""
    key = keys.over(frontier.shards.prefixes[shard], crawl.key)
    max_depth = crawl.limits.max_depth
    total = 0
    members = await frontier.shards.command("SMEMBERS", key)
    pairs = [(member, _visit(member, crawl.id)) for member in members]
    allowed = [
        (member, visit)
        for member, visit in pairs
        if visit is not None and (max_depth is None or visit.depth <= max_depth)
    ]
    for start in range(0, len(allowed), _PART):
        part = allowed[start : start + _PART]
        added = await frontier.add(crawl.id, [visit for _, visit in part], skip_invalid=True)
        done = [
            member
            for (member, _), result in zip(part, added.results, strict=True)
            if result not in (AddResult.TOO_DEEP, AddResult.HOST_FULL, AddResult.DEPTH_FULL)
        ]
        if done:
            await frontier.shards.command("SREM", key, *done)
        total += added.new
    return total


async def _excluded(frontier: Frontier, crawl: Crawl, shard: int) -> int:
    """URLs that were excluded by a limit of their host. URLs that still exceed it are excluded again."""
    key = keys.dropped(frontier.shards.prefixes[shard], crawl.key)
    length = await frontier.shards.command("LLEN", key)
    total = 0
    while total < length:
        reply = await frontier.shards.call("retry", shard, (crawl.key, "", "x"), replicated=True)
        if reply[0] != Status.OK or not reply[1]:
            break
        total += reply[1]
    return total


async def forget_depths(frontier: Frontier, crawl: Crawl) -> None:
    """Count the URLs per depth of an ended crawl from zero, for another pass over them."""
    for name in [crawl.id, *await frontier.crawls.branches(crawl.id)]:
        part = await frontier.crawls.get(name)
        for prefix in frontier.shards.prefixes:
            key, cursor = keys.host_counts(prefix, part.key), b"0"
            while True:
                cursor, pairs = await frontier.shards.command("HSCAN", key, cursor, "MATCH", "!@*", "COUNT", 1000)
                if pairs:
                    await frontier.shards.command("HDEL", key, *pairs[::2])
                if cursor == b"0":
                    break


def _visit(member: bytes, crawl_id: str) -> Visit | None:
    """The visit of one member: a letter of AddResult, priority:host, and the entry."""
    head, _, entry = member.partition(b"\n")
    try:
        visit, _ = visit_codec.failed(head[1:] + b" ", entry, crawl=crawl_id)
    except StoreCorrupt:
        return None
    return visit
