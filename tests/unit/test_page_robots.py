"""Robots directives of a page: X-Robots-Tag and meta robots, for all robots and for ours; the most restrictive wins."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.parse.html import PRODUCT, parse
from shoal.parse.robots_meta import NONE, Directives, from_headers, from_meta


def _meta(markup: str, token: str = PRODUCT) -> Directives:
    return parse(markup.encode(), url="http://a.example/", token=token).robots


@pytest.mark.parametrize(
    ("content", "nofollow", "noindex"),
    [
        ("nofollow", True, False),
        ("NoFollow , NOINDEX", True, True),
        ("none", True, True),
        ("noindex nofollow", True, True),
        ("noindex;nofollow", True, True),
        ("index, follow, all", False, False),
        ("nofollower, nonofollow", False, False),
        ("max-snippet:-1, nofollow", True, False),
        ("", False, False),
    ],
)
def test_meta_robots_is_a_list_of_words(content: str, nofollow: bool, noindex: bool) -> None:
    rules = _meta(f'<meta name="Robots" content="{content}">')
    assert (rules.nofollow, rules.noindex) == (nofollow, noindex)


def test_a_meta_element_for_our_token_applies_and_one_for_others_does_not() -> None:
    assert _meta('<meta name="SHOAL" content="nofollow">').nofollow
    assert _meta('<meta name="otherbot" content="none">') == NONE
    assert _meta('<meta name="mybot" content="nofollow">', token="MyBot").nofollow
    assert not _meta('<meta name="shoalbot" content="nofollow">').nofollow


def test_the_most_restrictive_directive_wins_wherever_it_is() -> None:
    assert _meta('<meta name=robots content="nofollow"><meta name=robots content="follow,index">').nofollow
    assert _meta('<meta name=robots content="none"><meta name=shoal content="all">') == Directives(True, True)
    assert _meta('<meta name=robots content="follow, nofollow">').nofollow
    both = _meta('<meta name=robots content="noindex, follow">') | from_headers(["index, nofollow"], "shoal")
    assert (both.nofollow, both.noindex) == (True, True)


def test_a_meta_element_in_body_or_noscript_counts_and_one_in_a_comment_does_not() -> None:
    assert _meta("<body><p>x<meta name=robots content=nofollow>").nofollow
    assert _meta("<noscript><meta name=robots content=nofollow></noscript>").nofollow
    assert _meta("<!-- <meta name=robots content=nofollow> -->") == NONE


@pytest.mark.parametrize(
    ("headers", "nofollow", "noindex"),
    [
        (["nofollow"], True, False),
        (["noindex", "nofollow"], True, True),
        (["noindex, nofollow"], True, True),
        (["shoal: nofollow"], True, False),
        (["SHOAL : none"], True, True),
        (["*: nofollow"], True, False),
        (["otherbot: nofollow"], False, False),
        (["otherbot: noindex, nofollow"], False, False),
        (["otherbot: noindex", "nofollow"], True, False),
        (["otherbot: noindex, shoal: nofollow"], True, False),
        (["shoal: noindex, otherbot: nofollow"], False, True),
        (["nofollower: x"], False, False),
        (["unavailable_after: 25 Jun 2010 15:00:00 PST, nofollow"], True, False),
        (["unavailable_after: Friday, 25-Jun-10 15:00:00 GMT, noindex"], False, True),
        (["shoal: unavailable_after: 2010-06-25T15:00:00, nofollow"], True, False),
        (["max-snippet: 20, nofollow"], True, False),
        ([], False, False),
    ],
)
def test_headers_apply_to_all_robots_or_to_one(headers: list[str], nofollow: bool, noindex: bool) -> None:
    rules = from_headers(headers, "Shoal")
    assert (rules.nofollow, rules.noindex) == (nofollow, noindex)


@pytest.mark.parametrize(
    "text",
    [
        "Friday, 25-Jun-10 15:00:00 GMT",
        "Fri, 25 Jun 2010 15:00:00 GMT",
        "25 Jun 2010 15:00:00 GMT",
        "2010-06-25T15:00:00+00:00",
        "2010-06-25T17:00:00+02:00",
        "2010-06-25T15:00:00",
        "25 Jun 2010 07:00:00 PST",
    ],
)
def test_a_date_with_commas_and_colons_is_read_whole(text: str) -> None:
    expected = datetime(2010, 6, 25, 15, tzinfo=UTC).timestamp()
    for rules in (
        from_headers([f"unavailable_after: {text}"], "shoal"),
        from_headers([f"shoal: unavailable_after: {text}, nofollow"], "shoal"),
        from_meta("robots", f"unavailable_after: {text}, noarchive", "shoal"),
    ):
        assert rules.unavailable_after == expected
        assert not rules.noindex_at(expected)
        assert rules.noindex_at(expected + 1)
    assert from_headers([f"otherbot: unavailable_after: {text}"], "shoal") == NONE


def test_the_earlier_of_two_dates_applies_and_an_invalid_date_is_ignored() -> None:
    early, late = "unavailable_after: 2010-01-01", "unavailable_after: 2020-01-01"
    assert from_headers([late, early], "shoal") == from_headers([early], "shoal")
    assert from_headers(["unavailable_after: soon", "unavailable_after:"], "shoal") == NONE


@given(st.lists(st.text(alphabet=st.characters(), max_size=60), max_size=4), st.text(max_size=20))
def test_no_header_raises(values: list[str], token: str) -> None:
    from_headers(values, token)
    for value in values:
        from_meta("robots", value, token)
        from_meta("robots", f"unavailable_after: {value}", token)
