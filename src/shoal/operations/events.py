"""How operations are told: a sentence for people, and the event's name and its facts for programs.

Owns the shape of telling, which everything that stays on a store shares (the API, bridges, the Tender). The names are
in shoal.cli.ui.json_log.EVENTS, one for each operation, whoever requests it. A fact is never a secret: no URL of a
seed, no header, no address of an output.
"""

from __future__ import annotations

from typing import Protocol

from shoal.errors import ShoalError, UnknownCrawl
from shoal.frontier import Frontier
from shoal.operations.scrapy_cluster import Action, cluster_name


class Emit(Protocol):
    """Gets what happened. A fact that is None or '' is not known."""

    def __call__(self, text: str, /, *, event: str, **facts: object) -> None: ...


def untold(text: str, /, *, event: str, **facts: object) -> None:
    """Nobody listens."""


async def tell_action(
    tell: Emit, frontier: Frontier, action: Action, *, who: str = "", role: str = "", source: str = ""
) -> None:
    """An action of Scrapy Cluster that was carried out, by a caller or out of a source; one that only asks is none."""
    if action.action == "info":
        return
    crawl = await _meant(frontier, action)
    facts = {"crawl": crawl, "app": action.appid, "who": who, "role": role, "source": source}
    if action.action == "stop":
        tell(f"Crawl {crawl} was stopped by {who or source}.", event="crawl.stopped", **facts)
    else:
        tell(f"Crawl {crawl} was expired by {who or source}.", event="crawl.expired", **facts)


async def _meant(frontier: Frontier, action: Action) -> str:
    """Its id here, as shoal.operations.scrapy_cluster finds it."""
    name = cluster_name(action.appid, action.crawlid or "")
    try:
        await frontier.crawls.get(name)
    except UnknownCrawl:
        return action.crawlid or ""
    except ShoalError:
        # What was done was done; that the store is away now is told by others.
        pass
    return name
