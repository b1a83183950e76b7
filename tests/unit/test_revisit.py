"""When pages are visited again: rates are learned from one bit per visit, and the price of a host keeps its budget."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import pairwise

import pytest

from shoal.errors import InvalidLimit
from shoal.model.page_history import HISTORY_BYTES, PageHistory
from shoal.model.revisit_schedule import revisit_schedule
from shoal.model.visit import Visit
from shoal.politeness.revisit import (
    Bounds,
    Rate,
    first_rate,
    interval_days,
    interval_seconds,
    learn,
    price_of,
)
from shoal.worker.revisits import tag_validator, usable_validator

DAY = 86400.0
BOUNDS = Bounds(3600.0, 30 * DAY)


def after(per_day: float, visits: int, seconds: float, seed: int = 1) -> Rate:
    """The estimate for a page that changes this often, after so many visits."""
    rng = random.Random(seed)
    rate = first_rate(BOUNDS)
    for _ in range(visits):
        rate = learn(rate, seconds, changed=rng.random() < -math.expm1(-per_day * seconds / DAY), dice=rng.random())
    return rate


@pytest.mark.parametrize("per_day", [0.05, 0.3, 1.0, 3.0])
def test_the_rate_of_a_page_is_learned(per_day: float) -> None:
    rates = [after(per_day, 60, 0.7 * DAY / per_day, seed).per_day for seed in range(20)]
    assert per_day / 1.4 < math.exp(sum(map(math.log, rates)) / len(rates)) < per_day * 1.4


def test_visits_of_a_well_known_page_still_change_its_rate() -> None:
    """A step of its byte is larger than what one visit says: rounded to the nearest byte, it would never move."""
    known = Rate(128, 34)
    assert learn(known, DAY, changed=True).mean == 128
    rng = random.Random(7)
    means = [learn(known, DAY, changed=True, dice=rng.random()).mean for _ in range(2000)]
    assert set(means) == {128, 129}
    # The mean of all is what the exact posterior says: a 24th of an octave for z / (e^z - 1) at z = 1.
    exact = 0.58 / 22.6 / math.log(2) * 8
    assert sum(means) / len(means) - 128 == pytest.approx(exact, rel=0.25)


def test_a_change_raises_the_rate_no_change_lowers_it_and_both_reduce_uncertainty() -> None:
    first = first_rate(BOUNDS)
    assert learn(first, DAY, changed=True).mean > first.mean
    assert learn(first, 30 * DAY, changed=False).mean < first.mean
    assert learn(first, 10 * DAY, changed=False).precision > first.precision
    # After a very long time, a change says nothing, and the opposite much.
    fast = Rate(first.mean + 60, 30)
    assert learn(fast, 1000 * DAY, changed=True).mean == fast.mean
    assert learn(fast, 1000 * DAY, changed=False).mean < fast.mean - 10
    for seconds in (0.0, -5.0, 1e12):
        for changed in (True, False):
            rate = learn(first, seconds, changed=changed)
            assert 0 <= rate.mean <= 255
            assert 0 <= rate.precision <= 63


def test_a_page_that_changes_more_is_due_sooner_and_no_interval_exceeds_the_bound() -> None:
    intervals = [interval_seconds(Rate(mean, 20), 3.0, BOUNDS) for mean in range(0, 256)]
    assert all(fast <= slow for slow, fast in pairwise(intervals))
    assert max(intervals) == BOUNDS.longest
    assert min(intervals) >= BOUNDS.shortest
    fixed = Bounds(DAY, DAY)
    assert {interval_seconds(Rate(mean, 20), 3.0, fixed) for mean in range(0, 256, 5)} == {DAY}


def test_at_the_chosen_interval_the_value_of_a_visit_equals_its_price() -> None:
    for per_day in (1e-4, 0.01, 0.5, 20.0, 1e4):
        for price in (1e-4, 0.1, 5.0, 1e3):
            t = interval_days(per_day, price)
            z = per_day * t
            worth = t * t / 2 - (1 - (1 + z) * math.exp(-z)) / per_day**2
            if z > 1e-3:
                assert worth == pytest.approx(price, rel=0.02)


@pytest.mark.parametrize("days_per_page", [2.0, 7.0, 20.0])
def test_the_price_of_a_host_uses_its_budget(days_per_page: float) -> None:
    rng = random.Random(4)
    pages = [Rate(rng.randint(60, 150), 20) for _ in range(4000)]
    per_second = len(pages) / days_per_page / DAY
    price = price_of(Counter(rate.rate_class for rate in pages), per_second, BOUNDS)
    used = sum(1 / interval_seconds(rate, price, BOUNDS) for rate in pages)
    assert used == pytest.approx(per_second * 1.07, rel=0.03)


def test_with_a_large_budget_every_page_is_visited_as_often_as_the_bounds_allow() -> None:
    assert price_of({10: 5}, 1.0, BOUNDS) == 0
    assert price_of({}, 0.001, BOUNDS) == 0
    assert price_of({10: 5}, float("inf"), BOUNDS) == 0
    assert interval_seconds(Rate(100, 9), 0.0, BOUNDS) == BOUNDS.shortest
    # A budget that is too small for the longest interval: every page waits for that.
    assert interval_seconds(Rate(250, 9), price_of({62: 10**6}, 1e-6, BOUNDS), BOUNDS) == BOUNDS.longest


def test_a_schedule_is_read_in_the_format_that_people_write() -> None:
    assert revisit_schedule("1d", "").shortest_seconds == revisit_schedule("1d", "").longest_seconds == DAY
    assert revisit_schedule("1h..30d", "").share == 0.2
    assert revisit_schedule("1h..30d", "5%").share == 0.05
    assert revisit_schedule("90m", "100/h").slot_seconds == 36
    assert not revisit_schedule("", "").perpetual
    assert revisit_schedule("1h..2w", "").visits_per_second(2.0) == 0.1
    assert revisit_schedule("1d", "").visits_per_second(2.0) == float("inf")
    for every, budget in (("1", ""), ("0s", ""), ("2d..1d", ""), ("1d", "0%"), ("1d", "101%"), ("1d", "5"), ("", "5%")):
        with pytest.raises(InvalidLimit):
            revisit_schedule(every, budget)


def test_a_validator_is_used_only_for_the_text_in_the_page_history() -> None:
    """Otherwise a 304 would confirm a text that was fetched by a worker that died, and the change would be missed."""
    old = PageHistory(rate_mean=100, rate_precision=9, text_hash=b"older")
    new = PageHistory(rate_mean=100, rate_precision=9, text_hash=b"newer")
    visit = Visit(url="http://a.example/", number=3)
    stored = tag_validator('W/"a b"', visit.scheduled(new, 60.0))
    assert usable_validator(stored, new) == 'W/"a b"'
    assert usable_validator(stored, old) == ""
    # Outside perpetual crawls it is stored as it is, and '' removes it everywhere.
    assert tag_validator('"x"', visit.stored()) == usable_validator('"x"', None) == '"x"'
    assert tag_validator("", visit.scheduled(new, 60.0)) == ""


def test_a_page_history_survives_a_round_trip() -> None:
    history = PageHistory(
        rate_mean=200, rate_precision=63, misses=3, visits=70_000, changes=5, first_seen=1_700_000_000,
        last_changed=2**32 + 5, last_visited=7, text_hash=b"12345",
    )  # fmt: skip
    packed = history.pack()
    assert len(packed) == HISTORY_BYTES == 23
    again = PageHistory.unpack(packed)
    assert (again.rate_mean, again.rate_precision, again.misses) == (200, 63, 3)
    assert (again.visits, again.changes, again.last_changed) == (65_535, 5, 2**32 - 1)
    with pytest.raises(ValueError, match="cut"):
        PageHistory.unpack(packed[:-1])
