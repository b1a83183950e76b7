"""Revisits of a perpetual crawl: what a visit found out about its page, and when the page is visited next.

Owns what counts as a change, as gone and as back. The rate of a page and its interval are politeness.revisit's, the
calendar is the frontier's: the new history and the due time are part of the outcome, so they hold exactly if the visit
is acknowledged.
"""

from __future__ import annotations

import datetime
import random
import time

import msgspec

from shoal.frontier import Frontier, mono
from shoal.model.page_history import NO_HASH, PageHistory
from shoal.model.record import Item, Record
from shoal.model.revisit_schedule import RevisitSchedule
from shoal.model.visit import Outcome, OutcomeCode
from shoal.politeness.revisit import Bounds, Rate, first_rate, interval_seconds, learn, price_of
from shoal.worker.crawl_context import CrawlContext
from shoal.worker.outcome import VisitResult
from shoal.worker.versions import add_version

# A row in the output of changes is an item of this name, numbered by the visit that found the change.
CHANGES = "changes"
_GONE = (404, 410)
# The number of visits in a row without a page after which the page is gone; and the number after which one more such
# visit drops it from the crawl.
_GONE_AFTER, _DROPPED_AFTER = 2, 3
# A page that is gone is visited after the longest interval, or after this many of the shortest interval.
_RARELY = 10
# A price is used for this time, but not for longer than a tenth of the shortest interval.
_PRICE_SECONDS = 60.0
_MOST_PRICES = 10_000


class RevisitScheduler:
    """Schedules the revisits of one worker. The prices of hosts are cached for a short time."""

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self._prices: dict[tuple[str, str], tuple[float, float]] = {}

    async def schedule(self, result: VisitResult, context: CrawlContext, host: str) -> VisitResult:
        """The result with the page's history and next visit, and the change if there was one."""
        plan = context.crawl.schedule
        if not plan.perpetual or result.outcome.code is OutcomeCode.RETRY:
            return result
        if result.outcome.code is OutcomeCode.STORED:
            return await self._stored(result, context, plan, host)
        visit, history, record = result.visit, result.visit.history, result.record
        if history is None:
            if result.outcome.code is OutcomeCode.FAILED and (visit.found == "seed" or visit.notes.seed):
                # Without its seeds, a crawl would have no page to revisit.
                return VisitResult(result.lease, visit, visit.retry(plan.shortest_seconds), items=result.items)
            return result
        if result.outcome.code is OutcomeCode.EXCLUDED:
            # It has moved, or must no longer be requested.
            last = msgspec.structs.replace(history, visits=history.visits + 1)
            return result._replace(context=context, change=_change(context, result, "gone", last, NO_HASH))
        if record is None or not _is_gone(record):
            # The problem may be resolved at the next visit. The row in the output stays.
            again = visit.scheduled(history, plan.shortest_seconds)
            return result._replace(outcome=again, record=None, missed=result.outcome.reason)
        if history.misses >= _DROPPED_AFTER:
            return result._replace(outcome=visit.excluded("gone"), record=_with_history(record, history))
        misses = history.misses + 1
        after = msgspec.structs.replace(
            history, misses=misses, visits=history.visits + 1, last_visited=round(record.fetched_at)
        )
        gone = misses >= _GONE_AFTER
        seconds = max(plan.longest_seconds, _RARELY * plan.shortest_seconds) if gone else plan.shortest_seconds
        return result._replace(
            outcome=visit.scheduled(after, seconds),
            record=_with_history(record, after) if gone else None,
            change=_change(context, result, "gone", after, NO_HASH) if misses == _GONE_AFTER else None,
            missed=result.outcome.reason,
        )

    async def _stored(
        self, result: VisitResult, context: CrawlContext, plan: RevisitSchedule, host: str
    ) -> VisitResult:
        visit, old, record = result.visit, result.visit.history, result.record
        bounds = Bounds(plan.shortest_seconds, plan.longest_seconds)
        now = record.fetched_at if record is not None else time.time()
        seen = bytes.fromhex(record.text_hash) if record is not None and record.text_hash else NO_HASH
        kind = ""
        if old is None:
            rate = first_rate(bounds)
            history = PageHistory(
                rate_mean=rate.mean, rate_precision=rate.precision, first_seen=int(now), last_changed=int(now),
                last_visited=round(now), text_hash=seen,
            )  # fmt: skip
            kind = "new"
        else:
            not_modified = record is not None and record.status == 304
            text_hash = old.text_hash if not_modified or seen == NO_HASH else seen
            changed = text_hash != old.text_hash
            known, passed = Rate(old.rate_mean, old.rate_precision), now - old.last_visited
            rate = learn(known, passed, changed=changed, dice=random.random())
            history = msgspec.structs.replace(
                old, rate_mean=rate.mean, rate_precision=rate.precision, misses=0, visits=old.visits + 1,
                changes=old.changes + changed, last_changed=int(now) if changed else old.last_changed,
                last_visited=round(now), text_hash=text_hash,
            )  # fmt: skip
            kind = "back" if old.misses >= _GONE_AFTER else "changed" if changed else ""
        price = 0.0 if bounds.fixed else await self._price(context, host, plan, bounds)
        old_hash = old.text_hash if old else NO_HASH
        result = result._replace(
            outcome=visit.scheduled(history, interval_seconds(rate, price, bounds)),
            record=None if record is None else _with_history(record, history),
            change=_change(context, result, kind, history, old_hash) if kind else None,
        )
        if kind and context.version_outputs:
            return await add_version(result, context, history, old_hash)
        return result

    async def _price(self, context: CrawlContext, host: str, plan: RevisitSchedule, bounds: Bounds) -> float:
        """What a visit must be worth for the budget of the host to be enough."""
        key = context.crawl.id, host
        known = self._prices.get(key)
        if known is not None and known[1] > mono():
            return known[0]
        pace_seconds, pages = await self._frontier.calendar.host(*key)
        price = price_of(pages, plan.visits_per_second(pace_seconds), bounds)
        if len(self._prices) >= _MOST_PRICES:
            self._prices.clear()
        self._prices[key] = price, mono() + min(_PRICE_SECONDS, plan.shortest_seconds / 10)
        return price


