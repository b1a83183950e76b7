"""Rules for revisits: pages that change, visits by a rule within a budget, and the age of the copy.

Pages change by Poisson processes, at times that are known in advance, so that all rules see the same changes. A rule
gets one bit per visit. Its budget is a number of visits per day: the page that has been due longest is visited next. A
rule that needs fewer visits makes fewer. Uniform visits every page in turn. The bound knows every rate. The rules of
two other crawlers are those of their sources, with their default rates and with the bounds of this measurement:

StormCrawler  AdaptiveScheduler of apache/stormcrawler, core/src/main/java/.../persistence: an unchanged page waits 1.5
              times as long, up to the longest interval; a changed one the mean of its interval and the shortest
              (fetchInterval.rate.incr and .decr are 0.5). The first interval is fetchInterval.default.
Nutch         AdaptiveFetchSchedule of apache/nutch, src/java/org/apache/nutch/crawl, with the rates of its
              nutch-default.xml: inc_rate 0.4, dec_rate 0.2, sync_delta true, sync_delta_rate 0.3.
"""

from __future__ import annotations

import heapq
import math
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from shoal.politeness.revisit import (
    Bounds,
    Rate,
    first_rate,
    interval_days,
    interval_seconds,
    learn,
    price_of,
)

DAY = 86400.0


@dataclass
class Page:
    """Times are in days. `changes` are the times at which the page changes."""

    per_day: float
    changes: Sequence[float]
    visited: float = 0.0
    interval: float = 0.0
    rate: Rate | None = None


class Rule(Protocol):
    def next_days(self, page: Page, passed: float, changed: bool | None) -> float:
        """The interval after a visit, `passed` days after the previous one. `changed` is None for the first visit."""


@dataclass
class Uniform:
    days: float

    def next_days(self, page: Page, passed: float, changed: bool | None) -> float:
        return self.days


@dataclass
class StormCrawler:
    days: float
    bounds: Bounds

    def next_days(self, page: Page, passed: float, changed: bool | None) -> float:
        if changed is None:
            return self.days
        shortest, longest = self.bounds.shortest / DAY, self.bounds.longest / DAY
        return (page.interval + shortest) / 2 if changed else min(page.interval * 1.5, longest)


@dataclass
class Nutch:
    """The interval grows to the time since the last change that was seen; the visit comes 0.3 of that time earlier.

    If that is more than the longest interval, the whole interval passes: Nutch divides whole numbers there, which gives
    0. The interval and the time of the change are kept by page.
    """

    days: float
    bounds: Bounds
    intervals: dict[int, float] = field(default_factory=dict)
    modified: dict[int, float] = field(default_factory=dict)

    def next_days(self, page: Page, passed: float, changed: bool | None) -> float:
        key, now = id(page), page.visited
        if changed is None:
            self.modified[key], self.intervals[key] = now, self.days
            return self.days
        interval = self.intervals[key] * (0.8 if changed else 1.4)
        if changed:
            self.modified[key] = now
        since = now - self.modified[key]
        earlier = since * 0.3
        if earlier > self.bounds.longest / DAY:
            earlier = 0.0
        self.intervals[key] = _bounded(max(interval, since), self.bounds)
        return self.intervals[key] - earlier


