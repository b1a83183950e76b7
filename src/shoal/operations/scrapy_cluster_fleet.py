"""Scrapy Cluster's requests about the whole cluster: statistics, and the domains and blacklist of its Zookeeper.

Owns the translation of Shoal's own numbers into its shape. Scrapy Cluster counts responses by status code and time
window; Shoal counts final states over the life of a crawl, so the counts have the names of these states.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from shoal.errors import InvalidInput
from shoal.frontier import Frontier
from shoal.frontier.inspect import hosts_of, list_crawls, store_seconds
from shoal.model.crawl import CrawlKind, State
from shoal.operations.scrapy_cluster import MAX_DOMAINS

# Components of Scrapy Cluster that Shoal does not have, and where their numbers are.
_UNSUPPORTED = {
    "kafka-monitor": "Shoal has no Kafka Monitor: see the log events of `shoal listen`, or GET /metrics.",
    "redis-monitor": "Shoal has no Redis Monitor: see the log events of `shoal serve`, or GET /metrics.",
    "rest": "Shoal has no Rest service of its own: see GET /metrics of `shoal serve`.",
}
_STATES = ("stored", "failed", "excluded")


class StatsRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for statistics."""

    stats: Literal["all", "kafka-monitor", "redis-monitor", "rest", "crawler", "spider", "machine", "queue"] = "all"
    appid: Annotated[str, Meta(min_length=1, max_length=100)]
    uuid: Annotated[str, Meta(min_length=1, max_length=100)]


class DomainUpdate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of the rate or the block of a domain: at most `hits` times `scale` requests in `window` seconds."""

    action: Literal["domain-update", "domain-remove", "blacklist-update", "blacklist-remove"]
    appid: Annotated[str, Meta(min_length=1, max_length=100)]
    uuid: Annotated[str, Meta(min_length=1, max_length=100)]
    domain: Annotated[str, Meta(min_length=1, max_length=300)]
    hits: Annotated[int, Meta(ge=0)] = 0
    window: Annotated[int, Meta(ge=0)] = 0
    scale: Annotated[float, Meta(ge=0, le=1)] = 1.0


DOMAIN_ACTIONS = frozenset(("domain-update", "domain-remove", "blacklist-update", "blacklist-remove"))


async def collect_stats(frontier: Frontier, request: StatsRequest) -> dict[str, Any]:
    """The reply to a request for statistics. InvalidInput for a component that Shoal does not have."""
    if request.stats in _UNSUPPORTED:
        raise InvalidInput(f"stats {request.stats!r} is not supported. {_UNSUPPORTED[request.stats]}")
    head = {"stats": request.stats, **await _head(frontier, request)}
    if request.stats == "queue":
        return {**head, "queues": await _queues(frontier)}
    crawler = {"spiders": await _spiders(frontier), "machines": await _machines(frontier)}
    if request.stats == "all":
        missing = {name: {"error": text} for name, text in _UNSUPPORTED.items()}
        return {**head, **missing, "crawler": crawler, "queue": {"queues": await _queues(frontier)}}
    parts = {"spider": ("spiders",), "machine": ("machines",)}.get(request.stats)
    return {**head, "crawler": crawler} if parts is None else {**head, **{name: crawler[name] for name in parts}}


async def update_domain(frontier: Frontier, update: DomainUpdate) -> dict[str, Any]:
    """Set or remove the delay or the block of a host. It applies to this host name, not to its subdomains."""
    name = frontier.hosts.name(update.domain)
    if update.action == "domain-update":
        if not (update.hits and update.window and update.scale):
            raise InvalidInput("domain-update needs hits, window and scale greater than 0.")
        await frontier.hosts.set_delay(name, min(86400.0, update.window / (update.hits * update.scale)))
    elif update.action == "domain-remove":
        await frontier.hosts.set_delay(name, None)
    elif update.action == "blacklist-update":
        await frontier.hosts.block(name, "blacklist")
    else:
        await frontier.hosts.unblock(name)
    return {"action": update.action, "domain": update.domain, **await _head(frontier, update)}


async def _head(frontier: Frontier, request: StatsRequest | DomainUpdate) -> dict[str, Any]:
    return {"appid": request.appid, "uuid": request.uuid, "server_time": int(await store_seconds(frontier))}


async def _spiders(frontier: Frontier) -> dict[str, Any]:
    """Final states by spider, and how many workers can run each spider. Every worker follows links (`link`)."""
    counts: dict[str, Counter[str]] = {}
    async for _, crawl in list_crawls(frontier):
        if crawl.kind is CrawlKind.OWN and crawl.state is not State.DELETED:
            totals = counts.setdefault(crawl.limits.spider or "link", Counter())
            crawl_counts = await frontier.crawls.count(crawl.id)
            totals.update({state: getattr(crawl_counts, state) for state in _STATES})
    workers: Counter[str] = Counter()
    for worker in await frontier.workers.alive():
        workers.update(["link", *worker.heartbeat.spiders])
    shown: dict[str, Any] = {
        name: {"count": workers[name], **{state: {"lifetime": counts.get(name, Counter())[state]} for state in _STATES}}
        for name in sorted({*counts, *workers})
    }
    return {**shown, "unique_spider_count": len(workers), "total_spider_count": workers.total()}


async def _machines(frontier: Frontier) -> dict[str, Any]:
    """Pages of the live workers by machine."""
    pages: Counter[str] = Counter()
    for worker in await frontier.workers.alive():
        heartbeat = worker.heartbeat
        pages[heartbeat.machine] += heartbeat.pages
    return {**{name: {"stored": {"lifetime": pages[name]}} for name in sorted(pages)}, "count": len(pages)}


async def _queues(frontier: Frontier) -> dict[str, Any]:
    """Waiting URLs by spider and host. At most 1,000 hosts are listed for each spider."""
    backlogs: dict[str, Counter[str]] = {}
    totals: Counter[str] = Counter()
    async for _, crawl in list_crawls(frontier):
        if not crawl.state.open or crawl.kind is not CrawlKind.OWN:
            continue
        spider = crawl.limits.spider or "link"
        crawl_counts = await frontier.crawls.count(crawl.id)
        totals[spider] += crawl_counts.waiting + crawl_counts.later
        hosts = backlogs.setdefault(spider, Counter())
        async for host, lengths in hosts_of(frontier, crawl.key, crawl.limits.spider, MAX_DOMAINS):
            hosts[host] += sum(lengths.values())
    queues: dict[str, Any] = {
        f"queue_{spider}": {
            "domains": [{"domain": host, "backlog": backlog} for host, backlog in hosts.most_common(MAX_DOMAINS)],
            "spider_backlog": totals[spider], "num_domains": len(hosts),
        }
        for spider, hosts in sorted(backlogs.items())
    }  # fmt: skip
    return {**queues, "total_backlog": totals.total()}
