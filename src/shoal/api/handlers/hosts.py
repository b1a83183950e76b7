"""Hosts over HTTP: what holds for each of them, for all crawls and machines, and what an operator sets."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from shoal.api.pagination import MOST_A_PAGE, cursor_of
from shoal.api.problem_details import Json
from shoal.api.request import RequestContext
from shoal.frontier.hosts import Host
from shoal.frontier.inspect import list_crawls, waiting, waiting_hosts
from shoal.model.crawl import State


class HostView(Host, frozen=True, kw_only=True):
    """`delay_seconds` and `places` are what an operator set, null where the crawls' own hold.

    `waiting` counts the URLs that wait for it, `crawls` those by crawl. Times are seconds since 1970 on the store's
    clock, 0 = never: nobody asks it before `gate_at` and `backoff_until`.
    """

    waiting: int
    crawls: dict[str, int]


class HostPage(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts that have something to do. `next` is the cursor of the next page, null on the last one."""

    hosts: list[HostView]
    next: str | None = None


class HostChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is left out stays as it is; null takes a delay or places back. `blocked` with a reason, '' to unblock."""

    delay_seconds: Annotated[float, Meta(ge=0, le=86400)] | msgspec.UnsetType | None = msgspec.UNSET
    places: Annotated[int, Meta(ge=1, le=32)] | msgspec.UnsetType | None = msgspec.UNSET
    blocked: Annotated[str, Meta(max_length=64)] | msgspec.UnsetType = msgspec.UNSET


async def listing(asked: RequestContext) -> Response:
    most = asked.whole("limit", 50, MOST_A_PAGE)
    shard, name = asked.cursor(tuple[Annotated[int, Meta(ge=0)], str], "hosts") or (0, "")
    spiders, paused = {""}, []
    async for _, crawl in list_crawls(asked.frontier):
        if crawl.state.open:
            spiders.add(crawl.limits.spider)
        if crawl.state is State.PAUSED:
            paused.append(crawl.key)
    found: list[HostView] = []
    while shard < asked.frontier.shards.count:
        for host in await waiting_hosts(asked.frontier, shard, spiders, paused):
            if host <= name:
                continue
            if len(found) == most:
                return Json(HostPage(hosts=found, next=cursor_of((shard, name), "hosts")))
            found.append(await _view(asked, await asked.frontier.hosts.get(host), paused))
            name = host
        shard, name = shard + 1, ""
    return Json(HostPage(hosts=found))


async def show(asked: RequestContext) -> Response:
    host = await asked.frontier.hosts.get(asked.path("host"))
    return Json(await _view(asked, host, await _paused(asked)))


async def change(asked: RequestContext) -> Response:
    hosts, name = asked.frontier.hosts, asked.frontier.hosts.name(asked.path("host"))
    wanted: HostChange = await asked.json(HostChange)
    if not isinstance(wanted.delay_seconds, msgspec.UnsetType):
        await hosts.set_delay(name, wanted.delay_seconds)
    if not isinstance(wanted.places, msgspec.UnsetType):
        await hosts.set_places(name, wanted.places)
    if not isinstance(wanted.blocked, msgspec.UnsetType):
        await (hosts.block(name, wanted.blocked) if wanted.blocked else hosts.unblock(name))
    return Json(await _view(asked, await hosts.get(name), await _paused(asked)))


async def _paused(asked: RequestContext) -> list[str]:
    return [crawl.key async for _, crawl in list_crawls(asked.frontier) if crawl.state is State.PAUSED]


async def _view(asked: RequestContext, host: Host, paused: list[str]) -> HostView:
    lengths = {}
    for key, by_priority in (await waiting(asked.frontier, host.name, paused)).items():
        lengths[(await asked.frontier.crawls.by_key(key)).id] = sum(by_priority.values())
    return HostView(**msgspec.structs.asdict(host), waiting=sum(lengths.values()), crawls=lengths)
