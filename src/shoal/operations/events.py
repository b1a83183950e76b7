"""How operations are told: a sentence for people, and the event's name and its facts for programs.

Owns the shape of telling, which everything that stays on a store shares (the API, bridges, the Tender). EVENTS has
one name for each operation, whoever requests it. A fact is never a secret: no URL of a
seed, no header, no address of an output.
"""

from __future__ import annotations

from typing import Protocol

from shoal.errors import ShoalError, UnknownCrawl
from shoal.frontier import Frontier
from shoal.operations.scrapy_cluster import Action, cluster_name

EVENTS = {
    "crawl.begin": "a crawl begins or goes on",
    "crawl.progress": "how far it is, every 5 s",
    "crawl.waiting": "it cannot go on yet, and why",
    "crawl.end": "it ended or was paused, with its counts",
    "crawl.submitted": "somebody asked for it; `created` is false where it was there already",
    "crawl.seeded": "URLs were added to it",
    "crawl.paused": "somebody paused it, or it is about to be",
    "crawl.resumed": "somebody let it go on",
    "crawl.stopped": "somebody stopped it for good",
    "crawl.expired": "somebody ended it as if its time had come",
    "crawl.retried": "its failed URLs are tried again",
    "crawl.deleted": "what it held was freed, by somebody or after `frontier.keep_days`",
    "crawl.trouble": "it cannot be tended, and why",
    "host.changed": "somebody set its delay or places, blocked or unblocked it",
    "notify.told": "whom a crawl names was told of its end",
    "notify.failed": "that failed, and is tried again unless it is given up",
    "request.refused": "a request to the API or a bridge was not granted, and why",
    "request.failed": "one to the API failed, by a defect or because the store or an output is away",
    "workers.begin": "`shoal worker` has joined a store",
    "workers.progress": "what its workers did, every 5 s",
    "workers.end": "they have ended",
    "worker.died": "a process has ended and another one starts",
    "worker.gone": "a process has ended for good",
    "worker.said": "a line that a process wrote",
    "worker.trouble": "a worker waits for its store or its output",
    "store.trouble": "what is wrong with the store",
    "output.trouble": "what is wrong with an output",
    "output.away": "a crawl waits for its output",
    "output.back": "its output is there again, and it goes on",
    "output.refused": "it is paused because its output cannot be used",
    "serve.begin": "`shoal serve` answers",
    "serve.open": "it has no tokens: whoever reaches it may do everything",
    "serve.end": "it has ended",
    "listen.begin": "`shoal listen` has joined its source",
    "listen.trouble": "its source or the store is away, and is waited for",
    "listen.recovered": "the source is connected again",
    "listen.end": "it has ended",
    "note": "anything else",
    "warning": "anything else that somebody should look at; also why a command failed",
}
# Those that somebody should look at.
WARNINGS = {
    "crawl.trouble", "listen.trouble", "notify.failed", "output.away", "output.refused", "output.trouble",
    "request.failed", "request.refused", "serve.open", "store.trouble", "warning",
}  # fmt: skip


class Emit(Protocol):
    """Gets what happened. A fact that is None or '' is not known."""

    def __call__(self, text: str, /, *, event: str, **facts: object) -> None: ...


def ignore_event(text: str, /, *, event: str, **facts: object) -> None:
    """Drop the event."""


def pluralize(number: int, word: str) -> str:
    """1 page, 2 pages."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


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
