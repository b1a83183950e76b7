"""Feeding: URLs that come to a crawl while it runs, because a start cannot wait for so many of them.

Owns the mark in the store of what was begun and what is done, so that a crawl that was killed in between is known to
lack URLs. Adding is idempotent: whoever goes on may begin from the front.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple

from shoal.errors import CrawlEnded, StoreFull, StoreHeld, StoreUnavailable
from shoal.frontier import Frontier
from shoal.model.visit import Visit

SEEDS, PASS = "seeds", "pass"
_PAUSE_SECONDS = 1.0


class Feeding(NamedTuple):
    """One that is under way: its number, counted from 1, and when it began."""

    number: int
    began_at: float


async def under_way(frontier: Frontier, crawl: str, what: str) -> Feeding | None:
    begun, done, at_ms = await _counted(frontier, crawl, what)
    return Feeding(begun, at_ms / 1000) if begun > done else None


async def any_under_way(frontier: Frontier, crawl: str) -> bool:
    """Whether more is to come, by a command that runs or by the next one: the crawl is not over, whatever it counts."""
    totals = await frontier.crawls.tally(crawl)
    return any(totals.get(f"{what}_begun", 0) > totals.get(f"{what}_done", 0) for what in (SEEDS, PASS))


async def begin(frontier: Frontier, crawl: str, what: str) -> None:
    """Note that it is under way. It still is the same one if it was already."""
    begun, done, at_ms = await _counted(frontier, crawl, what)
    if begun <= done:
        # Not by one: a call whose answer was lost counts twice, and only the order of the numbers says anything.
        later_ms = max(0, int(time.time() * 1000) - at_ms)
        await frontier.crawls.tally(crawl, **{f"{what}_begun": done + 1 - begun, f"{what}_began_ms": later_ms})


async def end(frontier: Frontier, crawl: str, what: str) -> None:
    begun, done, _ = await _counted(frontier, crawl, what)
    if begun > done:
        await frontier.crawls.tally(crawl, **{f"{what}_done": begun - done})


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


async def _counted(frontier: Frontier, crawl: str, what: str) -> tuple[int, int, int]:
    totals = await frontier.crawls.tally(crawl)
    begun, done, at_ms = (totals.get(f"{what}_{name}", 0) for name in ("begun", "done", "began_ms"))
    return begun, done, at_ms
