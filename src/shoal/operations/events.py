"""Events: their names, and the protocol by which operations emit them.

An event has a sentence for people, and a name and facts for programs. EVENTS has one name for each operation, for all
callers. Facts never contain secrets: no URL of a seed, no header, no address of an output.
"""

from __future__ import annotations

from typing import Protocol

from shoal.errors import InvalidInput, ShoalError, UnknownCrawl
from shoal.frontier import Frontier
from shoal.operations.scrapy_cluster import Action, possible_ids

EVENTS = {
    "crawl.started": "a crawl was started or resumed",
    "crawl.progress": "its counts and rates, every 5 s",
    "crawl.waiting": "it cannot continue yet, and why",
    "crawl.ended": "it ended or was paused, with its counts",
    "crawl.submitted": "it was submitted; `created` is false if it existed",
    "crawl.changed": "its options were changed while it runs",
    "crawl.seeded": "URLs were added to it",
    "crawl.touched": "pages of it were reported as changed, to be visited soon",
    "crawl.paused": "it was paused, or is about to be",
    "crawl.resumed": "it was resumed",
    "crawl.stopped": "it was stopped permanently",
    "crawl.expired": "it was expired by a request",
    "crawl.retried": "its failed URLs are retried",
    "crawl.deleted": "it was deleted, by a request or after `frontier.keep_days`",
    "crawl.trouble": "its maintenance failed, and why",
    "urls.forgotten": "a crawl has forgotten that it had seen URLs",
    "urls.revisited": "URLs that a crawl had seen are visited again",
    "host.changed": "a host's delay or slots were set, or it was blocked or unblocked",
    "notify.sent": "the notification of a crawl's end was sent",
    "notify.failed": "the notification failed; it is retried unless `given_up`",
    "request": "with `-v`, a request of a worker: `url`, `status` or `error`, `bytes`, `seconds`, `cached`",
    "request.refused": "a request to the API or a bridge was refused, and why",
    "request.dropped": "a bridge could not store the dead letter of an invalid request, which is lost",
    "request.failed": "a request to the API failed: a bug, or the store or an output is unavailable",
    "workers.started": "`shoal worker` has joined a store",
    "workers.progress": "what its workers did, every 5 s",
    "workers.stopped": "its workers have stopped",
    "worker.died": "a worker process died, and another one starts",
    "worker.gone": "a worker process stopped permanently",
    "worker.said": "a line that a worker process wrote",
    "worker.trouble": "a worker waits for its store or its output",
    "store.trouble": "a problem with the store",
    "store.recovered": "the store responds again",
    "output.trouble": "a problem with an output",
    "output.unavailable": "a crawl is paused until its output is available",
    "output.recovered": "its output is available again, and it resumed",
    "output.refused": "a crawl is paused because its output cannot be used",
    "serve.started": "`shoal serve` accepts requests",
    "serve.open": "it has no tokens: every client may do everything",
    "serve.stopped": "it has stopped",
    "spider.unavailable": "a spider of [spiders] cannot be loaded where crawls are submitted",
    "listen.started": "`shoal listen` has connected to its source",
    "listen.trouble": "its source or the store is unavailable and is retried",
    "listen.recovered": "the source is connected again",
    "listen.stopped": "it has stopped",
    "note": "any other message",
    "warning": "any other warning",
    "error": "the error that a command failed with",
}
# Events that need attention.
WARNINGS = {
    "crawl.trouble", "listen.trouble", "notify.failed", "output.unavailable", "output.refused", "output.trouble",
    "request.dropped", "request.failed", "request.refused", "serve.open", "spider.unavailable", "store.trouble",
    "warning",
}  # fmt: skip


class Emit(Protocol):
    """Receives an event. A fact that is None or '' has no value."""

    def __call__(self, text: str, /, *, event: str, **facts: object) -> None: ...


def ignore_event(text: str, /, *, event: str, **facts: object) -> None:
    """Drop the event."""


async def emit_action(
    emit: Emit, frontier: Frontier, action: Action, *, who: str = "", role: str = "", source: str = ""
) -> None:
    """Emit that an action of Scrapy Cluster was carried out for a caller or a source. `info` changes nothing."""
    if action.action == "info":
        return
    crawl = await _crawl_id(frontier, action)
    facts = {"crawl": crawl, "app": action.appid, "who": who, "role": role, "source": source}
    if action.action == "stop":
        emit(f"Crawl {crawl} was stopped by {who or source}.", event="crawl.stopped", **facts)
    else:
        emit(f"Crawl {crawl} was expired by {who or source}.", event="crawl.expired", **facts)


async def _crawl_id(frontier: Frontier, action: Action) -> str:
    """Return the crawl's id, as shoal.operations.scrapy_cluster finds it."""
    for name in possible_ids(action):
        try:
            await frontier.crawls.get(name)
            return name
        except (UnknownCrawl, InvalidInput):
            continue
        except ShoalError:
            # The action was carried out; others report that the store is unavailable.
            return name
    return action.crawlid or ""
