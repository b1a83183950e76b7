"""Feeding: URLs that come to a crawl while it runs, because a start cannot wait for so many of them.

Owns the mark in the store of what was begun and what is done, so that a crawl that was killed in between is known to
lack URLs. Adding is idempotent: whoever goes on may begin from the front.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple

from shoal.errors import CrawlEnded, StoreFull, StoreHeld, StoreUnavailable
from shoal.frontier import Frontier
from shoal.frontier.crawl_facts import Feed
from shoal.model.visit import Visit

SEEDS, PASS = Feed.SEEDS, Feed.PASS
_PAUSE_SECONDS = 1.0


class Feeding(NamedTuple):
    """One that is under way: its number, counted from 1, and when it began."""

    number: int
    began_at: float


async def under_way(frontier: Frontier, crawl: str, what: Feed) -> Feeding | None:
    state = (await frontier.crawls.facts.read(crawl)).feed(what)
    return Feeding(state.started, state.started_at) if state.under_way else None


async def any_under_way(frontier: Frontier, crawl: str) -> bool:
    """Whether more is to come, by a command that runs or by the next one: the crawl is not over, whatever it counts."""
    return (await frontier.crawls.facts.read(crawl)).feeding


async def begin(frontier: Frontier, crawl: str, what: Feed) -> None:
    """Note that it is under way. It still is the same one if it was already."""
    await frontier.crawls.facts.start_feed(crawl, what)


async def end(frontier: Frontier, crawl: str, what: Feed) -> None:
    await frontier.crawls.facts.finish_feed(crawl, what)


async def feed(
    frontier: Frontier, crawl: str, batches: AsyncGenerator[Sequence[Visit], None], on_trouble: Callable[[str], None]
) -> int | None:
    """Add them; returns how many were new, None when the crawl ended before, by a limit or by somebody.

    A store that is away or full is waited for: its workers make room.
    """
    new = 0
    async with aclosing(batches):
        async for visits in batches:
            while True:
                try:
                    new += (await frontier.add(crawl, visits, skip_invalid=True)).new
                    break
                except CrawlEnded:
                    return None
                except (StoreFull, StoreHeld, StoreUnavailable) as error:
                    on_trouble(str(error))
                    await asyncio.sleep(_PAUSE_SECONDS)
    return new
