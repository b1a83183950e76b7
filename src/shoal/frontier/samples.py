"""Samples of URLs that a crawl excluded or did not follow, up to 20 for each reason, for users.

Workers send the first few URLs of each reason. URLs that a limit set aside need no sample: the frontier has them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from shoal.errors import StoreCorrupt
from shoal.frontier import keys, visit_codec
from shoal.frontier.frontier import Frontier
from shoal.frontier.scripts import Status
from shoal.model.crawl import Crawl

MOST = 20
_MAX_URL_CHARACTERS = 500
_MOST_A_CALL = 250
_HOSTS = 5
_REFUSED = {b"d": "depth", b"h": "pages per host", b"l": "URLs per depth"}


async def add_samples(frontier: Frontier, crawl_id: str, samples: Sequence[tuple[str, str]]) -> None:
    """Keep URLs with the reasons why they are not visited. More than 20 of one reason are ignored."""
    shards = frontier.shards
    for start in range(0, len(samples), _MOST_A_CALL):
        args: list[str] = [crawl_id]
        for reason, url in samples[start : start + _MOST_A_CALL]:
            args += [visit_codec.brief(reason, "other"), url[:_MAX_URL_CHARACTERS]]
        await shards.call("sample", shards.home(crawl_id), args)


async def read_samples(frontier: Frontier, crawl: Crawl) -> dict[str, tuple[str, ...]]:
    """Up to 20 URLs for each reason, in the order in which they were found."""
    shards = frontier.shards
    # Concurrently, because each of them waits for the store.
    reply, dropped, over = await asyncio.gather(
        shards.call("sample", shards.home(crawl.id), (crawl.id,)),
        shards.command_all("LRANGE", lambda shard: keys.dropped(shard, crawl.key), 0, MOST - 1),
        shards.command_all("SRANDMEMBER", lambda shard: keys.over(shard, crawl.key), MOST),
    )
    by_reason: dict[str, list[str]] = {}
    if reply[0] == Status.OK:
        for reason, urls in zip(reply[1::2], reply[2::2], strict=True):
            by_reason[reason.decode(errors="replace")] = urls.decode(errors="replace").split("\n")
    for lines, members in zip(dropped, over, strict=True):
        _keep_set_aside(by_reason, crawl, lines, members)
    if not crawl.state.open and crawl.why:
        await _keep_parked(frontier, crawl, by_reason)
    return {reason: tuple(dict.fromkeys(urls))[:MOST] for reason, urls in sorted(by_reason.items())}


def _keep_set_aside(
    by_reason: dict[str, list[str]], crawl: Crawl, dropped: Iterable[bytes], over: Iterable[bytes]
) -> None:
    """Add URLs that the frontier keeps for a higher limit."""
    for line in dropped:
        head, _, entry = line.partition(b"\n")
        _keep(by_reason, crawl, head, [entry])
    for member in over:
        head, _, entry = member[1:].partition(b"\n")
        _keep(by_reason, crawl, head + b" " + _REFUSED.get(member[:1], "limit").encode(), [entry])


async def _keep_parked(frontier: Frontier, crawl: Crawl, by_reason: dict[str, list[str]]) -> None:
    """Add URLs that were waiting when the crawl reached a limit."""
    shards, key = frontier.shards, crawl.key
    replies = await shards.command_all("SRANDMEMBER", lambda shard: keys.parked(shard, key), _HOSTS)
    hosts = [(shard, host) for shard, names in zip(shards.prefixes, replies, strict=True) for host in names]
    lists = [keys.priorities(shard, key, host.decode(errors="replace")) for shard, host in hosts]
    firsts = await shards.store.command_many([(name, ("ZRANGE", name, 0, 0)) for name in lists])
    heads, queues = [], []
    for (shard, host), priorities in zip(hosts, firsts, strict=True):
        priority = (priorities or [b"0"])[0]
        heads.append(b"%s:%s %s" % (priority, host, crawl.why.encode()))
        queues.append(keys.queue(shard, key, int(priority), host.decode(errors="replace")))
    entry_lists = await shards.store.command_many([(queue, ("LRANGE", queue, 0, MOST - 1)) for queue in queues])
    for head, entries in zip(heads, entry_lists, strict=True):
        _keep(by_reason, crawl, head, entries)


def _keep(by_reason: dict[str, list[str]], crawl: Crawl, head: bytes, entries: Iterable[bytes]) -> None:
    for entry in entries:
        try:
            visit, reason = visit_codec.failed(head, entry, crawl=crawl.id)
        except StoreCorrupt:
            continue
        by_reason.setdefault(reason, []).append(visit.url)
