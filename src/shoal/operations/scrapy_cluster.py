"""Scrapy Cluster's requests: crawls in its schema, and the actions info, stop and expire, with replies in its format.

Owns the translation between its schema and Shoal's. A crawl that was requested in its schema has an id made of its
application and its crawl id.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from shoal.errors import CrawlEnded, InvalidInput, UnknownCrawl
from shoal.frontier import Frontier
from shoal.frontier.inspect import hosts_of, store_seconds
from shoal.model.crawl import Crawl, CrawlKind, State, crawl_id_of
from shoal.model.crawl_request import CrawlRequest
from shoal.model.crawl_spec import DEFAULT_USER_AGENT
from shoal.urls.scope import domain_of

# A reply is one message, so it lists at most this many domains.
MAX_DOMAINS = 1000
_FOREIGN = re.compile(r"[^A-Za-z0-9_.@-]")
_HASH_DIGITS = 16


class ClusterAction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An action in Scrapy Cluster's schema; `expire` is Shoal's addition to info and stop."""

    action: Literal["info", "stop", "expire"]
    appid: Annotated[str, Meta(min_length=1, max_length=100)]
    uuid: Annotated[str, Meta(max_length=100)]
    crawlid: Annotated[str, Meta(max_length=100)] | None = None
    spiderid: Annotated[str, Meta(max_length=100)] | None = None


class ClusterRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A crawl request in Scrapy Cluster's own schema."""

    url: str
    appid: Annotated[str, Meta(min_length=1, max_length=100)]
    crawlid: Annotated[str, Meta(min_length=1, max_length=100)]
    spiderid: str | None = None
    maxdepth: int | None = None
    priority: int | None = None
    allowed_domains: list[str] | None = None
    allow_regex: list[str] | None = None
    deny_regex: list[str] | None = None
    deny_extensions: list[str] | None = None
    expires: float | None = None
    useragent: str | None = None
    cookie: str | None = None
    attrs: dict[str, Any] | None = None
    domain_max_pages: int | None = None


def cluster_name(appid: str, crawlid: str) -> str:
    """The id of a crawl that has these ids in Scrapy Cluster. A hash distinguishes ids that had to be shortened."""
    name = f"{app_of(appid)}:{_FOREIGN.sub('-', crawlid)}"
    if name == f"{appid}:{crawlid}" and len(name) <= 128:
        return name
    digest = hashlib.sha256(f"{appid}\0{crawlid}".encode(errors="surrogatepass")).hexdigest()
    return f"{name[:100]}-{digest[:_HASH_DIGITS]}"


def possible_ids(action: ClusterAction) -> tuple[str, ...]:
    """The ids that the crawl of an action may have: by Scrapy Cluster's schema, by Shoal's, and as it was given."""
    crawlid = action.crawlid or ""
    return cluster_name(action.appid, crawlid), crawl_id_of(app_of(action.appid), crawlid), crawlid


def app_of(appid: str) -> str:
    """The `app` of a crawl, by its application in Scrapy Cluster."""
    return _FOREIGN.sub("-", appid)[:64]


def spider_of(spiderid: str | None) -> str:
    """The spider of a crawl. Scrapy Cluster's default, `link`, means no spider."""
    return "" if spiderid in (None, "", "link") else str(spiderid)


def translate(request: ClusterRequest) -> CrawlRequest:
    """The same request in Shoal's schema. Scrapy Cluster follows links to every domain unless some are listed."""
    priority = 1 if request.priority is None else request.priority
    domains = [domain.strip().lower().strip(".") for domain in request.allowed_domains or ()]
    return CrawlRequest(
        seeds=(request.url,), name=cluster_name(request.appid, request.crawlid), app=app_of(request.appid),
        spider=spider_of(request.spiderid),
        scope="domain" if domains else "any", domains=tuple(domains),
        allow=_allow_patterns(domains, request.allow_regex or []),
        deny=tuple(request.deny_regex or ()), deny_extensions=tuple(request.deny_extensions or ()),
        # Scrapy Cluster's 1 to 100 becomes 0 to 10; its default, 1, becomes the default, 0.
        max_depth=request.maxdepth or 0, priority=max(0, min(10, round(priority / 10))),
        max_pages_per_host=request.domain_max_pages or 0, expires_at=request.expires or 0.0,
        user_agent=request.useragent or DEFAULT_USER_AGENT, cookie=request.cookie or "",
        attributes=request.attrs or {}, joins=True,
        expired_message={"appid": request.appid, "crawlid": request.crawlid} if request.expires else {},
    )  # fmt: skip


def _allow_patterns(domains: list[str], patterns: list[str]) -> tuple[str, ...]:
    """Patterns for domains below a registrable domain, e.g. docs.example.org, which a scope cannot express."""
    if all(domain_of(domain) == domain for domain in domains):
        return tuple(patterns)
    names = "|".join(re.escape(domain) for domain in domains)
    prefix = rf"^[a-z]+://(?:[^/?#@]*[.@])?(?:{names})(?::[0-9]+)?(?:[/?#]|$)"
    return tuple(f"{prefix}.*(?:{pattern.removeprefix('^')})" for pattern in patterns) or (prefix,)


async def act(frontier: Frontier, action: ClusterAction) -> dict[str, Any]:
    """Perform an action, and return the reply in Scrapy Cluster's shape."""
    if not action.crawlid:
        return await _act_on_app(frontier, action)
    crawl = await _named(frontier, action)
    if action.action == "info":
        return await _about_crawl(frontier, action, crawl)
    purged = await _end(frontier, crawl, action.action)
    done = {"action": "stop", "total_purged": purged} if action.action == "stop" else {
        "action": "expired", "total_expired": purged
    }  # fmt: skip
    return {**await _head(frontier, action, crawl.limits.spider), "crawlid": action.crawlid, **done}


