"""Events: their names, and the protocol by which operations emit them.

An event has a sentence for people, and a name and facts for programs. EVENTS has one name for each operation, for all
callers. Facts never contain secrets: no URL of a seed, no header, no address of an output.
"""

from __future__ import annotations

from typing import Protocol

from shoal.errors import InvalidInput, ShoalError, UnknownCrawl
from shoal.frontier import Frontier
from shoal.operations.scrapy_cluster import ClusterAction, possible_ids

EVENTS = {
    "crawl.started": "a crawl was started or resumed",
    "crawl.progress": "counts and rates of a crawl, every 5 s",
    "crawl.waiting": "a crawl cannot continue yet, and why",
    "crawl.ended": "a crawl ended or was paused, with its counts",
    "crawl.submitted": "a crawl was submitted; `created` is false if it already existed",
    "crawl.changed": "options of a running or paused crawl were changed",
    "crawl.seeded": "URLs were added to a crawl",
    "crawl.touched": "pages of a crawl were reported as changed, to be visited soon",
    "crawl.paused": "a crawl was paused, or is about to be",
    "crawl.resumed": "a crawl was resumed",
    "crawl.stopped": "a crawl was stopped permanently",
    "crawl.expired": "a request expired a crawl",
    "crawl.retried": "failed URLs of a crawl are retried",
    "crawl.deleted": "a crawl was deleted, by a request or after `frontier.keep_days`",
    "crawl.trouble": "maintenance of a crawl failed, and why",
    "urls.forgotten": "a crawl forgot that it had seen URLs",
    "urls.revisited": "URLs that a crawl had seen are visited again",
    "host.changed": "a host's delay or slots were set, or it was blocked or unblocked",
    "notify.sent": "the notification of a crawl's end was sent",
    "notify.failed": "the notification failed; it is retried unless `given_up`",
    "request": "with `-v`, a request of a worker: `url`, `status` or `error`, `bytes`, `seconds`, `cached`",
    "request.refused": "a request to the API or a bridge was refused, and why",
    "request.dropped": "a bridge could not store the dead letter of an invalid request, which is lost",
    "request.failed": "a request to the API failed: a bug, or the store or an output is unavailable",
    "workers.started": "`shoal worker` has joined a store",
    "workers.progress": "counts and rates of the workers of `shoal worker`, every 5 s",
    "workers.stopped": "the workers of `shoal worker` have stopped",
    "worker.died": "a worker process died, and another one is started",
    "worker.gone": "a worker process stopped permanently",
    "worker.said": "a line that a worker process wrote",
    "worker.trouble": "a worker waits for its store or its output",
    "store.trouble": "a problem with the store",
    "store.recovered": "the store responds again",
    "output.trouble": "a problem with an output",
    "output.unavailable": "a crawl is paused until its output is available",
    "output.recovered": "the output of a crawl is available again, and the crawl resumed",
    "output.refused": "a crawl is paused because its output cannot be used",
    "serve.started": "`shoal serve` accepts requests",
    "serve.open": "`shoal serve` has no tokens: every client may do everything",
    "serve.stopped": "`shoal serve` has stopped",
    "spider.unavailable": "a spider in [spiders] cannot be loaded by a process that accepts crawl requests",
    "listen.started": "`shoal listen` has connected to its source",
    "listen.trouble": "the source of `shoal listen` or the store is unavailable; Shoal retries",
    "listen.recovered": "the source is connected again",
    "listen.stopped": "`shoal listen` has stopped",
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
    emit: Emit, frontier: Frontier, action: ClusterAction, *, who: str = "", role: str = "", source: str = ""
) -> None:
    """Emit that an action of Scrapy Cluster was carried out for a caller or a source. `info` changes nothing."""
    if action.action == "info":
        return
    crawl = await _crawl_id(frontier, action)
    facts = {"crawl": crawl, "app": action.appid, "who": who, "role": role, "source": source}
    if action.action == "stop":
        stopped = f"Crawl {crawl} was" if crawl else f"All crawls of application {action.appid} were"
        emit(f"{stopped} stopped by {who or source}.", event="crawl.stopped", **facts)
    else:
        emit(f"Crawl {crawl} was expired by {who or source}.", event="crawl.expired", **facts)


async def _crawl_id(frontier: Frontier, action: ClusterAction) -> str:
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