def tag_validator(validator: str, outcome: Outcome) -> str:
    """The stored form of an ETag or date. In a perpetual crawl, it contains the hash of the text that it belongs to.

    The visit that found it may never be acknowledged. The page then has its old history, and "not modified" would
    refer to a text that was never reported.
    """
    if not validator or not outcome.history:
        return validator
    return f"{PageHistory.unpack(outcome.history).text_hash.hex()} {validator}"


def usable_validator(stored: str, history: PageHistory | None) -> str:
    """The validator of the text that the page's history has; '' if there is none."""
    if history is None:
        return stored
    text_hash, _, validator = stored.partition(" ")
    return validator if text_hash == history.text_hash.hex() else ""


def _is_gone(record: Record) -> bool:
    """Whether a page is gone: its server reports that, or a sitemap or feed no longer contains a list."""
    return record.status in _GONE or record.error.startswith("sitemap: ")


def _with_history(record: Record, history: PageHistory) -> Record:
    return msgspec.structs.replace(
        record, first_seen=_moment(history.first_seen), last_changed=_moment(history.last_changed),
        visits=history.visits, changes=history.changes,
    )  # fmt: skip


def _change(context: CrawlContext, result: VisitResult, kind: str, history: PageHistory, old_hash: bytes) -> Item:
    """The row of a change. `history` is the one after the visit. A page that is gone has an old text and no new one."""
    record, gone = result.record, kind == "gone"
    old, new = (history.text_hash, NO_HASH) if gone else (old_hash, history.text_hash)
    return Item(
        crawl=context.name, url=result.visit.record_url, spider=CHANGES,
        number=history.visits,
        fetched_at=record.fetched_at if record is not None else time.time(),
        data={
            "change": kind, "reason": result.outcome.reason, "old_hash": "" if old == NO_HASH else old.hex(),
            "new_hash": "" if new == NO_HASH else new.hex(), "title": record.title if record is not None else "",
            "items": 0 if gone else len(result.items),
            "first_seen": _moment(history.first_seen), "last_changed": _moment(history.last_changed),
        },
    )  # fmt: skip


def _moment(seconds: int) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