async def expired_message(frontier: Frontier, crawl: Crawl) -> dict[str, Any]:
    """The message that Scrapy Cluster sends when a crawl has expired by its `expires`."""
    ids = crawl.spec.get("expired_message", {})
    counts = await frontier.crawls.count(crawl.id)
    return {
        "server_time": int(await store_seconds(frontier)), "crawlid": ids.get("crawlid"),
        "spiderid": crawl.limits.spider or "link", "appid": ids.get("appid"), "action": "expired",
        # Shards exclude waiting visits one after the other.
        "total_expired": counts.open + counts.reasons.get("excluded:expired", 0),
    }  # fmt: skip


async def _act_on_app(frontier: Frontier, action: ClusterAction) -> dict[str, Any]:
    """Without a crawlid, an action applies to all open crawls of an application and a spider."""
    if action.action == "info":
        return await _about_app(frontier, action)
    if action.action == "expire":
        raise InvalidInput("The action expire needs a crawlid.")
    ended = [await _end(frontier, crawl, "stop") async for crawl in _of_app(frontier, action)]
    head = await _head(frontier, action, spider_of(action.spiderid))
    return {**head, "action": "stop", "total_purged": sum(ended)}


async def _end(frontier: Frontier, crawl: Crawl, how: str) -> int:
    """Stop or expire an open crawl. Returns the number of URLs that were waiting."""
    if not crawl.state.open:
        return 0
    counts = await frontier.crawls.count(crawl.id)
    # It may have ended meanwhile.
    with contextlib.suppress(CrawlEnded):
        await (frontier.crawls.stop(crawl.id) if how == "stop" else expire_now(frontier, crawl.id))
    return counts.waiting + counts.later


async def expire_now(frontier: Frontier, crawl_id: str) -> Crawl:
    """Expire a crawl now."""
    now = await store_seconds(frontier)
    await frontier.crawls.expire(crawl_id, now)
    # The first call sets the time of expiry; the second records the state, which the crawl has only after that time.
    return await frontier.crawls.expire(crawl_id, now)


async def _named(frontier: Frontier, action: ClusterAction) -> Crawl:
    """The crawl of an action: one in Scrapy Cluster's schema, or another one of the same application."""
    crawlid = action.crawlid or ""
    for name in possible_ids(action):
        with contextlib.suppress(UnknownCrawl, InvalidInput):
            crawl = await frontier.crawls.get(name)
            # Clients choose the names of crawls, so a name does not prove which application it belongs to.
            is_of_app = crawl.app == app_of(action.appid) and crawl.state is not State.DELETED
            if is_of_app and action.spiderid in (None, "", crawl.limits.spider or "link"):
                return crawl
    of = f" of spider {action.spiderid!r}" if action.spiderid else ""
    raise UnknownCrawl(f"Application {action.appid!r} has no crawl {crawlid!r}{of} in this store.")


async def _of_app(frontier: Frontier, action: ClusterAction) -> AsyncIterator[Crawl]:
    """The open crawls of an application and a spider."""
    async for crawl in frontier.crawls.all():
        matches = crawl.app == app_of(action.appid) and crawl.limits.spider == spider_of(action.spiderid)
        if matches and crawl.state.open and crawl.kind is not CrawlKind.BRANCH:
            yield crawl


async def _head(frontier: Frontier, action: ClusterAction, spider: str) -> dict[str, Any]:
    return {
        "server_time": int(await store_seconds(frontier)), "appid": action.appid, "uuid": action.uuid,
        "spiderid": spider or "link",
    }  # fmt: skip


async def _about_crawl(frontier: Frontier, action: ClusterAction, crawl: Crawl) -> dict[str, Any]:
    head, pending = await _head(frontier, action, crawl.limits.spider), await _pending(frontier, crawl)
    expires = {"expires": pending["expires"]} if "expires" in pending else {}
    return {
        **head, "crawlid": action.crawlid, "total_pending": pending["total"],
        "total_domains": pending["distinct_domains"], "domains": pending["domains"], **expires,
    }  # fmt: skip


async def _about_app(frontier: Frontier, action: ClusterAction) -> dict[str, Any]:
    crawls = {
        _crawlid(action.appid, crawl.id): await _pending(frontier, crawl) async for crawl in _of_app(frontier, action)
    }  # fmt: skip
    domains = {domain for pending in crawls.values() for domain in pending["domains"]}
    return {
        **await _head(frontier, action, spider_of(action.spiderid)),
        "total_pending": sum(pending["total"] for pending in crawls.values()),
        "total_domains": len(domains), "total_crawlids": len(crawls), "crawlids": crawls,
    }  # fmt: skip


def _crawlid(appid: str, crawl_id: str) -> str:
    """The id of a crawl in Scrapy Cluster, or its own id if that is unknown. Actions accept both."""
    name = crawl_id.partition(":")[2]
    return next((part for part in (name, name[: -_HASH_DIGITS - 1]) if cluster_name(appid, part) == crawl_id), crawl_id)


async def _pending(frontier: Frontier, crawl: Crawl) -> dict[str, Any]:
    counts = await frontier.crawls.count(crawl.id)
    domains = {}
    if crawl.state.open:
        async for host, lengths in hosts_of(frontier, crawl.key, crawl.limits.spider, MAX_DOMAINS):
            domains[host] = {
                "low_priority": min(lengths), "high_priority": max(lengths), "total": sum(lengths.values())
            }  # fmt: skip
    pending = {"total": counts.waiting + counts.later, "distinct_domains": len(domains), "domains": domains}
    # Scrapy Cluster sends the time as text.
    return pending | ({"expires": str(int(crawl.limits.expires_at))} if crawl.limits.expires_at else {})
