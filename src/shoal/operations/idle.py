"""Whether workers have anything left to do."""

from __future__ import annotations

from collections.abc import Collection

from shoal.frontier import Frontier
from shoal.model.crawl import CrawlKind, State
from shoal.operations.run import finish_if_over


async def is_idle(frontier: Frontier, spiders: Collection[str]) -> bool:
    """Whether no running crawl of these spiders has an open visit, including visits that wait for a delay or a retry.

    Finishes crawls that are over, so that workers that stop now leave no crawl unfinished. '' means no spider.
    """
    idle = True
    async for crawl in frontier.crawls.all():
        if crawl.state is not State.RUNNING or crawl.kind not in (CrawlKind.OWN, CrawlKind.BRANCH):
            continue
        if crawl.kind is CrawlKind.OWN and await finish_if_over(frontier, crawl.id):
            continue
        if crawl.limits.spider in spiders and (await frontier.crawls.count(crawl.id)).open:
            idle = False
    return idle
