"""Samples of URLs that a crawl excluded or did not follow, up to 20 for each reason, for people who wonder why.

Workers send the first few URLs of each reason. URLs that a limit set aside need no sample: the frontier has them all.
"""

from __future__ import annotations

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
    reply = await frontier.shards.call("sample", frontier.shards.home(crawl.id), (crawl.id,))
    by_reason: dict[str, list[str]] = {}
    if reply[0] == Status.OK:
        for reason, urls in zip(reply[1::2], reply[2::2], strict=True):
            by_reason[reason.decode(errors="replace")] = urls.decode(errors="replace").split("\n")
    for prefix in frontier.shards.prefixes:
        await _set_aside(frontier, crawl, prefix, by_reason)
    return {reason: tuple(dict.fromkeys(urls))[:MOST] for reason, urls in sorted(by_reason.items())}


async def _set_aside(frontier: Frontier, crawl: Crawl, prefix: str, by_reason: dict[str, list[str]]) -> None:
    """URLs that the frontier keeps for a higher limit."""
    for line in await frontier.shards.command("LRANGE", keys.dropped(prefix, crawl.key), 0, MOST - 1):
        head, _, entry = line.partition(b"\n")
        _keep(by_reason, crawl, head, [entry])
    for member in await frontier.shards.command("SRANDMEMBER", keys.over(prefix, crawl.key), MOST):
        head, _, entry = member[1:].partition(b"\n")
        _keep(by_reason, crawl, head + b" " + _REFUSED.get(member[:1], "limit").encode(), [entry])
    if crawl.state.open or not crawl.why:
        return
    # What waited when the crawl reached a limit.
    for host in await frontier.shards.command("SRANDMEMBER", keys.parked(prefix, crawl.key), _HOSTS):
        name = host.decode(errors="replace")
        priorities = await frontier.shards.command("ZRANGE", keys.priorities(prefix, crawl.key, name), 0, 0)
        for priority in priorities or [b"0"]:
            queue = keys.queue(prefix, crawl.key, int(priority), name)
            entries = await frontier.shards.command("LRANGE", queue, 0, MOST - 1)
            _keep(by_reason, crawl, b"%s:%s %s" % (priority, host, crawl.why.encode()), entries)


def _keep(by_reason: dict[str, list[str]], crawl: Crawl, head: bytes, entries: Iterable[bytes]) -> None:
    for entry in entries:
        try:
            visit, reason = visit_codec.failed(head, entry, crawl=crawl.id)
        except StoreCorrupt:
            continue
        by_reason.setdefault(reason, []).append(visit.url)
