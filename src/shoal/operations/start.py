"""Beginning a crawl, or going on with one: the same name is the same crawl.

Everything is checked before the first write. A crawl keeps the limits and the policy of its first start, because its
frontier was filled by them; what somebody asks for differently later is named, not taken over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from shoal.errors import CrawlEnded, CrawlExists, InvalidInput, UnknownCrawl
from shoal.frontier import Frontier
from shoal.model import validation
from shoal.model.crawl import Crawl, CrawlKind, Limits, State
from shoal.model.crawl_spec import Policy
from shoal.model.visit import Visit
from shoal.operations.locality import check_machine
from shoal.operations.revisit import reopen
from shoal.operations.seeds import seed_url
from shoal.politeness.robots_parser import check_token
from shoal.urls.canonical import canonical
from shoal.urls.scope import Scope
from shoal.worker.crawl_context import product

_MOST_IN_POLICY = 1000


class StartMode(StrEnum):
    NEW = "new"
    RESUMED = "resumed"
    AGAIN = "again"
    FINISHED = "finished"


class StartedCrawl(msgspec.Struct, frozen=True, kw_only=True):
    """`differs` names limits and rules that were asked for and are not those of the crawl."""

    crawl: Crawl
    policy: Policy
    how: StartMode
    differs: tuple[str, ...] = ()


async def begin(
    frontier: Frontier,
    *,
    name: str,
    seeds: Iterable[str],
    limits: Limits,
    policy: Policy,
    given: Collection[str] = (),
    again: bool = False,
    named: Mapping[str, str] | None = None,
    visits: Sequence[Visit] = (),
) -> StartedCrawl:
    """Make the crawl `name` with these seeds, or go on with the one that is there.

    `visits` are seeds with more to them than their URLs: where a spider starts.
    With `again`, one that is finished is opened for another pass over its pages: feed it with `again.revisits`.
    `named` are outputs by their names, to read which pages it has.
    `given` are the fields of `limits` and `policy` that somebody asked for; the others are defaults.
    """
    validation.crawl_id(name)
    urls = list(dict.fromkeys([*(visit.url for visit in visits), *(seed_url(seed) for seed in seeds)]))
    policy = msgspec.structs.replace(policy, seeds=tuple(urls[:_MOST_IN_POLICY]))
    limits.check()
    check(policy)
    how = StartMode.NEW
    try:
        crawl = await frontier.crawls.get(name)
    except UnknownCrawl:
        if not urls:
            raise InvalidInput(f"There is no crawl {name!r} to go on with; give a URL to begin one.") from None
        try:
            crawl = await frontier.crawls.create(name, limits, policy.spec())
        except CrawlExists:
            crawl = await frontier.crawls.get(name)
            how = StartMode.RESUMED
    else:
        how = StartMode.RESUMED
    check_takes_seeds(crawl)
    kept = Policy.of(crawl.spec)
    differs = _differing(given, crawl.limits, kept, limits, policy) if how is StartMode.RESUMED else ()
    if crawl.state is State.FINISHED and not again:
        return StartedCrawl(crawl=crawl, policy=kept, how=StartMode.FINISHED, differs=differs)
    if not crawl.state.open and crawl.state is not State.FINISHED:
        raise CrawlEnded(f"Crawl {name!r} is {crawl.state.value} for good; choose another name.")
    check_machine(name, kept, policy.machine)
    if crawl.state is State.FINISHED:
        crawl, how = await reopen(frontier, crawl, kept, named=named or {}), StartMode.AGAIN
    # Those of the first start too: whoever began it may have been killed before they were added.
    special = {visit.url for visit in visits}
    plain = [Visit(url=url, found="seed") for url in dict.fromkeys([*kept.seeds, *urls]) if url not in special]
    await frontier.add(name, [*visits, *plain])
    if crawl.state is State.PAUSED:
        crawl = await frontier.crawls.resume(name)
    return StartedCrawl(crawl=crawl, policy=kept, how=how, differs=differs)


def check_takes_seeds(crawl: Crawl) -> None:
    """Refuse URLs for a crawl of Scrapy's: its processes could not tell which callback they are for."""
    if crawl.kind is CrawlKind.SCRAPY:
        raise InvalidInput(
            f"Crawl {crawl.id!r} is one of Scrapy's, whose URLs come from its spider alone; push them to the key that "
            "a RedisSpider reads, or begin a crawl of another name."
        )


def check(policy: Policy) -> None:
    """Refuse a policy that no worker could follow: bad numbers, patterns, a user agent that robots.txt cannot name."""
    policy.check()
    check_token(product(policy.user_agent))
    Scope(
        policy.reach,
        [canonical(seed) for seed in policy.seeds],
        allow=policy.allow,
        deny=policy.deny,
        deny_extensions=policy.deny_extensions,
    )


def _differing(
    given: Collection[str], kept_limits: Limits, kept: Policy, limits: Limits, policy: Policy
) -> tuple[str, ...]:
    pairs = ((kept_limits, limits), (kept, policy))
    return tuple(
        field
        for was, wanted in pairs
        for field in was.__struct_fields__
        # Seeds are added, whenever they come.
        if field in given and field != "seeds" and getattr(was, field) != getattr(wanted, field)
    )
