"""Read-only queries for operators: crawls, waiting hosts and visits, the oldest lease, the store's clock.

Reads keys of the store as frontier/keys.py names them, those of one shard a call, and writes nothing. A host is listed
while it has waiting visits or a lease.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Collection
from typing import Any

from shoal.errors import InvalidInput, StoreCorrupt, UnknownCrawl
from shoal.frontier import Frontier
from shoal.model.crawl import Crawl

CLASSES = 3


async def store_seconds(frontier: Frontier) -> float:
    """The store's clock, in seconds since 1970."""
    return int((await frontier.shards.call("clock", 0, ()))[1]) / 1000


async def list_crawls(frontier: Frontier, after: tuple[float, str] | None = None) -> AsyncIterator[tuple[float, Crawl]]:
    """Crawls with their creation time, newest first, starting behind `after`. Unreadable crawl records are skipped."""
    shards = []
    for prefix in frontier.shards.prefixes:
        highest = "+inf" if after is None else repr(after[0])
        flat = await _ask(frontier, "ZREVRANGEBYSCORE", f"{prefix}crawls", highest, "-inf", "WITHSCORES")
        pairs = zip(flat[::2], flat[1::2], strict=True)
        shards.append(sorted((-float(score), name.decode(errors="replace")) for name, score in pairs))
    for minus, name in heapq.merge(*shards):
        if after is None or (minus, name) > (-after[0], after[1]):
            try:
                crawl = await frontier.crawls.get(name)
            except (StoreCorrupt, UnknownCrawl, InvalidInput):
                continue
            yield -minus, crawl


async def lease_age_seconds(frontier: Frontier, lease_seconds: float) -> float:
    """Age of the oldest lease since it was granted or last renewed. A lease expires at `lease_seconds`."""
    now = await store_seconds(frontier)
    oldest = 0.0
    for prefix in frontier.shards.prefixes:
        first = await _ask(frontier, "ZRANGE", f"{prefix}leases", 0, 0, "WITHSCORES")
        if first:
            oldest = max(oldest, now + lease_seconds - float(first[1]) / 1000)
    return oldest


async def waiting_hosts(
    frontier: Frontier, shard: int, spiders: Collection[str], crawls: Collection[str] = ()
) -> list[str]:
    """Every host of a shard that has something to do for these spiders, in the order of the alphabet.

    `crawls` are the keys of those whose hosts may be parked, as they are while a crawl is paused.
    """
    prefix = frontier.shards.prefixes[shard]
    found: set[bytes] = set()
    for spider in spiders:
        for number in range(CLASSES):
            found.update(await _ask(frontier, "ZRANGE", f"{prefix}ready:{number}:{spider}", 0, -1))
    for key in crawls:
        found.update(await _ask(frontier, "SMEMBERS", f"{prefix}parked:{key}"))
    for token in await _ask(frontier, "ZRANGE", f"{prefix}leases", 0, -1):
        host = await _ask(frontier, "HGET", f"{prefix}l:{token.decode(errors='replace')}", "host")
        if host:
            found.add(host)
    return sorted(host.decode(errors="replace") for host in found)


async def waiting(frontier: Frontier, host: str, paused: Collection[str] = ()) -> dict[str, dict[int, int]]:
    """By the key of the crawl: how many visits wait for this host, by their priority.

    `paused` are keys of crawls that may have visits there without a turn.
    """
    prefix = frontier.shards.prefixes[frontier.shards.of(host)]
    found: dict[str, dict[int, int]] = {}
    turns = await _ask(frontier, "ZRANGE", f"{prefix}w:{host}", 0, -1)
    for key in dict.fromkeys([*(member.decode(errors="replace") for member in turns), *paused]):
        priorities = await _ask(frontier, "ZRANGE", f"{prefix}p:{key}:{host}", 0, -1) or [b"0"]
        lengths = {
            int(one): await _ask(frontier, "LLEN", f"{prefix}q:{key}:{int(one)}:{host}")
            for one in priorities
            if one.lstrip(b"-").isdigit()
        }
        if present := {priority: length for priority, length in lengths.items() if length}:
            found[key] = present
    return found


async def hosts_of(frontier: Frontier, key: str, spider: str, most: int) -> AsyncIterator[tuple[str, dict[int, int]]]:
    """Hosts with visits of one crawl that wait, at most so many of them."""
    left = most
    for shard in range(frontier.shards.count):
        for host in await waiting_hosts(frontier, shard, [spider], [key]):
            if lengths := (await waiting(frontier, host, [key])).get(key):
                yield host, lengths
                left -= 1
                if left == 0:
                    return


async def _ask(frontier: Frontier, command: str, key: str, *args: Any) -> Any:
    return await frontier.shards.store.command(command, key, *args, key=key)
