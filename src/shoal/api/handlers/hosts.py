"""Hosts over HTTP: their politeness state, shared by all crawls and workers, and the settings of operators."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from shoal.api.pagination import MAX_PAGE_SIZE, make_cursor
from shoal.api.problem_details import Json
from shoal.api.request import RequestContext
from shoal.frontier.hosts import Host, PastBackOff
from shoal.frontier.inspect import list_crawls, waiting, waiting_hosts
from shoal.model.crawl import State


class HostView(Host, frozen=True, kw_only=True):
    """A host. Times are in seconds since 1970 on the store's clock; 0 means never.

    name                    host name, with the port unless it is 80 or 443
    crawls_waiting          number of crawls with waiting URLs of this host
    leases                  number of slots in use
    delay_seconds           delay set by an operator; null if each crawl's own delay applies
    places                  number of slots set by an operator; null if each crawl's own number applies
    crawl_delay_seconds     Crawl-delay in robots.txt; 0 if there is none
    adaptive_delay_seconds  delay that follows from the response times
    robots_known            whether robots.txt is known
    gate_at                 no request is sent before this time
    backoff_until           end of the back-off
    backoff_reason          the last failure
    failures                number of failures in a row
    blocked                 why an operator blocked the host; '' if it is not blocked
    last_finished_at        end of the last request
    last_successful_at      end of the last successful request
    mean_response_seconds   mean response time
    """

    waiting: Annotated[int, Meta(description="Waiting URLs.")]
    crawls: Annotated[dict[str, int], Meta(description="Waiting URLs by crawl.")]


class HostPage(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts that have waiting URLs or a lease."""

    hosts: list[HostView]
    next: Annotated[str | None, Meta(description="Cursor of the next page; null on the last page.")] = None


class HostChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """New settings of a host. Omitted fields stay unchanged.

    delay_seconds  delay for all crawls; null removes it
    places         number of slots for all crawls; null removes it
    blocked        why the host is blocked; '' unblocks it
    """

    delay_seconds: Annotated[float, Meta(ge=0, le=86400)] | msgspec.UnsetType | None = msgspec.UNSET
    places: Annotated[int, Meta(ge=1, le=32)] | msgspec.UnsetType | None = msgspec.UNSET
    blocked: Annotated[str, Meta(max_length=64)] | msgspec.UnsetType = msgspec.UNSET


async def listing(context: RequestContext) -> Response:
    limit = context.integer("limit", 50, MAX_PAGE_SIZE)
    shard, name = context.cursor(tuple[Annotated[int, Meta(ge=0)], str], "hosts") or (0, "")
    spiders, paused = {""}, []
    async for _, crawl in list_crawls(context.frontier):
        if crawl.state.open:
            spiders.add(crawl.limits.spider)
        if crawl.state is State.PAUSED:
            paused.append(crawl.key)
    views: list[HostView] = []
    while shard < context.frontier.shards.count:
        for host in await waiting_hosts(context.frontier, shard, spiders, paused):
            if host <= name:
                continue
            if len(views) == limit:
                return Json(HostPage(hosts=views, next=make_cursor((shard, name), "hosts")))
            views.append(await view_of(context, await context.frontier.hosts.get(host), paused))
            name = host
        shard, name = shard + 1, ""
    return Json(HostPage(hosts=views))


async def show(context: RequestContext) -> Response:
    host = await context.frontier.hosts.get(context.path("host"))
    return Json(await view_of(context, host, await _paused(context)))


class BackOffs(msgspec.Struct, frozen=True, kw_only=True):
    """The last back-offs of a host, newest first: at most 20 of the last seven days."""

    back_offs: list[PastBackOff]


async def back_offs(context: RequestContext) -> Response:
    return Json(BackOffs(back_offs=await context.frontier.hosts.back_offs(context.path("host"))))


async def update(context: RequestContext) -> Response:
    hosts, name = context.frontier.hosts, context.frontier.hosts.name(context.path("host"))
    change: HostChange = await context.json(HostChange)
    if not isinstance(change.delay_seconds, msgspec.UnsetType):
        await hosts.set_delay(name, change.delay_seconds)
    if not isinstance(change.places, msgspec.UnsetType):
        await hosts.set_places(name, change.places)
    if not isinstance(change.blocked, msgspec.UnsetType):
        await (hosts.block(name, change.blocked) if change.blocked else hosts.unblock(name))
    return Json(await view_of(context, await hosts.get(name), await _paused(context)))


async def _paused(context: RequestContext) -> list[str]:
    return [crawl.key async for _, crawl in list_crawls(context.frontier) if crawl.state is State.PAUSED]


async def view_of(context: RequestContext, host: Host, paused: list[str]) -> HostView:
    """A host with its queue. `paused` are the keys of paused crawls, whose visits may be parked."""
    lengths = {}
    for key, by_priority in (await waiting(context.frontier, host.name, paused)).items():
        lengths[(await context.frontier.crawls.by_key(key)).id] = sum(by_priority.values())
    return HostView(**msgspec.structs.asdict(host), waiting=sum(lengths.values()), crawls=lengths)
