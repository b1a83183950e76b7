"""Delays: the largest of our minimum, Crawl-delay and the response time of the server, and Retry-After."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.politeness.delay import (
    MAX_ADAPTIVE_SECONDS,
    MAX_RETRY_AFTER_SECONDS,
    delay_seconds,
    requested_pause_seconds,
    retry_after_seconds,
)

# Sun, 06 Nov 1994 08:49:37 GMT, the example of RFC 9110 5.6.7.
THEN = 784111777.0


@pytest.mark.parametrize(
    ("configured", "crawl_delay", "response", "factor", "expected"),
    [
        (1.0, 0.0, 0.2, 1.0, 1.0),
        (1.0, 5.0, 0.2, 1.0, 5.0),
        (1.0, 0.0, 2.0, 1.0, 2.0),
        (1.0, 0.0, 2.0, 1.5, 3.0),
        (1.0, 2.5, 2.0, 1.0, 2.5),
        (0.0, 0.0, 0.0, 1.0, 0.0),
        (0.25, 0.5, 0.1, 1.0, 0.5),
        (0.0, 0.0, 9.0, 0.0, 0.0),
    ],
)
def test_the_delay_is_the_largest_of_minimum_crawl_delay_and_response_time(
    configured: float, crawl_delay: float, response: float, factor: float, expected: float
) -> None:
    seconds = delay_seconds(configured=configured, crawl_delay=crawl_delay, response_seconds=response, factor=factor)
    assert seconds == expected


def test_delays_from_servers_are_bounded_and_delays_of_operators_are_not() -> None:
    assert delay_seconds(configured=1.0, response_seconds=1e6) == MAX_ADAPTIVE_SECONDS
    assert delay_seconds(configured=1.0, crawl_delay=1e9) == MAX_ADAPTIVE_SECONDS
    assert delay_seconds(configured=3600.0, response_seconds=1e6) == 3600.0
    assert delay_seconds(configured=1.0, response_seconds=50.0, most=10.0) == 10.0


@given(st.floats(0, 1e4), st.floats(), st.floats(), st.floats(0, 100))
def test_no_measurement_lowers_the_delay_below_the_minimum(
    floor: float, crawl: float, took: float, factor: float
) -> None:
    seconds = delay_seconds(configured=floor, crawl_delay=crawl, response_seconds=took, factor=factor)
    assert floor <= seconds <= max(floor, MAX_ADAPTIVE_SECONDS)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0), ("120", 120.0), (" 120\t", 120.0), ("007", 7.0), ("86400", 86400.0), ("86401", 86400.0),
        ("999999999999", 86400.0), ("9" * 10_000, 86400.0), ("0" * 10_000 + "5", 5.0),
        ("Sun, 06 Nov 1994 08:50:37 GMT", 60.0),
        ("Sunday, 06-Nov-94 08:50:37 GMT", 60.0),
        ("Sun Nov  6 08:50:37 1994", 60.0),
        # Not an HTTP date, but unambiguous.
        ("Sun, 06 Nov 1994 09:50:37 +0100", 60.0),
        ("Sun, 06 Nov 1994 08:49:36 GMT", 0.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86400.0),
    ],
)  # fmt: skip
def test_retry_after_is_seconds_or_a_date_and_at_most_a_day(value: str, seconds: float) -> None:
    assert retry_after_seconds(value, now=THEN) == seconds


@pytest.mark.parametrize(
    "value",
    [
        None, "", " ", "soon", "-5", "+5", "1.5", "1e3", "٣", "²", "10s", "nan", "inf", "60, 120", "0x10", "\0",
        "Sun, 31 Feb 1994 08:49:37 GMT", "Sun, 06 Nov 1994 25:49:37 GMT", "Sun, 06 Foo 1994 08:49:37 GMT",
        "Sun, 06 Nov 99999 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 GMT" + " " * 9999 + "x",
    ],
)  # fmt: skip
def test_an_invalid_retry_after_is_ignored(value: str | None) -> None:
    assert retry_after_seconds(value, now=THEN) is None


def test_a_date_without_a_time_zone_is_gmt_in_any_local_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert retry_after_seconds("Sun Nov  6 08:50:37 1994", now=THEN) == 60.0
    finally:
        monkeypatch.undo()
        time.tzset()


@given(st.one_of(st.text(max_size=80), st.text("0123456789 :,-+GMTSunNov", max_size=40)), st.floats(0, 1e11))
def test_any_header_gives_a_time_within_a_day_or_nothing(value: str, now: float) -> None:
    seconds = retry_after_seconds(value, now=now)
    assert seconds is None or 0 <= seconds <= MAX_RETRY_AFTER_SECONDS


@pytest.mark.parametrize(("status", "seconds"), [(429, 7.0), (503, 7.0), (301, None), (200, None), (500, None)])
def test_retry_after_applies_to_the_host_only_with_429_and_503(status: int, seconds: float | None) -> None:
    assert requested_pause_seconds(status, "7", now=THEN) == seconds
    assert requested_pause_seconds(status, None, now=THEN) is None
