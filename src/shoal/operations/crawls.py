"""Resume and delete crawls, with the same checks for the command line, Python and the HTTP API."""

from __future__ import annotations

from shoal.errors import CrawlEnded, UnknownCrawl
from shoal.frontier import Frontier
from shoal.model.crawl import Crawl, State


async def resume(frontier: Frontier, crawl_id: str) -> Crawl:
    """Resume a paused crawl. A finished crawl would have nothing to do, and its notification would be sent again."""
    crawl = await frontier.crawls.get(crawl_id)
    if not crawl.state.open:
        raise CrawlEnded(f"Crawl {crawl_id!r} is {crawl.state.value}: only a paused crawl can be resumed.")
    return await frontier.crawls.resume(crawl_id)


async def delete(frontier: Frontier, crawl_id: str) -> None:
    """Delete the data of an ended crawl. Only `start`, for `shoal crawl`, can reuse its id; crawl requests cannot."""
    crawl = await frontier.crawls.get(crawl_id)
    if crawl.state is State.DELETED:
        raise UnknownCrawl(f"There is no crawl {crawl_id!r}.")
    if crawl.state.open:
        raise CrawlEnded(f"Crawl {crawl_id!r} is {crawl.state.value}: stop it before you delete it.")
    await frontier.crawls.delete(crawl_id)
