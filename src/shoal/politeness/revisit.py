"""When a page is visited again: the estimate of how often it changes, and the interval that follows from it.

Pure functions of numbers; the frontier owns the calendar. The aim is a low age: how long the copy of a page has been
out of date, averaged over the pages of a host. For a page that changes d times a day and was visited t days ago, the
value of a visit is

    W = t^2/2 - (1 - (1 + z) e^-z) / d^2,   z = d t

The page is due when W reaches the price of its host. At that price, the visits of all pages together use the budget of
the host. Fast pages then share one interval, and slow pages wait longer, but never longer than the bound.

The rate of a page is learned from one bit per visit. The logarithm of the rate has a normal distribution, stored as two
bytes: its mean and its precision. A visit moves the mean to the most likely value (Laplace's approximation), so visits
after different intervals are weighted correctly. One visit changes a well-known rate by less than one step of a byte,
so bytes are rounded up or down at random, with a probability by the distance to each.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

# A byte of a rate is an eighth of an octave: from 2^-16 to almost 2^16 changes a day.
_STEPS, _MIDDLE = 8, 128
# A class of the histogram of a host is half an octave.
STEPS_PER_CLASS = 4
# A step of the precision is a quarter of an octave, starting at 1/16; 64 steps are enough.
_PRECISION_STEPS, _LEAST_PRECISION = 4, 1 / 16
# The limit makes old visits lose their weight, because the rate of a page may change. A visit adds 0.65 at most.
MOST_PRECISION = 32.0
_DAY = 86400.0
# The logarithm of a number of expected changes between two visits above which more make no difference.
_FAR = 6.0
# The price is computed for a little more than the budget, because visits come later than they are due. The slots of
# the calendar enforce the budget itself.
_BUDGET_FACTOR = 1.07
# The assumption about a page that was visited once: it changes once in this many of the longest intervals, but not
# more rarely than a page of the web, of which half do not change within a year (Ntoulas, Cho, Olston: What's New on
# the Web?, 2004). bench/revisit.py measures both; a lower precision gives pages that never change too many visits.
_FIRST_INTERVALS, _WEB_SECONDS, _FIRST_PRECISION = 6.5, 60 * 86400.0, 0.35


class Rate(NamedTuple):
    """How often a page changes, as it is stored: the mean is a byte, the precision six bits."""

    mean: int
    precision: int

    @property
    def per_day(self) -> float:
        return _per_day(self.mean)

    @property
    def rate_class(self) -> int:
        return self.mean // STEPS_PER_CLASS


class Bounds(NamedTuple):
    """The shortest and the longest seconds between two visits of a page. Equal ones are a fixed interval."""

    shortest: float
    longest: float

    @property
    def fixed(self) -> bool:
        return self.shortest == self.longest


def first_rate(bounds: Bounds) -> Rate:
    """The assumed rate of a page that was visited once: a slow rate with a low precision."""
    seconds = _FIRST_INTERVALS * min(bounds.longest, _WEB_SECONDS)
    return Rate(_rate_byte(_DAY / seconds), _precision_byte(_FIRST_PRECISION))


def learn(rate: Rate, seconds: float, *, changed: bool, dice: float = 0.5) -> Rate:
    """The rate after a visit that came `seconds` after the one before and found the page changed or not.

    `dice` is a random number from 0 to 1. With 0.5 the bytes are rounded as usual.
    """
    days = max(seconds, 0.001) / _DAY
    centre, precision = math.log(rate.per_day), _precision(rate.precision)
    # The most likely logarithm is between these: the slope of the likelihood is between -z and 1.
    low = centre if changed else centre - min(rate.per_day * days / precision, 40.0)
    high = centre + 1 / precision if changed else centre
    for _ in range(30):
        x = (low + high) / 2
        z = math.exp(min(x + math.log(days), _FAR))
        slope = (z / math.expm1(z) if changed else -z) - precision * (x - centre)
        low, high = (x, high) if slope > 0 else (low, x)
    z = math.exp(min(low + math.log(days), _FAR))
    learned = z * z / math.expm1(z)
    # One random number rounds both bytes: the precision uses its digits after the first two.
    return Rate(
        _rate_byte(math.exp(low), dice),
        _precision_byte(min(precision + learned, MOST_PRECISION), dice * 100 % 1 or 0.5),
    )


def interval_seconds(rate: Rate, price: float, bounds: Bounds) -> float:
    """How long after a visit the page is due. `price` is what `price_of` returned for its host."""
    return _bounded(interval_days(rate.per_day, price) * _DAY, bounds)


def price_of(pages: Mapping[int, int], visits_per_second: float, bounds: Bounds) -> float:
    """The price of a host: `pages` are the numbers of its pages by class, the visits are its budget.

    0 if every page can be visited as often as the bounds allow.
    """
    rates = {
        _per_day(number * STEPS_PER_CLASS + (STEPS_PER_CLASS - 1) / 2): count
        for number, count in pages.items()
        if count > 0
    }
    allowed = visits_per_second * _BUDGET_FACTOR

    def visit_rate(price: float) -> float:
        return sum(count / _bounded(interval_days(d, price) * _DAY, bounds) for d, count in rates.items())

    if bounds.fixed or visit_rate(0.0) <= allowed:
        return 0.0
    # No price makes an interval longer than the bound: at the highest price here, every page has the longest interval.
    low, high = -60.0, 60.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if visit_rate(math.exp(middle)) > allowed else (low, middle)
    return math.exp(high)


def _bounded(seconds: float, bounds: Bounds) -> float:
    return min(max(seconds, bounds.shortest), bounds.longest)


def _per_day(byte: float) -> float:
    return float(2.0 ** ((byte - _MIDDLE) / _STEPS))


def _rate_byte(per_day: float, dice: float = 0.5) -> int:
    return min(max(math.floor(_MIDDLE + _STEPS * math.log2(per_day) + dice), 0), 255)


def _precision(byte: int) -> float:
    return _LEAST_PRECISION * float(2.0 ** (byte / _PRECISION_STEPS))


def _precision_byte(precision: float, dice: float = 0.5) -> int:
    return min(max(math.floor(_PRECISION_STEPS * math.log2(precision / _LEAST_PRECISION) + dice), 0), 63)


def _worth(z: float) -> float:
    """W d^2: the value of a visit, in units of the page's own rate."""
    if z < 1e-2:
        return z**3 / 3 - z**4 / 8
    return z * z / 2 - (1 - (1 + z) * math.exp(-z))


# A table of W d^2 by z, to look up the inverse. The values of W d^2 are logarithms.
_GRID = [math.exp(-14 + 0.05 * step) for step in range(561)]
_WORTHS = [math.log(_worth(z)) for z in _GRID]


def interval_days(per_day: float, price: float) -> float:
    """The t at which W is the price, for a page that changes this often."""
    if price <= 0:
        return 0.0
    worth = math.log(price * per_day * per_day)
    index = bisect_left(_WORTHS, worth)
    if index == 0:
        z = math.cbrt(3 * math.exp(worth))
    elif index == len(_WORTHS):
        z = math.sqrt(2 * (math.exp(worth) + 1))
    else:
        share = (worth - _WORTHS[index - 1]) / (_WORTHS[index] - _WORTHS[index - 1])
        z = _GRID[index - 1] * math.pow(_GRID[index] / _GRID[index - 1], share)
    return z / per_day
