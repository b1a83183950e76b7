"""Visits: their metadata, and how they end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shoal.model import Added, AddResult, Outcome, OutcomeCode, Visit, VisitMeta
from shoal.model.record import record_url
from shoal.sinks.files.part import is_rejected


def test_the_metadata_of_a_visit_keeps_its_stored_names() -> None:
    notes = VisitMeta(
        pass_number=2, seed=True, sitemap=0, guess=True, chain=(("http://a.example/", 301),), address=True,
        robots={"host": "a.example"}, callback="parse", data={"n": b"1"},
    )  # fmt: skip
    stored = notes.pack()
    assert stored == {
        "pass": 2, "seed": True, "sitemap": 0, "guess": True, "chain": (("http://a.example/", 301),), "address": True,
        "robots": {"host": "a.example"}, "callback": "parse", "data": {"n": b"1"},
    }  # fmt: skip
    again: dict[str, Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(stored))
    assert Visit(url="http://a.example/", meta=again).notes == notes


def test_a_visit_without_metadata_stores_none() -> None:
    assert VisitMeta().pack() == {}
    assert Visit(url="http://a.example/").notes == VisitMeta()


@pytest.mark.parametrize("name", ["pass", "chain", "robots", "data"])
@pytest.mark.parametrize("value", ["text", 1.5, None, [1, 2], [["a"], ["b", "c"]]])
def test_metadata_of_the_wrong_type_counts_as_absent(name: str, value: object) -> None:
    assert VisitMeta.of({name: value, "mine": 1}) == VisitMeta()


def test_a_sitemap_of_unknown_depth_counts_as_nested_too_deep() -> None:
    assert (VisitMeta.of({"sitemap": "x"}).sitemap or 0) > 1000


def test_an_outcome_has_the_letter_that_scripts_use() -> None:
    visit = Visit(url="http://a.example/", number=3)
    outcomes = [visit.stored(), visit.failed("a"), visit.excluded("b"), visit.retry(1)]
    assert [outcome.code for outcome in outcomes] == list(OutcomeCode)
    assert "".join(outcome.code for outcome in outcomes) == "sfxr"
    packed = msgspec.msgpack.encode(outcomes)
    assert msgspec.msgpack.decode(packed, type=list[Outcome]) == outcomes


def test_an_attempt_counts_whatever_ended_the_earlier_ones() -> None:
    assert Visit(url="http://a.example/").attempt == 1
    assert Visit(url="http://a.example/", retries=1, expiries=2, blames=1).attempt == 5


def test_the_results_of_added_visits_are_counted() -> None:
    added = Added("nnsdhbi")
    assert added.results[:3] == [AddResult.NEW, AddResult.NEW, AddResult.SEEN]
    assert (added.new, added.seen) == (2, 1)
    assert added.refused == {"depth": 1, "pages per host": 1, "blocked": 1, "not a URL": 1}
    assert [result.in_crawl for result in added.results] == [True] * 3 + [False] * 4


def test_an_item_is_rejected_with_its_own_page_and_no_other() -> None:
    get, post = "http://a.example/api", record_url("http://a.example/api", "POST", b"1")
    assert post.startswith(f"{get}#POST-")
    items = [("c", f"{page}#Books/{number}") for page in (get, post) for number in (1, 12)]
    assert [is_rejected(key, {("c", get)}) for key in items] == [True, True, False, False]
    assert [is_rejected(key, {("c", post)}) for key in items] == [False, False, True, True]
    assert [is_rejected(("c", page), {("c", get)}) for page in (get, post)] == [True, False]
    # Of a feed of Scrapy.
    assert is_rejected(("c", "token 7#3"), {("c", "token 7")})
