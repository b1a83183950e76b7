"""A crawl as a person sees it: state, counts, limits, rules, and no secrets."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, TypeVar

import msgspec

from shoal.errors import StoreUnavailable
from shoal.frontier import Frontier
from shoal.frontier.calendar import Upcoming
from shoal.frontier.inspect import PendingHost, pending_hosts, store_seconds
from shoal.frontier.samples import read_samples
from shoal.model.crawl import Counts, Crawl, CrawlKind
from shoal.model.crawl_spec import CrawlSpec
from shoal.model.limits import Limits
from shoal.operations.scrapy_crawl import without_values
from shoal.settings import masked

_HIDDEN = "***"
# Shards that do not reply within this time are left out.
_REPLY_SECONDS = 5.0
_MOST_PENDING = 20
T = TypeVar("T")


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl with its counts and options. Times are in seconds since 1970; 0 means not yet.

    id             id of the crawl
    state          one of running, paused, stopped, expired and finished
    why            why the crawl has this state; '' if there is no special reason
    failed         number of failed URLs by reason, the most frequent first
    excluded       number of excluded URLs by reason, the most frequent first
    samples        up to 20 excluded or not followed URLs for each reason
    bytes          bytes received
    items          items that the crawl's spiders have yielded
    policy         the options that workers enforce, without secrets
    waiting        why the crawl cannot continue: a spider that no worker has, or an unavailable part of the store
    pending        hosts that the crawl waits for after failures, the longest wait first
    scheduled      perpetual crawls: number of pages in the calendar
    next_visit_at  perpetual crawls: when the next page is due; 0 if unknown
    visited_ago_seconds  perpetual crawls: mean time since the last visit of a page, from a sample; 0 if unknown
    """

    id: str
    state: str
    why: str
    created_at: float
    ended_at: float
    counts: Counts
    failed: dict[str, int]
    excluded: dict[str, int]
    samples: dict[str, tuple[str, ...]]
    bytes: int
    items: int
    limits: Limits
    policy: dict[str, Any]
    waiting: tuple[str, ...] = ()
    pending: tuple[PendingHost, ...] = ()
    scheduled: int = 0
    next_visit_at: float = 0.0
    visited_ago_seconds: float = 0.0


async def find(frontier: Frontier, crawl_id: str) -> Crawl:
    """The record of a crawl. In a cluster, StoreUnavailable soon if its home shard does not respond."""
    reading = asyncio.ensure_future(frontier.crawls.get(crawl_id))
    try:
        await asyncio.wait([reading], timeout=_REPLY_SECONDS if frontier.on_cluster else None)
        if not reading.done():
            raise StoreUnavailable(
                f"The shard that holds the record of crawl {crawl_id!r} does not respond; check that all nodes of the "
                f"store at {frontier.store_name} run. Crawling continues in the other shards."
            )
        return reading.result()
    finally:
        reading.cancel()


async def describe(frontier: Frontier, crawl: Crawl, *, with_samples: bool = True) -> Description:
    """Read a crawl in two rounds of calls to the store for any number of shards; with a spider, in a few more."""
    counts = await frontier.crawls.count(crawl.id, within_seconds=_REPLY_SECONDS)
    # Values that need every shard are left out if a shard does not respond.
    missing = len(frontier.shards.unavailable)
    facts, samples, items, waiting, pending, upcoming = await asyncio.gather(
        frontier.crawls.facts.read(crawl.id),
        _nothing({}) if missing or not with_samples else read_samples(frontier, crawl),
        _items(frontier, crawl),
        waiting_for(frontier, crawl),
        _nothing([]) if missing or not crawl.state.open else pending_hosts(frontier, crawl),
        _nothing(Upcoming(0, None, 0.0))
        if missing or not crawl.state.open or not crawl.perpetual
        else frontier.calendar.upcoming(crawl.id),
    )
    return Description(
        id=crawl.id,
        state=crawl.state.value,
        why=crawl.why,
        created_at=crawl.created_at,
        ended_at=crawl.ended_at,
        counts=counts,
        failed=_by_reason(counts, "failed:"),
        excluded=_by_reason(counts, "excluded:"),
        samples=samples,
        bytes=facts.bytes_received,
        items=items,
        limits=crawl.limits,
        # A Scrapy crawl has its rules in the settings of its project.
        policy={**without_values(crawl.spec), "outputs": []}
        if crawl.kind is CrawlKind.SCRAPY
        else _without_secrets(CrawlSpec.of(crawl)),
        waiting=(
            *waiting,
            *((f"{missing} of {frontier.shards.count} shards do not respond and are not counted",) if missing else ()),
        ),
        pending=tuple(pending[:_MOST_PENDING]),
        scheduled=upcoming.pages,
        next_visit_at=0.0 if upcoming.seconds is None else await store_seconds(frontier) + upcoming.seconds,
        visited_ago_seconds=upcoming.visited_ago_seconds,
    )


async def _nothing(value: T) -> T:
    return value


async def waiting_for(frontier: Frontier, crawl: Crawl, served: Collection[str] = ()) -> tuple[str, ...]:
    """A phrase for each spider that a crawl needs and no worker has: its own, or one that its spider sends pages to.

    served  spiders of workers that the caller is starting
    """
    if not crawl.limits.spider or not crawl.state.open:
        return ()
    alive = await frontier.workers.alive()
    available = {*served, *(spider for worker in alive for spider in worker.heartbeat.spiders)}
    parts = [crawl, *[await frontier.crawls.known(name) for name in await frontier.crawls.branches(crawl.id)]]
    missing = []
    for part in parts:
        # A part without waiting visits needs no worker.
        if part.limits.spider not in available and (await frontier.crawls.count(part.id)).waiting:
            # The spider of a Scrapy project has a name that only its processes know.
            is_scrapy = part.kind is CrawlKind.SCRAPY
            lacks = "no Scrapy process works on it" if is_scrapy else f"no worker has spider {part.limits.spider}"
            missing.append(f"waiting: {lacks}")
    return tuple(missing)


async def _items(frontier: Frontier, crawl: Crawl) -> int:
    """The number of items that the crawl's spiders have yielded, in all passes."""
    if not crawl.limits.spider or crawl.kind is CrawlKind.SCRAPY:
        return 0
    names = [crawl.id, *await frontier.crawls.branches(crawl.id)]
    return sum([(await frontier.crawls.tally(name)).get("items", 0) for name in names])


def _by_reason(counts: Counts, prefix: str) -> dict[str, int]:
    numbers = {name[len(prefix) :]: number for name, number in counts.reasons.items() if name.startswith(prefix)}
    return dict(sorted(numbers.items(), key=lambda pair: (-pair[1], pair[0])))


def _without_secrets(spec: CrawlSpec) -> dict[str, Any]:
    shown = spec.stored()
    for name in ("cookie", "auth", "notify"):
        shown[name] = _HIDDEN if shown[name] else ""
    shown["logins"] = dict.fromkeys(shown["logins"], _HIDDEN)
    # Any header may contain a credential.
    shown["headers"] = dict.fromkeys(shown["headers"], _HIDDEN)
    # An argument may be a password for a login.
    shown["arguments"] = dict.fromkeys(shown["arguments"], _HIDDEN)
    shown["outputs"] = [masked(output) for output in shown["outputs"]]
    shown["changes"] = [masked(output) for output in shown["changes"]]
    shown["files"] = masked(shown["files"])
    shown["seeds"] = [masked(seed) if "@" in seed else seed for seed in shown["seeds"]]
    return shown
