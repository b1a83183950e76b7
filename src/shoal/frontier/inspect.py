"""Who waits where: the hosts that have visits waiting, and how many of which crawl.

Reads keys of the store as frontier/keys.py names them, those of one shard a call, and writes nothing. A host is listed
while it has visits that wait or a lease; one that has nothing to do is found by its name alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Any

from shoal.frontier import Frontier

CLASSES = 3


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
