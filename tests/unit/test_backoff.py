"""Back-off: what counts as a failure of the host, how long the host is paused, and what ends the pause."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import InvalidLimit
from shoal.politeness.backoff import (
    LONGEST_RETRY_SECONDS,
    PACES,
    BackOff,
    Failure,
    Fault,
    counts_against_host,
    failure_of,
    is_success,
    pardoned,
    pause_seconds,
    retry_seconds,
)

OURS = (Fault.PROXY, Fault.FORBIDDEN_ADDRESS, Fault.TOO_LARGE, Fault.ABORTED)


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (429, Failure.THROTTLED), (403, Failure.REFUSED), (999, Failure.REFUSED), (0, Failure.REFUSED),
        (500, Failure.BROKEN), (502, Failure.BROKEN), (503, Failure.BROKEN), (599, Failure.BROKEN),
        (200, None), (204, None), (301, None), (304, None), (400, None), (401, None), (404, None), (410, None),
    ],
)  # fmt: skip
def test_a_status_counts_as_a_failure_of_the_host_or_not_at_all(status: int, failure: Failure | None) -> None:
    assert failure_of(status) is failure
    assert is_success(status) == (failure is None)


@pytest.mark.parametrize("fault", list(Fault))
def test_only_faults_caused_by_the_host_count_against_it(fault: Fault) -> None:
    assert (failure_of(fault) is None) == (fault in OURS)
    assert not is_success(fault)


@pytest.mark.parametrize("failure", list(Failure))
def test_the_pause_doubles_up_to_its_maximum(failure: Failure) -> None:
    back_off = BackOff(first_seconds=2.0, longest_seconds=100.0)
    first, longest = 2.0 * PACES[failure].times_first, 100.0 * PACES[failure].times_longest
    pauses = [pause_seconds(failure, count, jitter=1.0, back_off=back_off) for count in range(1, 20)]
    assert pauses[:3] == [first, 2 * first, 4 * first]
    assert pauses == sorted(pauses)
    assert pauses[-1] == longest
    assert pause_seconds(failure, 10**9, jitter=1.0, back_off=back_off) == longest


@pytest.mark.parametrize(
    ("cause", "free", "first_seconds"),
    [(500, 4, 5.0), (503, 4, 5.0), (Fault.RESET, 4, 5.0), (Fault.TIMED_OUT, 2, 5.0), (403, 20, 15.0), (429, 0, 30.0),
     (Fault.REFUSED, 0, 5.0), (Fault.UNRESOLVED, 0, 5.0)],
)  # fmt: skip
def test_the_first_failures_of_pages_do_not_pause_their_host(
    cause: int | Fault, free: int, first_seconds: float
) -> None:
    failure = failure_of(cause)
    assert failure is not None
    assert pardoned(failure) == free
    pauses = [pause_seconds(failure, count, jitter=1.0, pardoned=free) for count in range(1, free + 2)]
    assert pauses == [0.0] * free + [first_seconds]


def test_repeated_failures_of_one_url_count_once_against_its_host() -> None:
    for failure in Failure:
        assert counts_against_host(failure, 0)
        assert counts_against_host(failure, 1) == (failure in (Failure.THROTTLED, Failure.UNREACHABLE))


def test_all_retries_of_a_url_take_less_than_a_minute_by_default() -> None:
    waits = [retry_seconds(retries, jitter=1.0) for retries in range(3)]
    assert waits == [5.0, 10.0, 20.0]
    assert retry_seconds(99, jitter=1.0) == LONGEST_RETRY_SECONDS
    assert retry_seconds(1, jitter=0.0, back_off=BackOff(first_seconds=0.5)) == 0.5


def test_a_throttling_host_is_paused_for_longer_than_a_broken_one() -> None:
    for count in (1, 5, 50):
        throttled = pause_seconds(Failure.THROTTLED, count, jitter=0.0)
        assert throttled > pause_seconds(Failure.BROKEN, count, jitter=1.0)


@given(st.sampled_from(Failure), st.integers(1, 2**53), st.floats(0, 1))
def test_jitter_chooses_between_half_of_the_pause_and_all_of_it(failure: Failure, count: int, jitter: float) -> None:
    full = pause_seconds(failure, count, jitter=1.0)
    assert full / 2 <= pause_seconds(failure, count, jitter=jitter) <= full


def test_hosts_that_fail_together_are_retried_at_different_times() -> None:
    chance = random.Random(1)
    pauses = {pause_seconds(Failure.BROKEN, 4, jitter=chance.random()) for _ in range(100)}
    assert len(pauses) == 100
    assert max(pauses) - min(pauses) > 15


def test_the_pause_that_a_server_requests_overrides_ours() -> None:
    for seconds in (1.0, 86400.0):
        assert pause_seconds(Failure.THROTTLED, 5, jitter=0.3, requested_seconds=seconds) == seconds
    for nothing in (None, 0.0):
        assert pause_seconds(Failure.THROTTLED, 1, jitter=1.0, requested_seconds=nothing) == 30.0


@pytest.mark.parametrize(("failures", "jitter"), [(0, 0.5), (-1, 0.5), (1, -0.1), (1, 1.1), (1, float("nan"))])
def test_counts_and_jitter_outside_their_range_are_refused(failures: int, jitter: float) -> None:
    with pytest.raises(InvalidLimit):
        pause_seconds(Failure.BROKEN, failures, jitter=jitter)
