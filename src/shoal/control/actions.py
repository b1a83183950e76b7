"""Scrapy Cluster's action requests: info, stop and expire, answered in its own shape.

Owns what an answer says. Its ids live beside ours: a crawl that came from there is named by its application and crawl.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from shoal.control.queues import hosts_of
from shoal.errors import InvalidInput, UnknownCrawl
from shoal.frontier import Frontier
from shoal.model.crawl import Crawl

# An answer is for people and programs that read it whole.
MOST_DOMAINS = 1000
_FOREIGN = re.compile(r"[^A-Za-z0-9_.@-]")


class Action(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """As Scrapy Cluster's schema has it, with `expire` beside its info and stop."""

    action: Literal["info", "stop", "expire"]
    appid: Annotated[str, Meta(min_length=1, max_length=100)]
    uuid: Annotated[str, Meta(max_length=100)]
    crawlid: Annotated[str, Meta(max_length=100)] | None = None
    spiderid: Annotated[str, Meta(max_length=100)] | None = None


def cluster_name(appid: str, crawlid: str) -> str:
    """The id here of a crawl there; what does not fit into one is told apart by its hash."""
    name = f"{_FOREIGN.sub('-', appid)}:{_FOREIGN.sub('-', crawlid)}"
    if name == f"{appid}:{crawlid}" and len(name) <= 128:
        return name
    told_apart = hashlib.sha256(f"{appid}\0{crawlid}".encode(errors="surrogatepass")).hexdigest()
    return f"{name[:100]}-{told_apart[:16]}"


async def act(frontier: Frontier, action: Action) -> dict[str, Any]:
    """Do it, and say what came of it as Scrapy Cluster would."""
    if action.action == "info":
        return await (_about_crawl(frontier, action) if action.crawlid else _about_app(frontier, action))
    if not action.crawlid:
        raise InvalidInput(f"The action {action.action} has no crawlid: say which crawl is meant.")
    crawl = await _named(frontier, action)
    left = await frontier.crawls.count(crawl.id)
    if action.action == "stop":
        if crawl.state.open:
            await frontier.crawls.stop(crawl.id)
        counted = {"action": "stop", "total_purged": left.waiting + left.later if crawl.state.open else 0}
    else:
        if crawl.state.open:
            await expire_now(frontier, crawl.id)
        counted = {"action": "expired", "total_expired": left.waiting + left.later if crawl.state.open else 0}
    return {**await _head(frontier, action), "crawlid": action.crawlid, **counted}


async def expire_now(frontier: Frontier, crawl_id: str) -> Crawl:
    """End a crawl as if its time had come."""
    now = await store_seconds(frontier)
    await frontier.crawls.expire(crawl_id, now)
    # The first call set the end, this one writes it down: a crawl whose time has come is expired to whoever looks.
    return await frontier.crawls.expire(crawl_id, now)


async def store_seconds(frontier: Frontier) -> float:
    """The store's clock, in seconds since 1970."""
    return int((await frontier.shards.call("clock", 0, ()))[1]) / 1000


async def _named(frontier: Frontier, action: Action) -> Crawl:
    """The crawl that is meant: one that came from there, or one of ours that belongs to the application."""
    wanted = action.crawlid or ""
    try:
        return await frontier.crawls.get(cluster_name(action.appid, wanted))
    except UnknownCrawl:
        with contextlib.suppress(UnknownCrawl, InvalidInput):
            crawl = await frontier.crawls.get(wanted)
            if crawl.spec.get("app") == action.appid:
                return crawl
    raise UnknownCrawl(f"Application {action.appid!r} has no crawl {wanted!r} in this store.")


async def _head(frontier: Frontier, action: Action) -> dict[str, Any]:
    return {
        "server_time": int(await store_seconds(frontier)), "appid": action.appid, "uuid": action.uuid,
        "spiderid": action.spiderid or "link",
    }  # fmt: skip


async def _about_crawl(frontier: Frontier, action: Action) -> dict[str, Any]:
    crawl = await _named(frontier, action)
    head, told = await _head(frontier, action), await _told(frontier, crawl)
    expires = {"expires": told["expires"]} if "expires" in told else {}
    return {
        **head, "crawlid": action.crawlid, "total_pending": told["total"],
        "total_domains": told["distinct_domains"], "domains": told["domains"], **expires,
    }  # fmt: skip


async def _about_app(frontier: Frontier, action: Action) -> dict[str, Any]:
    told: dict[str, dict[str, Any]] = {}
    async for crawl in frontier.crawls.all():
        if crawl.state.open and crawl.spec.get("app") == action.appid and not crawl.parent:
            told[crawl.id.removeprefix(f"{action.appid}:")] = await _told(frontier, crawl)
    names = {domain for one in told.values() for domain in one["domains"]}
    return {
        **await _head(frontier, action), "total_pending": sum(one["total"] for one in told.values()),
        "total_domains": len(names), "total_crawlids": len(told), "crawlids": told,
    }  # fmt: skip


async def _told(frontier: Frontier, crawl: Crawl) -> dict[str, Any]:
    counts = await frontier.crawls.count(crawl.id)
    domains = {}
    if crawl.state.open:
        async for host, lengths in hosts_of(frontier, crawl.key, crawl.limits.spider, MOST_DOMAINS):
            domains[host] = {
                "low_priority": min(lengths), "high_priority": max(lengths), "total": sum(lengths.values())
            }  # fmt: skip
    told = {"total": counts.waiting + counts.later, "distinct_domains": len(domains), "domains": domains}
    # Text, as there.
    return told | ({"expires": str(int(crawl.limits.expires_at))} if crawl.limits.expires_at else {})
