"""Which crawl a process works on: its name, its generation, and when a new one begins.

A crawl's id is used once. A spider that runs again after its crawl has finished therefore begins the next generation:
books@1, books@2, ... Every process finds the newest by itself, and two that begin one at once get the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import sys
import time
from pathlib import Path

from scrapy import Spider
from scrapy.settings import BaseSettings

from shoal.errors import CrawlEnded, UnknownCrawl
from shoal.frontier import Frontier
from shoal.model.crawl import Crawl, State
from shoal.scrapy import names

log = logging.getLogger("shoal.scrapy")
_IMPORTED_MONO = time.monotonic()
_LONGEST = 100
_FLUSH_SECONDS = 10.0


def name_of(spider: Spider, settings: BaseSettings, argv: list[str]) -> str:
    """SCHEDULER_QUEUE_KEY where it is set, else the spider's name and its arguments.

    Processes with other arguments (-a channel_id=2) are another crawl: their callbacks would do something else.
    """
    name = names.crawl_name(settings, spider.name)
    if name is None:
        name = ".".join([spider.name, *arguments(argv)])
    safe = re.sub(r"[^A-Za-z0-9._:-]", "-", name)
    if safe == name and len(name) <= _LONGEST:
        return name
    return f"{safe[:_LONGEST]}-{hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:10]}"


def arguments(argv: list[str]) -> list[str]:
    """Spider arguments of Scrapy's command line, sorted. Those that begin with _ are of a job, as scrapyd's _job."""
    found = {}
    for place, word in enumerate(argv):
        pair = argv[place + 1] if word == "-a" and place + 1 < len(argv) else word[2:] if word.startswith("-a") else ""
        name, mark, value = pair.partition("=")
        if mark and not name.startswith("_"):
            found[name] = value
    return [f"{name}-{value}" for name, value in sorted(found.items())]


def tag_of(name: str) -> str:
    """What the crawl's visits are marked with, so that only processes of this crawl are given them."""
    return "scrapy:" + hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:16]


async def join(frontier: Frontier, name: str, settings: BaseSettings, *, since: float, first: bool) -> Crawl:
    """The crawl to work on. `since`: when the oldest live process at it began, by the store's clock; `first`: it is us.

    With SCHEDULER_FLUSH_ON_START the first of a fleet begins anew, and the others wait for that. A crawl that is
    younger than its oldest process was begun by this fleet: nobody flushes it.
    """
    flush = settings.getbool("SCHEDULER_FLUSH_ON_START")
    deadline = time.monotonic() + _FLUSH_SECONDS
    while True:
        number = await _newest(frontier, name)
        if number:
            crawl = await frontier.crawls.get(f"{name}@{number}")
            if crawl.state.open and (not flush or crawl.created_at >= since):
                return crawl
            if flush and not first and time.monotonic() < deadline:
                await asyncio.sleep(0.1)
                continue
            if crawl.state.open:
                await frontier.crawls.stop(crawl.id, "flushed")
            elif await _began_before(frontier, crawl.ended_at):
                # Its fleet was quicker than this process could start: it has nothing to do, and nothing to begin.
                return crawl
            if crawl.state is not State.DELETED:
                await frontier.crawls.delete(crawl.id)
        limits = names.limits(settings, tag=tag_of(name))
        return await frontier.crawls.create(f"{name}@{number + 1}", limits, {"scrapy": name}, exist_ok=True)


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


async def _began_before(frontier: Frontier, moment: float) -> bool:
    """Whether this process is older than a moment on the store's clock."""
    seconds, microseconds = await frontier.shards.store.command("TIME")
    return int(seconds) + int(microseconds) / 1e6 - _age_seconds() < moment


def _age_seconds() -> float:
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        # Elsewhere than on Linux: since this module was loaded, which is a little less.
        return time.monotonic() - _IMPORTED_MONO


def command_line() -> list[str]:
    return sys.argv[1:]