@dataclass
class Adaptive:
    """Shoal's rule. The price of the host is computed again after each hundredth of a round."""

    pages: int
    per_day: float
    bounds: Bounds
    histogram: Counter[int] = field(default_factory=Counter)
    price: float = 0.0
    stale: int = 0
    rng: random.Random = field(default_factory=lambda: random.Random(3))

    def next_days(self, page: Page, passed: float, changed: bool | None) -> float:
        if page.rate is not None:
            self.histogram[page.rate.rate_class] -= 1
        if page.rate is None or changed is None:
            page.rate = first_rate(self.bounds)
        else:
            page.rate = learn(page.rate, passed * DAY, changed=changed, dice=self.rng.random())
        self.histogram[page.rate.rate_class] += 1
        self.stale -= 1
        if self.stale <= 0:
            self.stale = max(1, self.pages // 100)
            self.price = price_of(self.histogram, self.per_day / DAY, self.bounds)
        return interval_seconds(page.rate, self.price, self.bounds) / DAY


def _bounded(days: float, bounds: Bounds) -> float:
    return min(max(days, bounds.shortest / DAY), bounds.longest / DAY)


@dataclass
class Outcome:
    """age: mean age in days. visits: per page and day. longest: the most days between two visits of a page."""

    age: float
    visits: float
    longest: float


def simulate(pages: Sequence[Page], rule: Rule, days_per_page: float, until: float) -> list[list[float]]:
    """The times at which each page is visited, until this day. The first visits are one budget after the other."""
    gap = days_per_page / len(pages)
    due: list[tuple[float, int]] = []
    visits: list[list[float]] = []
    for number, page in enumerate(pages):
        page.visited = number * gap
        visits.append([page.visited])
        page.interval = rule.next_days(page, 0.0, None)
        heapq.heappush(due, (page.visited + page.interval, number))
    free = len(pages) * gap
    while True:
        moment, number = heapq.heappop(due)
        now = max(moment, free)
        if now >= until:
            return visits
        # Pages that were due long ago keep their position; the budget allows one visit per gap.
        free = max(free, now - gap) + gap
        page = pages[number]
        passed = now - page.visited
        changed = bisect_right(page.changes, now) > bisect_right(page.changes, page.visited)
        page.visited = now
        visits[number].append(now)
        page.interval = rule.next_days(page, passed, changed)
        heapq.heappush(due, (now + page.interval, number))


def judge(pages: Sequence[Page], visits: Sequence[Sequence[float]], start: float, until: float) -> Outcome:
    """The outcome of visits at these times, between two days."""
    age = longest = 0.0
    made = 0
    for page, moments in zip(pages, visits, strict=True):
        made += sum(start < moment <= until for moment in moments)
        within = [moment for moment in moments if moment <= until]
        for visit, next_visit in pairwise([*within, until]):
            at = bisect_right(page.changes, visit)
            if at < len(page.changes) and page.changes[at] < next_visit > start:
                out_since = page.changes[at]
                first = max(start, out_since)
                age += (next_visit - first) * (next_visit + first - 2 * out_since) / 2
        longest = max([longest, *(b - a for a, b in pairwise([*within, until]) if b > start)])
    days = (until - start) * len(pages)
    return Outcome(age / days, made / days, longest)


def best_intervals(pages: Sequence[Page], days_per_page: float, bounds: Bounds) -> list[float]:
    """The intervals in days that give the lowest mean age within the budget, for known rates."""
    least, most = 1e-6, 1e6
    for _ in range(60):
        price = math.sqrt(least * most)
        intervals = [_bounded(interval_days(page.per_day, price), bounds) for page in pages]
        least, most = (price, most) if sum(1 / t for t in intervals) > len(pages) / days_per_page else (least, price)
    return intervals


def bound(pages: Sequence[Page], days_per_page: float, bounds: Bounds) -> float:
    """The mean age of the best intervals for known rates, in days."""
    ages = (
        t / 2 - 1 / page.per_day - math.expm1(-page.per_day * t) / (page.per_day**2 * t)
        for page, t in zip(pages, best_intervals(pages, days_per_page, bounds), strict=True)
    )
    return sum(ages) / len(pages)


class Known:
    """The best rule: it knows the rate of every page."""

    def __init__(self, pages: Sequence[Page], days_per_page: float, bounds: Bounds) -> None:
        intervals = best_intervals(pages, days_per_page, bounds)
        self._intervals = {id(page): days for page, days in zip(pages, intervals, strict=True)}

    def next_days(self, page: Page, passed: float, changed: bool | None) -> float:
        return self._intervals[id(page)]


def site(count: int, until: float, seed: int = 1) -> list[Page]:
    """Half of the pages do not change within a year, as Ntoulas, Cho and Olston found (What's New on the Web?, 2004).

    The others change from four times a day to once in a year, evenly by the logarithm of their rate.
    """
    rng = random.Random(seed)
    pages = []
    for number in range(count):
        rates = (1 / 3650, 1 / 365) if number % 2 else (1 / 365, 4.0)
        per_day = math.exp(rng.uniform(*map(math.log, rates)))
        changes, moment = [], rng.expovariate(per_day)
        while moment < until:
            changes.append(moment)
            moment += rng.expovariate(per_day)
        pages.append(Page(per_day, changes))
    return pages
