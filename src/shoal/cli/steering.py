"""Pausing, resuming, stopping and deleting: the state of a crawl, changed from outside."""

from __future__ import annotations

import asyncio

from shoal.cli.spiders import spider_flag
from shoal.cli.summary import command
from shoal.cli.terminal import say, warn
from shoal.frontier import Frontier
from shoal.operations.crawls import delete
from shoal.settings import Settings


def steer(settings: Settings, crawl: str, verb: str) -> None:
    asyncio.run(_steer(settings, crawl, verb))


async def _steer(settings: Settings, name: str, verb: str) -> None:
    async with await Frontier.from_settings(settings, on_warning=warn) as frontier:
        if verb == "delete":
            await delete(frontier, name)
            say(f"Crawl {name} is deleted.")
            return
        crawl = await getattr(frontier.crawls, verb)(name)
        say(f"Crawl {name} is {crawl.state.value}.")
        if verb == "resume" and not await frontier.workers.alive():
            again = command(name, "crawl", {}, spider_flag(crawl.limits.spider, settings))
            say(f"No worker is on the store; start them with `{again}` or `shoal worker`.")
