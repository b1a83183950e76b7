"""The plain values: what follows from their fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from shoal.errors import InvalidLimit
from shoal.model import Added, Counts, Limits, Outcome, OutcomeCode, Record, State, Visit
from shoal.model.crawl import STATES


def test_every_state_has_its_own_letter() -> None:
    assert {state.code for state in State} == set("rpsefd")
    assert all(STATES[state.code] is state for state in State)
    assert [state for state in State if state.open] == [State.RUNNING, State.PAUSED]


def test_the_defaults_are_allowed() -> None:
    Limits().check()
    Limits(
        delay_seconds=86400, places=32, priority=-10, max_pages=2**53, max_pages_per_host=2**53, max_depth=0,
        order="lifo", expires_at=2**53 / 1000, dedup_seconds=10**10, spider="a.b_c:d-e" + "x" * 55,
    ).check()  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [("delay_seconds", float("nan")), ("delay_seconds", -0.1), ("delay_seconds", "1"), ("places", 0), ("places", True),
     ("priority", 11), ("max_pages", -1), ("max_pages_per_host", 1.0), ("max_depth", -1), ("order", "any"),
     ("expires_at", float("inf")), ("dedup_seconds", None), ("spider", "a b"), ("spider", "ä")],
)  # fmt: skip
def test_a_limit_out_of_range_is_reported_with_its_value(name: str, value: Any) -> None:
    with pytest.raises(InvalidLimit, match=f"^{name} is ") as raised:
        Limits(**{name: value}).check()
    assert repr(value) in str(raised.value)


def test_counts_add_up() -> None:
    counts = Counts(admitted=28, waiting=1, leased=2, later=3, stored=4, failed=5, excluded=6)
    assert (counts.open, counts.ended) == (6, 15)


def test_a_visit_creates_its_outcomes() -> None:
    visit = Visit(url="http://a.example/", number=4)
    assert visit.stored() == Outcome(4, OutcomeCode.STORED, "", 0.0)
    assert visit.stored(revisit_seconds=60) == Outcome(4, OutcomeCode.STORED, "", 60)
    assert visit.failed("HTTP 500") == Outcome(4, OutcomeCode.FAILED, "HTTP 500", 0.0)
    assert visit.excluded("robots") == Outcome(4, OutcomeCode.EXCLUDED, "robots", 0.0)
    assert visit.retry(9) == Outcome(4, OutcomeCode.RETRY, "", 9)


def test_the_results_of_added_visits_are_counted() -> None:
    added = Added("nnsdhbdn")
    assert (added.new, added.seen) == (3, 1)
    assert added.refused == {"depth": 2, "pages per host": 1, "blocked": 1}
    assert Added("").refused == {}


def test_a_record_is_a_mapping_of_its_fields() -> None:
    record = Record(crawl="c", url="http://a.example/", status=200, title="A")
    fields = record.to_dict()
    assert (fields["url"], fields["title"], fields["redirects"]) == ("http://a.example/", "A", ())
    assert dict(record) == fields
    assert len(record) == len(fields)
    assert (record["status"], list(record)) == (200, list(fields))
    with pytest.raises(KeyError):
        record["key"]
    # What pandas takes for rows with columns.
    assert isinstance(record, Mapping)
