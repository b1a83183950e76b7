"""Which crawl a process works on: its name, its generation, and when a new one begins.

A crawl's id is used once. A spider that runs again after its crawl has finished therefore begins the next generation:
books@1, books@2, ... Every process finds the newest by itself, and two that begin one at once get the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import os
import re
import time
from pathlib import Path
from typing import Any

from scrapy import Spider
from scrapy.settings import BaseSettings

from shoal.errors import CrawlEnded, UnknownCrawl
from shoal.frontier import Frontier
from shoal.frontier.inspect import store_seconds
from shoal.model.crawl import Crawl, State
from shoal.model.crawl_spec import Limits
from shoal.scrapy import scrapy_redis_settings
from shoal.scrapy.spider_arguments import digest

log = logging.getLogger("shoal.scrapy")
_IMPORTED_MONO = time.monotonic()
_LONGEST = 100
_FLUSH_SECONDS = 10.0
# A process that is older than this when its first spider begins is a service, and was not started for the spider.
_SERVICE_SECONDS = 60.0
_runs = itertools.count()


def name_of(spider: Spider, settings: BaseSettings, given: dict[str, Any]) -> str:
    """SCHEDULER_QUEUE_KEY where it is set, else the spider's name and its arguments.

    Processes with other arguments (-a channel_id=2) are another crawl: their callbacks would do something else. Their
    values do not show, as one may be a password.
    """
    name = scrapy_redis_settings.crawl_name(settings, spider.name)
    if name is None:
        name = ".".join([spider.name, *sorted(given)]) + (f"-{digest(given)}" if given else "")
    safe = re.sub(r"[^A-Za-z0-9._:-]", "-", name)
    if safe == name and len(name) <= _LONGEST:
        return name
    return f"{safe[:_LONGEST]}-{hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:10]}"


def tag_of(name: str) -> str:
    """What the crawl's visits are marked with, so that only processes of this crawl are given them."""
    return "scrapy:" + hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:16]


def run_began_mono() -> float:
    """When the run of a spider that begins now began: the first of a process did with it. To be asked once a run."""
    now = time.monotonic()
    age = _age_seconds()
    return now if next(_runs) or age > _SERVICE_SECONDS else now - age


async def join(
    frontier: Frontier, name: str, limits: Limits, *, flush: bool, since: float, first: bool, began_mono: float
) -> Crawl:
    """The crawl to work on, with these limits.

    `since`: when the oldest live process at it began, by the store's clock; `first`: it is us; `began_mono`: when this
    run did, by our own clock.

    With `flush` the first of a fleet begins anew, and the others wait for that. A crawl that is younger than its oldest
    process was begun by this fleet: nobody flushes it.
    """
    deadline = time.monotonic() + _FLUSH_SECONDS
    while True:
        number = await _newest(frontier, name)
        if number:
            crawl = await frontier.crawls.get(f"{name}@{number}")
            if crawl.state.open and (not flush or crawl.created_at >= since):
                return await _limited(frontier, crawl, limits, alone=first)
            if flush and not first and time.monotonic() < deadline:
                await asyncio.sleep(0.1)
                continue
            if crawl.state.open:
                await frontier.crawls.stop(crawl.id, "flushed")
            elif await _began_before(frontier, began_mono, crawl.ended_at):
                # Its fleet was quicker than this process could start: it has nothing to do, and nothing to begin.
                return crawl
            if crawl.state is not State.DELETED:
                await frontier.crawls.delete(crawl.id)
        crawl = await frontier.crawls.create(f"{name}@{number + 1}", limits, {"scrapy": name}, exist_ok=True)
        return await _limited(frontier, crawl, limits, alone=first)


async def _limited(frontier: Frontier, crawl: Crawl, limits: Limits, *, alone: bool) -> Crawl:
    """The settings of the process that came last hold for all: so a delay can be changed before a crawl goes on."""
    old = crawl.limits
    if not crawl.state.open or (old.delay_seconds, old.places, old.order) == (
        limits.delay_seconds, limits.places, limits.order
    ):  # fmt: skip
        return crawl
    log.log(
        logging.INFO if alone else logging.WARNING,
        "Crawl %s goes on with a delay of %s s, %d at once, %s (it had %s s, %d, %s)%s.", crawl.id,
        limits.delay_seconds, limits.places, limits.order, old.delay_seconds, old.places, old.order,
        "" if alone else ": other processes are at it, and the settings of the last one hold for all",
    )  # fmt: skip
    try:
        return await frontier.crawls.relimit(
            crawl.id, delay_seconds=limits.delay_seconds, places=limits.places, order=limits.order
        )
    except CrawlEnded:
        return await frontier.crawls.get(crawl.id)


async def reopen(frontier: Frontier, crawl_id: str) -> bool:
    """A crawl that was finished goes on. False when it was ended for good."""
    try:
        await frontier.crawls.resume(crawl_id)
    except CrawlEnded:
        return False
    return True


async def _newest(frontier: Frontier, name: str) -> int:
    """The newest generation, 0 where there is none. Numbers have no gaps, so few questions find the last."""

    async def there(number: int) -> bool:
        try:
            await frontier.crawls.get(f"{name}@{number}")
        except UnknownCrawl:
            return False
        return True

    low, high = 0, 1
    while await there(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if await there(middle):
            low = middle
        else:
            high = middle
    return low


async def _began_before(frontier: Frontier, began_mono: float, moment: float) -> bool:
    """Whether this run is older than a moment on the store's clock."""
    return await store_seconds(frontier) - (time.monotonic() - began_mono) < moment


def _age_seconds() -> float:
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        # Elsewhere than on Linux: since this module was loaded, which is a little less.
        return time.monotonic() - _IMPORTED_MONO
