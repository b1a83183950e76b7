"""Adds its start request while the process checks whether the crawl is finished, and leases it after the check."""

import asyncio
from unittest import mock

from shoal.frontier import Frontier
from shoal.frontier.crawls import Crawls
from tests.scrapy.spiders.tree import Tree

checking, leasing = asyncio.Event(), asyncio.Event()
finished, lease = Crawls.finished, Frontier.lease


async def check(crawls, crawl_id):
    reply = await finished(crawls, crawl_id)
    if checking.is_set():
        # The second check: the first one had no consequence.
        leasing.set()
        return reply
    checking.set()
    while not (await crawls.count(crawl_id)).admitted:  # noqa: ASYNC110 - another process adds it
        await asyncio.sleep(0.01)
    # The reply to the addition arrives.
    await asyncio.sleep(0.1)
    return reply


async def lease_later(frontier, **how):
    await leasing.wait()
    return await lease(frontier, **how)


mock.patch.object(Crawls, "finished", check).start()
mock.patch.object(Frontier, "lease", lease_later).start()


class LateStart(Tree):
    name = "late_start"

    async def start(self):
        await checking.wait()
        async for request in super().start():
            yield request
