"""Start a crawl, or resume the crawl that has the same name.

Everything is checked before the first write. A crawl keeps the options of its first start, because its frontier was
filled under them. Options that differ at a later start are reported and ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

import msgspec

from shoal.errors import CrawlEnded, CrawlExists, InvalidInput, InvalidLimit, SettingsError, UnknownCrawl
from shoal.frontier import Frontier
from shoal.model import validation
from shoal.model.crawl import Crawl, CrawlKind, State
from shoal.model.crawl_spec import STORED_SEEDS, CrawlSpec
from shoal.model.visit import Visit
from shoal.operations.locality import check_machine
from shoal.operations.revisit import reopen
from shoal.politeness.robots_parser import check_token, product_token
from shoal.urls.scope import Scope


class StartMode(StrEnum):
    NEW = "new"
    RESUMED = "resumed"
    AGAIN = "again"
    FINISHED = "finished"


class StartedCrawl(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl that was created, resumed or found finished."""

    crawl: Crawl
    # The options that apply to the crawl.
    spec: CrawlSpec
    how: StartMode
    # Options that the caller has set and that differ from those of the crawl.
    differs: tuple[str, ...] = ()


async def begin(
    frontier: Frontier,
    *,
    name: str,
    seeds: Sequence[str],
    spec: CrawlSpec,
    given: Collection[str] = (),
    again: bool = False,
    named: Mapping[str, str] | None = None,
    visits: Sequence[Visit] = (),
) -> StartedCrawl:
    """Create the crawl `name` with these seeds, or resume the crawl of that name.

    `seeds` are URLs as `seed_url` returns them; `visits` are seeds that have more than a URL: where a spider starts.
    `given` are the options that the caller has set; the others are defaults.
    With `again`, a finished crawl is reopened for another pass over its pages: feed it with `revisit.revisits`.
    `named` are outputs by their names; they are read to find the pages of the crawl.
    """
    validation.crawl_id(name)
    urls = list(dict.fromkeys([*(visit.url for visit in visits), *seeds]))
    spec = msgspec.structs.replace(spec, seeds=tuple(urls[:STORED_SEEDS]))
    check_spec(spec)
    how = StartMode.NEW
    try:
        crawl = await frontier.crawls.get(name)
    except UnknownCrawl:
        if not urls:
            raise InvalidInput(f"There is no crawl {name!r} to resume; pass a URL to start one.") from None
        try:
            crawl = await frontier.crawls.create(name, spec.limits(), spec.stored())
        except CrawlExists:
            crawl = await frontier.crawls.get(name)
            how = StartMode.RESUMED
    else:
        how = StartMode.RESUMED
    check_takes_seeds(crawl)
    stored = CrawlSpec.of(crawl)
    differs = _differing(given, stored, spec) if how is StartMode.RESUMED else ()
    if crawl.state is State.FINISHED and not again:
        return StartedCrawl(crawl=crawl, spec=stored, how=StartMode.FINISHED, differs=differs)
    if not crawl.state.open and crawl.state is not State.FINISHED:
        raise CrawlEnded(f"Crawl {name!r} is {crawl.state.value} and cannot be resumed; choose another name.")
    check_machine(name, stored, spec.machine)
    if crawl.state is State.FINISHED:
        crawl, how = await reopen(frontier, crawl, stored, named=named or {}), StartMode.AGAIN
    # The stored seeds too: the process that created the crawl may have been killed before it added them.
    visited = {visit.url for visit in visits}
    plain = [Visit(url=url, found="seed") for url in dict.fromkeys([*stored.seeds, *urls]) if url not in visited]
    await frontier.add(name, [*visits, *plain])
    if crawl.state is State.PAUSED:
        crawl = await frontier.crawls.resume(name)
    return StartedCrawl(crawl=crawl, spec=stored, how=how, differs=differs)


def check_takes_seeds(crawl: Crawl) -> None:
    """Refuse URLs for a Scrapy crawl: its processes could not tell which callback they are for."""
    if crawl.kind is CrawlKind.SCRAPY:
        raise InvalidInput(
            f"Crawl {crawl.id!r} is a Scrapy crawl, whose URLs come only from its spider; push them to the key that a "
            "RedisSpider reads, or start a crawl with another name."
        )


def check_spec(spec: CrawlSpec) -> None:
    """Raise for options that no worker could apply: numbers, patterns, a user agent that robots.txt cannot name."""
    spec.check()
    try:
        check_token(product_token(spec.user_agent))
    except SettingsError as error:
        raise InvalidLimit(f"Invalid user_agent. {error}") from None
    Scope(spec.scope, allow=spec.allow, deny=spec.deny, deny_extensions=spec.deny_extensions)


def _differing(given: Collection[str], stored: CrawlSpec, spec: CrawlSpec) -> tuple[str, ...]:
    """The options that were set and differ from those of the crawl. Seeds are added whenever they come."""
    return tuple(
        name
        for name in CrawlSpec.__struct_fields__
        if name in given and name != "seeds" and getattr(stored, name) != getattr(spec, name)
    )
