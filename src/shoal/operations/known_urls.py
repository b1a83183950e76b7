"""URLs that a crawl has seen: find one, forget it, or visit it again now.

The one implementation for the commands, the HTTP API and the dashboard. A revisit skips no rule: delay, back-off,
robots.txt and limits apply to it as to any visit.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing

from shoal.errors import CrawlEnded, InvalidInput, SinkError, UnknownCrawl
from shoal.frontier import Frontier
from shoal.frontier.signals import Signal, SignalKind, SignalResult
from shoal.frontier.url_state import UrlPlace, UrlState, hasten, url_state
from shoal.model.crawl import Crawl, CrawlKind
from shoal.model.crawl_spec import CrawlSpec
from shoal.model.record import Record
from shoal.model.visit import Visit
from shoal.operations.revisit import COLUMNS, visit_of_page
from shoal.operations.seeds import seed_target
from shoal.sinks.reader import read
from shoal.urls.canonical import Target

# A user waits for the result, and each URL is looked up separately.
MAX_URLS = 100
_READ_SECONDS = 3.0
_BUSY = {
    UrlPlace.WAITING: "it is waiting for its visit",
    UrlPlace.LEASED: "a worker is visiting it",
    UrlPlace.LATER: "its visit is due later",
    UrlPlace.FAILED: "it failed, and can be retried",
    UrlPlace.SET_ASIDE: "it is set aside by a limit",
}


async def state_of(frontier: Frontier, crawl: Crawl, target: Target) -> tuple[Crawl, UrlState]:
    """The state of a URL in a crawl or, if the crawl does not know it, in the branch that does."""
    state = await url_state(frontier, crawl, target)
    if state.place is UrlPlace.UNKNOWN:
        async for branch in _branches(frontier, crawl):
            branch_state = await url_state(frontier, branch, target)
            if branch_state.place is not UrlPlace.UNKNOWN:
                return branch, branch_state
    return crawl, state


async def _branches(frontier: Frontier, crawl: Crawl) -> AsyncIterator[Crawl]:
    for name in await frontier.crawls.branches(crawl.id):
        yield await frontier.crawls.known(name)


async def forget(frontier: Frontier, crawl: Crawl, urls: Sequence[str]) -> int:
    """Forget that a crawl has seen these URLs, and return how many it had seen.

    A forgotten URL is visited and counted again when a page or a seed leads to it. InvalidInput is raised, and nothing
    is forgotten, if a URL is waiting, leased, due later, failed or set aside, or is a page of a perpetual crawl.
    """
    targets = _targets(crawl, urls)
    for target in targets:
        _, state = await state_of(frontier, crawl, target)
        if state.place in _BUSY:
            raise InvalidInput(f"{target.url[:200]} cannot be forgotten: {_BUSY[state.place]}.")
        if state.place is UrlPlace.DONE and crawl.perpetual:
            raise InvalidInput(f"{target.url[:200]} cannot be forgotten: a perpetual crawl revisits its pages.")
    known = 0
    for name in [crawl.id, *await frontier.crawls.branches(crawl.id)]:
        known += await frontier.crawls.forget(name, [target.url for target in targets])
        # The response to the next visit must not be "unchanged".
        await frontier.validators.remember(name, [(target.url, "") for target in targets])
    return known


async def revisit(frontier: Frontier, crawl: Crawl, urls: Sequence[str], *, named: Mapping[str, str]) -> int:
    """Visit these URLs again as soon as their hosts allow it, and return how many. `named` are outputs by their names.

    A failed URL is retried, a URL that is due later becomes due now, and a waiting or leased URL is left as it is. A
    page of a perpetual crawl is pulled forward in its calendar. A finished crawl runs again. If a URL is unknown or set
    aside, InvalidInput is raised and nothing is changed.
    """
    try:
        return await _revisit(frontier, crawl, urls, named)
    except CrawlEnded:
        # It may have finished since `crawl` was read.
        if not (crawl := await frontier.crawls.get(crawl.id)).is_complete:
            raise
        return await _revisit(frontier, crawl, urls, named)


async def _revisit(frontier: Frontier, crawl: Crawl, urls: Sequence[str], named: Mapping[str, str]) -> int:
    targets = _targets(crawl, urls)
    states: list[tuple[Target, Crawl, UrlState]] = []
    for target in targets:
        owner, state = await state_of(frontier, crawl, target)
        if state.place is UrlPlace.UNKNOWN:
            raise InvalidInput(f"Crawl {crawl.id!r} has not seen {target.url[:200]}: add it as a seed instead.")
        if state.place is UrlPlace.SET_ASIDE:
            raise InvalidInput(f"{target.url[:200]} is set aside by a limit ({state.reason}): raise the limit instead.")
        states.append((target, owner, state))
    if crawl.is_complete:
        crawl = await frontier.crawls.resume(crawl.id)
    if not crawl.state.open:
        raise CrawlEnded(f"Crawl {crawl.id!r} is {crawl.state.value}: it makes no more visits.")
    for target, owner, state in states:
        if state.place is UrlPlace.FAILED:
            await frontier.crawls.retry(crawl.id, urls=[target.url])
        elif state.place is UrlPlace.LATER:
            await hasten(frontier, owner, target)
        elif state.place is UrlPlace.DONE and crawl.perpetual:
            _check_noted(target, await frontier.signals.note(owner.id, SignalKind.TOUCH, [Signal(target.url)]))
        elif state.place is UrlPlace.DONE:
            await frontier.add(owner.id, [await _repeated_visit(crawl, target, named)], force=True)
    return len(states)


def _check_noted(target: Target, results: list[SignalResult]) -> None:
    if results == [SignalResult.FULL]:
        raise InvalidInput(f"Too many revisits of {target.host} are waiting; retry when some of them are done.")


def can_revisit(crawl: Crawl) -> bool:
    """Whether URLs of this crawl can be revisited individually."""
    return crawl.kind is not CrawlKind.SCRAPY and not CrawlSpec.of(crawl).by_address


def can_forget(crawl: Crawl) -> bool:
    """Whether URLs of this crawl can be forgotten."""
    return can_revisit(crawl) and not crawl.perpetual


def _targets(crawl: Crawl, urls: Sequence[str]) -> list[Target]:
    if crawl.kind is CrawlKind.SCRAPY:
        raise InvalidInput(f"Crawl {crawl.id!r} is a Scrapy crawl: only its spider knows which callback a URL is for.")
    if CrawlSpec.of(crawl).by_address:
        raise InvalidInput(f"Crawl {crawl.id!r} queues URLs by IP address (--by-address): revisit all with --again.")
    if not 1 <= len(urls) <= MAX_URLS:
        raise InvalidInput(f"Pass 1 to {MAX_URLS} URLs.")
    return list({target.url: target for target in map(seed_target, urls)}.values())


async def _repeated_visit(crawl: Crawl, target: Target, named: Mapping[str, str]) -> Visit:
    """A new visit to a URL that is done. Its row in the output shows whether it was stored, and its depth."""
    policy = CrawlSpec.of(crawl)
    is_seed = target.url in {seed_target(seed).url for seed in policy.seeds}
    for output in (named.get(name, name) for name in policy.outputs):
        with contextlib.suppress(SinkError, InvalidInput, UnknownCrawl, TimeoutError):
            async with asyncio.timeout(_READ_SECONDS), aclosing(read(output, crawl=crawl.id, columns=COLUMNS)) as rows:
                async for batch in rows:
                    for row in batch:
                        if isinstance(row, Record) and row.url == target.url:
                            return visit_of_page(row, 0, is_seed=is_seed)
            # No row: it was excluded.
            return Visit(url=target.url, found="seed" if is_seed else "other", depth=_depth(policy, is_seed))
    # No output could be read. Most URLs that are done are stored pages.
    return Visit(url=target.url, found="revisit", depth=_depth(policy, is_seed))


def _depth(policy: CrawlSpec, is_seed: bool) -> int:
    """The depth of a URL whose depth is unknown: its links must not exceed the limit."""
    return 0 if is_seed or policy.max_depth is None else policy.max_depth
