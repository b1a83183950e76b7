"""What a response to the robots.txt request means, how long it is valid, and the format in which it is stored."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import StoreCorrupt
from shoal.politeness.robots_parser import parse
from shoal.politeness.robots_policy import (
    FRESH_SECONDS,
    UNREACHABLE_SECONDS,
    Meaning,
    RobotsCopy,
    settle,
    standing,
    verdict,
)
from shoal.politeness.robots_rules import ALLOW_ALL, DISALLOW_ALL, Rules
from tests.unit.robots import rules_of

# --- The form in the store ------------------------------------------------------------------------------------------


def test_rules_and_copies_survive_a_round_trip_through_the_store() -> None:
    rules = rules_of("User-agent: *\nDisallow: /é*\nAllow: /é$\nCrawl-delay: 9999\nSitemap: http://a/ツ\n")
    again = Rules.unpack(rules.pack())
    assert again == rules
    assert hash(again) == hash(rules)
    assert (again.token, again.crawl_delay_seconds, again.sitemaps) == ("Shoal", 300, ("http://a/ツ",))
    assert again.notes == rules.notes != ()
    assert [again.allows("/é"), again.allows("/éa")] == [True, False]
    copy = RobotsCopy(rules, 12.5, '"tag"', "Sun, 06 Nov 1994 08:49:37 GMT")
    assert RobotsCopy.unpack(copy.pack()) == copy


def test_only_the_applicable_group_is_stored() -> None:
    others = "".join(f"User-agent: bot{n}\nDisallow: /{'x' * 50}{n}\n" for n in range(1000))
    assert len(rules_of(others + "User-agent: *\nDisallow: /a\nDisallow: /a\n").pack()) < 40


_GOOD = [1, "Shoal", [b"/a"], [b"*b"], 1.0, ["http://a/"], ["a note"]]


def _changed(at: int, value: Any) -> bytes:
    return msgspec.msgpack.encode([*_GOOD[:at], value, *_GOOD[at + 1 :]])


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xc1", b"\x00", b"garbage", b"\x91" * 5000, msgspec.msgpack.encode({"version": 1}),
        msgspec.msgpack.encode(_GOOD) + b"\0", msgspec.msgpack.encode(_GOOD)[:-1], msgspec.msgpack.encode(_GOOD[:-1]),
        msgspec.msgpack.encode([*_GOOD, 1]),
        _changed(0, 2), _changed(1, 7), _changed(2, ["/a"]), _changed(2, [b""]), _changed(2, [b"a"]),
        _changed(3, [b"/" * 20_000]), _changed(4, -1.0), _changed(4, 1e9), _changed(4, float("nan")),
        _changed(5, ["x" * 9000]), _changed(5, ["x"] * 1001), _changed(6, ["n"] * 11), _changed(2, [b"/"] * 3_000_000),
    ],
)  # fmt: skip
def test_data_in_another_format_is_corrupt(data: bytes) -> None:
    assert Rules.unpack(msgspec.msgpack.encode(_GOOD)).allows("/c")
    with pytest.raises(StoreCorrupt, match="again"):
        Rules.unpack(data)
    with pytest.raises(StoreCorrupt):
        RobotsCopy.unpack(msgspec.msgpack.encode([1, 1.0, "", "", data]))


@pytest.mark.parametrize(
    "fields",
    [
        (2, 1.0, "", ""),
        (1, -1.0, "", ""),
        (1, float("nan"), "", ""),
        (1, 1.0, "a\r\nCookie: b", ""),
        (1, 1.0, "", "\0"),
    ],
)
def test_a_copy_with_invalid_fields_is_corrupt(fields: tuple[Any, ...]) -> None:
    with pytest.raises(StoreCorrupt):
        RobotsCopy.unpack(msgspec.msgpack.encode([*fields, ALLOW_ALL.pack()]))


@given(st.binary(max_size=200))
def test_any_bytes_are_valid_rules_or_corrupt(data: bytes) -> None:
    with contextlib.suppress(StoreCorrupt):
        assert isinstance(Rules.unpack(data), Rules)
    with contextlib.suppress(StoreCorrupt):
        assert isinstance(RobotsCopy.unpack(data), RobotsCopy)


# --- The answer and its age: 2.3.1 and 2.4 --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (200, Meaning.RULES), (204, Meaning.RULES), (206, Meaning.RULES),
        (400, Meaning.UNAVAILABLE), (401, Meaning.UNAVAILABLE), (403, Meaning.UNAVAILABLE),
        (404, Meaning.UNAVAILABLE), (410, Meaning.UNAVAILABLE), (451, Meaning.UNAVAILABLE), (499, Meaning.UNAVAILABLE),
        (429, Meaning.UNREACHABLE), (500, Meaning.UNREACHABLE), (503, Meaning.UNREACHABLE), (599, Meaning.UNREACHABLE),
        (None, Meaning.UNREACHABLE), (999, Meaning.UNREACHABLE), (100, Meaning.UNREACHABLE), (0, Meaning.UNREACHABLE),
        (300, Meaning.UNREACHABLE), (304, Meaning.UNREACHABLE),
    ],
)  # fmt: skip
def test_the_status_decides_whether_the_host_is_open_or_closed(status: int | None, meaning: Meaning) -> None:
    assert verdict(status) is meaning


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_five_redirects_are_followed_and_more_count_as_a_missing_file(status: int) -> None:
    assert [verdict(status, hops=hops) for hops in range(5)] == [Meaning.REDIRECT] * 5
    assert verdict(status, hops=5) is Meaning.UNAVAILABLE


def test_an_unchanged_file_is_confirmed_only_if_there_is_a_copy() -> None:
    copy = RobotsCopy(rules_of("User-agent: *\nDisallow: /x\n"), 100.0, '"1"')
    assert verdict(304, has_copy=True) is Meaning.UNCHANGED
    assert settle(Meaning.UNCHANGED, now=500.0, copy=copy) == RobotsCopy(copy.rules, 500.0, '"1"')
    assert settle(Meaning.UNCHANGED, now=500.0) is None


def test_a_response_becomes_the_stored_copy() -> None:
    body = b"User-agent: *\nDisallow: /x\n"
    old = RobotsCopy(DISALLOW_ALL, 1.0)
    new = settle(Meaning.RULES, now=2.0, copy=old, body=body, token="Shoal", etag='"2"', last_modified="x\r\nCookie: y")
    assert new == RobotsCopy(parse(body, "Shoal"), 2.0, '"2"', "")
    assert settle(Meaning.UNAVAILABLE, now=2.0, copy=old) == RobotsCopy(ALLOW_ALL, 2.0)
    assert settle(Meaning.UNREACHABLE, now=2.0, copy=old) is old
    assert settle(Meaning.UNREACHABLE, now=2.0) is None


def test_before_the_first_response_only_robots_txt_is_requested() -> None:
    assert standing(None, token="Shoal", now=0.0) == (None, True)
    assert standing(None, token="Shoal", now=0.0, unreachable=True) == (DISALLOW_ALL, True)
    assert [DISALLOW_ALL.allows(path) for path in ("/", "/x?y", "", "/robots.txt")] == [False, False, False, True]


def test_a_copy_is_used_for_a_day_and_then_fetched_again() -> None:
    copy = RobotsCopy(rules_of("User-agent: *\nDisallow: /x\n"), 1000.0)
    for unreachable in (False, True):
        last = 1000.0 + FRESH_SECONDS - 1
        assert standing(copy, token="Shoal", now=last, unreachable=unreachable) == (copy.rules, False)
    assert standing(copy, token="Shoal", now=1000.0 + FRESH_SECONDS) == (None, True)


def test_while_unreachable_a_copy_stays_in_use_for_30_days() -> None:
    copy = RobotsCopy(rules_of("User-agent: *\nDisallow: /x\n"), 1000.0)
    end = 1000.0 + UNREACHABLE_SECONDS
    assert UNREACHABLE_SECONDS == 30 * 24 * 3600
    assert standing(copy, token="Shoal", now=1000.0 + FRESH_SECONDS, unreachable=True) == (copy.rules, True)
    assert standing(copy, token="Shoal", now=end - 1, unreachable=True) == (copy.rules, True)
    assert standing(copy, token="Shoal", now=end, unreachable=True) == (DISALLOW_ALL, True)


def test_a_copy_from_the_future_is_fetched_again() -> None:
    copy = RobotsCopy(ALLOW_ALL, 1000.0)
    assert standing(copy, token="Shoal", now=939.0) == (None, True)
    # Another worker read the clock of a slow store: it is off by the time of a call.
    assert standing(copy, token="Shoal", now=941.0) == (copy.rules, False)


def test_rules_for_another_token_are_never_applied() -> None:
    copy = RobotsCopy(rules_of("User-agent: *\nDisallow: /x\n", "Other"), 0.0)
    assert standing(copy, token="Shoal", now=1.0) == (None, True)
    assert standing(copy, token="Other", now=1.0) == (copy.rules, False)
