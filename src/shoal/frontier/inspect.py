"""Inspect: read-only queries about a frontier that other packages need. No other package touches raw keys.

A query reads one key a call. While workers run, two calls may return data of different times.
"""

from __future__ import annotations

import asyncio
import heapq
import re
from collections.abc import AsyncIterator, Collection
from typing import Any, NamedTuple

import msgspec

from shoal.errors import InvalidInput, StoreCorrupt, UnknownCrawl
from shoal.frontier import keys
from shoal.frontier.frontier import Frontier
from shoal.frontier.shards import DEFAULT_SHARDS
from shoal.frontier.visit_codec import unpack
from shoal.model.crawl import Crawl
from shoal.model.visit import Visit
from shoal.store import Store

PRIORITY_CLASSES = 3
_GENERATION = re.compile(r".*@([1-9][0-9]{0,15})")
_PART = 500


async def store_seconds(frontier: Frontier) -> float:
    """The store's clock, in seconds since 1970."""
    return int((await frontier.shards.call("clock", 0, ()))[1]) / 1000


async def crawl_ids(frontier: Frontier) -> list[str]:
    """The ids of all crawls, deleted ones too; newest first in each shard."""
    replies = await frontier.shards.command_all("ZREVRANGE", keys.crawls, 0, -1)
    return [name.decode() for names in replies for name in names]


async def generations(frontier: Frontier, name: str) -> list[int]:
    """The numbers of the crawls NAME@NUMBER, deleted ones too, in ascending order."""
    numbers: set[int] = set()
    for shard in frontier.shards.prefixes:
        cursor: Any = b"0"
        while True:
            cursor, flat = await frontier.shards.command(
                "ZSCAN", keys.crawls(shard), cursor, "MATCH", f"{name}@*", "COUNT", 1000
            )
            numbers.update(int(match[1]) for member in flat[::2] if (match := _GENERATION.fullmatch(member.decode())))
            if cursor == b"0":
                break
    return sorted(numbers)


async def list_crawls(frontier: Frontier, after: tuple[float, str] | None = None) -> AsyncIterator[tuple[float, Crawl]]:
    """Crawls with their creation time, newest first, starting behind `after`. Unreadable crawl records are skipped."""
    by_shard = []
    highest = "+inf" if after is None else repr(after[0])
    for flat in await frontier.shards.command_all("ZREVRANGEBYSCORE", keys.crawls, highest, "-inf", "WITHSCORES"):
        pairs = zip(flat[::2], flat[1::2], strict=True)
        by_shard.append(sorted((-float(score), name.decode(errors="replace")) for name, score in pairs))
    for minus, crawl_id in heapq.merge(*by_shard):
        if after is None or (minus, crawl_id) > (-after[0], after[1]):
            try:
                crawl = await frontier.crawls.get(crawl_id)
            except (StoreCorrupt, UnknownCrawl, InvalidInput):
                continue
            yield -minus, crawl


async def lease_age_seconds(frontier: Frontier, lease_seconds: float) -> float:
    """Age of the oldest lease since its last renewal; 0 without leases. A lease expires at `frontier.lease_seconds`."""
    now = await store_seconds(frontier)
    oldest = 0.0
    for first in await frontier.shards.command_all("ZRANGE", keys.leases, 0, 0, "WITHSCORES"):
        if first:
            oldest = max(oldest, now + lease_seconds - float(first[1]) / 1000)
    return oldest


async def count_leases(frontier: Frontier) -> int:
    """How many leases workers hold: one per slot of a host."""
    return sum(await frontier.shards.command_all("ZCARD", keys.leases))


async def blocked_host_names(frontier: Frontier) -> list[str]:
    """Hosts that an operator has blocked since Shoal keeps a list of them."""
    names: set[bytes] = set()
    for members in await frontier.shards.command_all("SMEMBERS", keys.blocked):
        names.update(members)
    return sorted(name.decode(errors="replace") for name in names)


class NodeMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of one server of the store; a limit of 0 means none."""

    server: str
    used_bytes: int
    limit_bytes: int


async def store_memory(frontier: Frontier) -> list[NodeMemory]:
    """The memory of each server that holds a shard."""
    servers = {frontier.shards.store.server_of(keys.meta(prefix)): prefix for prefix in frontier.shards.prefixes}
    nodes = []
    for server, prefix in sorted(servers.items()):
        key = keys.meta(prefix)
        info = await frontier.shards.store.command("INFO", "memory", key=key)
        lines = (line.partition(":") for line in info.decode(errors="replace").splitlines())
        fields = {name: value for name, _, value in lines}
        used, limit = (int(fields.get(name) or 0) for name in ("used_memory", "maxmemory"))
        nodes.append(NodeMemory(server=server, used_bytes=used, limit_bytes=limit))
    return nodes


async def blocked_hosts(frontier: Frontier) -> int:
    """How many hosts are blocked by an operator."""
    counts = await frontier.shards.command_all("HGET", keys.meta, "blocked")
    return sum(int(count) for count in counts if count and count.isdigit())


async def waiting_hosts(
    frontier: Frontier, shard: int, spiders: Collection[str], crawls: Collection[str] = ()
) -> list[str]:
    """Every host of a shard with waiting visits for these spiders, or with a lease, in alphabetical order.

    `crawls` are the keys of crawls whose hosts may be parked, e.g. because the crawl is paused.
    """
    prefix = frontier.shards.prefixes[shard]
    hosts: set[bytes] = set()
    for spider in spiders:
        for priority_class in range(PRIORITY_CLASSES):
            hosts.update(await frontier.shards.command("ZRANGE", keys.ready(prefix, priority_class, spider), 0, -1))
    for key in crawls:
        hosts.update(await frontier.shards.command("SMEMBERS", keys.parked(prefix, key)))
    tokens = await frontier.shards.command("ZRANGE", keys.leases(prefix), 0, -1)
    leases = [keys.lease(prefix, token.decode(errors="replace")) for token in tokens]
    # One pipeline: a fleet has thousands of leases.
    for host in await asyncio.gather(*(frontier.shards.command("HGET", lease, "host") for lease in leases)):
        if host:
            hosts.add(host)
    return sorted(host.decode(errors="replace") for host in hosts)


async def waiting(frontier: Frontier, host: str, paused: Collection[str] = ()) -> dict[str, dict[int, int]]:
    """By crawl key: how many visits wait for this host, by priority.

    `paused` are keys of crawls whose visits may be parked there.
    """
    prefix = frontier.shards.prefixes[frontier.shards.of(host)]
    by_crawl: dict[str, dict[int, int]] = {}
    turns = await frontier.shards.command("ZRANGE", keys.turns(prefix, host), 0, -1)
    for key in dict.fromkeys([*(member.decode(errors="replace") for member in turns), *paused]):
        priorities = await frontier.shards.command("ZRANGE", keys.priorities(prefix, key, host), 0, -1) or [b"0"]
        lengths = {
            int(priority): await frontier.shards.command("LLEN", keys.queue(prefix, key, int(priority), host))
            for priority in priorities
            if priority.lstrip(b"-").isdigit()
        }
        if present := {priority: length for priority, length in lengths.items() if length}:
            by_crawl[key] = present
    return by_crawl


async def hosts_of(frontier: Frontier, key: str, spider: str, most: int) -> AsyncIterator[tuple[str, dict[int, int]]]:
    """Hosts with waiting visits of one crawl, up to `most` (0: all), and how many wait by priority."""
    left = most
    for shard in range(frontier.shards.count):
        for host in await waiting_hosts(frontier, shard, [spider], [key]):
            if lengths := (await waiting(frontier, host, [key])).get(key):
                yield host, lengths
                left -= 1
                if left == 0:
                    return


async def waiting_visits(frontier: Frontier, crawl: Crawl) -> AsyncIterator[Visit]:
    """Every waiting visit of a crawl, without those of its branches."""
    async for host, by_priority in hosts_of(frontier, crawl.key, crawl.limits.spider, 0):
        prefix = frontier.shards.prefixes[frontier.shards.of(host)]
        for priority in by_priority:
            start = 0
            key = keys.queue(prefix, crawl.key, priority, host)
            while entries := await frontier.shards.command("LRANGE", key, start, start + _PART - 1):
                for entry in entries:
                    yield unpack(entry, host=host, crawl=crawl.id, priority=priority, number=0)
                start += _PART


class PendingHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host that a crawl waits for: the host is paused, or some of its URLs are retried later.

    host      name of the host
    paused    whether the whole host is paused
    reason    the last failure
    until     time of the next request, in seconds since 1970 on the store's clock
    seconds   seconds until the next request
    retries   number of URLs to retry
    """

    host: str
    paused: bool
    reason: str
    until: float
    seconds: float
    retries: int


async def pending_hosts(frontier: Frontier, crawl: Crawl) -> list[PendingHost]:
    """Hosts that a crawl waits for, the longest wait first. In a crowded shard some may be missing."""
    args = (crawl.key, crawl.limits.spider)
    replies = await frontier.shards.call_all("pauses", dict.fromkeys(range(frontier.shards.count), args))
    hosts = []
    for reply in replies.values():
        for at in range(2, len(reply), 5):
            host, paused, reason, until_ms, retries = reply[at : at + 5]
            hosts.append(
                PendingHost(
                    host=host.decode(errors="replace"),
                    paused=bool(paused),
                    reason=reason.decode(errors="replace"),
                    until=until_ms / 1000,
                    seconds=max(0.0, (until_ms - reply[1]) / 1000),
                    retries=retries,
                )
            )
    return sorted(hosts, key=lambda pending: (-pending.seconds, pending.host))


class NamespaceMeta(NamedTuple):
    """The `meta` records of a namespace; empty where nothing was created yet."""

    store: dict[str, str]
    # By the name of the shard's key, in the order of the shards.
    shards: dict[str, dict[str, str]]


async def namespace_meta(store: Store, namespace: str) -> NamespaceMeta:
    """Read a namespace without joining it, e.g. to check it."""
    meta = await _hash(store, keys.store_meta(namespace))
    shards = int(meta.get("shards", DEFAULT_SHARDS))
    names = [keys.meta(keys.prefix(namespace, tag)) for tag in keys.tags(shards)]
    return NamespaceMeta(meta, {name: await _hash(store, name) for name in names})


async def _hash(store: Store, key: str) -> dict[str, str]:
    flat = await store.command("HGETALL", key, key=key)
    return {
        name.decode(errors="replace"): value.decode(errors="replace")
        for name, value in zip(flat[::2], flat[1::2], strict=True)
    }
