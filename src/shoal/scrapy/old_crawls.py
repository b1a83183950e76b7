"""Removes the crawls of earlier runs: the maintainer does not remove crawls of Scrapy.

A finished or stopped crawl is kept for `frontier.keep_days`, so that `shoal failed` can show it. Each spider with other
arguments is a crawl of its own, so without this the store would grow with every new argument.
"""

from __future__ import annotations

import logging

from shoal.errors import ShoalError
from shoal.frontier import Frontier
from shoal.frontier.inspect import crawl_ids, store_seconds
from shoal.model.crawl import CrawlKind, State
from shoal.operations.scrapy_crawl import has_generation
from shoal.scrapy.unscheduled import is_unscheduled_crawl

log = logging.getLogger("shoal.scrapy")


async def remove_old(frontier: Frontier, keep_days: float) -> None:
    """Delete ended crawls of Scrapy projects after `keep_days`, and crawls of unscheduled requests at once."""
    try:
        now = await store_seconds(frontier)
        for crawl_id in await crawl_ids(frontier):
            if not has_generation(crawl_id):
                continue
            crawl = await frontier.crawls.get(crawl_id)
            if crawl.kind is not CrawlKind.SCRAPY or crawl.state.open:
                continue
            ended_at = crawl.limits.expires_at if crawl.state is State.EXPIRED else crawl.ended_at
            if is_unscheduled_crawl(crawl_id) or (keep_days and now - ended_at > keep_days * 86400):
                await frontier.crawls.delete(crawl_id)
                await frontier.crawls.erase(crawl_id)
    except ShoalError as error:
        # Another process may have been quicker.
        log.debug("Old crawls are removed by a later run: %s", error)
