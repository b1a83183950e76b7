"""Which crawl a process works on: its name, its generation, and when a new generation starts.

A crawl's id is used once. So a spider that runs again after its crawl has finished starts the next generation: books@1,
books@2, ... Every process finds the newest generation by itself, and two that create one at the same time get the same.
The record of the previous generation stays, so that a process that reads at the same time finds one of the two; older
records are erased.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import time
from pathlib import Path
from typing import Any

from scrapy import Spider
from scrapy.settings import BaseSettings

from shoal.errors import CrawlEnded
from shoal.frontier import Frontier
from shoal.frontier.inspect import generations, store_seconds
from shoal.model.crawl import Crawl, State
from shoal.model.limits import Limits
from shoal.operations.scrapy_crawl import crawl_name, generation_id, safe_name
from shoal.scrapy import scrapy_redis_settings

log = logging.getLogger("shoal.scrapy")
_IMPORTED_MONO = time.monotonic()
_FLUSH_SECONDS = 10.0
_FLEET_LIMITS = ("max_pages", "max_pages_per_host", "max_seconds")
# A process that is older than this when its first spider starts is a service, and was not started for the spider.
_SERVICE_SECONDS = 60.0
_runs = itertools.count()


def name_of(spider: Spider, settings: BaseSettings, arguments: dict[str, Any]) -> str:
    """The name of a crawl: SCHEDULER_QUEUE_KEY where it is set, else the spider's name and its arguments.

    Processes with other arguments (-a channel_id=2) work on another crawl, because their callbacks do something else.
    """
    name = scrapy_redis_settings.crawl_name(settings, spider.name)
    return crawl_name(spider.name, arguments) if name is None else safe_name(name)


def run_started_mono() -> float:
    """When the current run of a spider started; the first run starts with its process. Call this once per run."""
    now = time.monotonic()
    age = _age_seconds()
    return now if next(_runs) or age > _SERVICE_SECONDS else now - age


async def join(
    frontier: Frontier, name: str, limits: Limits, *, flush: bool, since: float, first: bool, started_mono: float,
    spec: dict[str, Any],
) -> Crawl:  # fmt: skip
    """The crawl to work on, with these limits.

    `since` is when the crawl's oldest live process started, by the store's clock; `first` is whether that is this
    process; `started_mono` is when this run started, by the local clock.

    With `flush`, the first process of a fleet starts a new crawl and the others wait for it. A crawl that is younger
    than its oldest process was created by this fleet, so it is not flushed.
    """
    deadline = time.monotonic() + _FLUSH_SECONDS
    while True:
        numbers = await generations(frontier, name)
        number = numbers[-1] if numbers else 0
        if number:
            crawl = await frontier.crawls.get(generation_id(name, number))
            if crawl.state.open and (not flush or crawl.created_at >= since):
                return await _with_limits(frontier, crawl, limits, alone=first)
            if flush and not first and time.monotonic() < deadline:
                await asyncio.sleep(0.1)
                continue
            if crawl.state.open:
                await frontier.crawls.stop(crawl.id, "flushed")
            elif await _started_before(frontier, started_mono, crawl.ended_at):
                # The fleet finished before this process had started: there is nothing left to do.
                return crawl
            if crawl.state is not State.DELETED:
                await frontier.crawls.delete(crawl.id)
        crawl = await frontier.crawls.create(generation_id(name, number + 1), limits, spec, exist_ok=True)
        for older in numbers[:-1]:
            await frontier.crawls.erase(generation_id(name, older))
        return await _with_limits(frontier, crawl, limits, alone=first)


async def _with_limits(frontier: Frontier, crawl: Crawl, limits: Limits, *, alone: bool) -> Crawl:
    """Apply the limits of the last process to join to all, so that e.g. a delay can be changed before a restart."""
    old = crawl.limits
    changed = [name for name in _FLEET_LIMITS if crawl.state.open and getattr(old, name) != getattr(limits, name)]
    if changed and not (await frontier.crawls.count(crawl.id)).admitted:
        # A crawl that was submitted, and that no process has worked on.
        return await frontier.crawls.extend(crawl.id, limits, crawl.spec)
    for name in changed:
        kept = getattr(old, name)
        log.warning("Crawl %s keeps its %s of %s; the setting applies to new crawls.", crawl.id, name, kept)
    if not crawl.state.open or (old.delay_seconds, old.places, old.order) == (
        limits.delay_seconds, limits.places, limits.order
    ):  # fmt: skip
        return crawl
    log.log(
        logging.INFO if alone else logging.WARNING,
        "Crawl %s now has delay %s s, concurrency %d, order %s (before: %s s, %d, %s)%s.", crawl.id,
        limits.delay_seconds, limits.places, limits.order, old.delay_seconds, old.places, old.order,
        "" if alone else "; the settings of the last process to join apply to all",
    )  # fmt: skip
    try:
        return await frontier.crawls.relimit(
            crawl.id, delay_seconds=limits.delay_seconds, places=limits.places, order=limits.order
        )
    except CrawlEnded:
        return await frontier.crawls.get(crawl.id)


async def reopen(frontier: Frontier, crawl_id: str) -> bool:
    """Resume a finished crawl. False when it was stopped for good."""
    try:
        await frontier.crawls.resume(crawl_id)
    except CrawlEnded:
        return False
    return True


async def _started_before(frontier: Frontier, started_mono: float, store_time: float) -> bool:
    """Whether this run started before a time on the store's clock."""
    return await store_seconds(frontier) - (time.monotonic() - started_mono) < store_time


def _age_seconds() -> float:
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        # Not on Linux: the time since this module was imported is a little less.
        return time.monotonic() - _IMPORTED_MONO
