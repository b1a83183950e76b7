"""How long a host is paused after a failure, and what counts as a failure.

Owns the kinds of failure and their times. The count of failures in a row lives in the store, for the whole fleet; the
random number that spreads workers and hosts is an argument.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from shoal.model.validation import WIDEST, number, whole


class Fault(StrEnum):
    """Why no whole answer came."""

    UNRESOLVED = "unresolved"
    REFUSED = "refused"
    RESET = "reset"
    TLS = "tls"
    TIMED_OUT = "timed out"
    TRUNCATED = "truncated"
    MALFORMED = "malformed"
    # These are our own matters. The host did nothing wrong.
    PROXY = "proxy"
    FORBIDDEN_ADDRESS = "forbidden address"
    TOO_LARGE = "too large"
    ABORTED = "aborted"


_OURS = frozenset((Fault.PROXY, Fault.FORBIDDEN_ADDRESS, Fault.TOO_LARGE, Fault.ABORTED))


class Failure(StrEnum):
    """A failure of the host, by what it tells us."""

    THROTTLED = "throttled"
    """429: it says that we ask too often."""
    REFUSED = "refused"
    """403, or a status HTTP does not know, such as 999: it may have shut us out, or only this page."""
    BROKEN = "broken"
    """5xx."""
    SILENT = "silent"
    """No whole answer."""


class HostPace(msgspec.Struct, frozen=True):
    """The pause after the first failure that counts, doubled by each further one up to `most_seconds`.

    `pardoned` failures in a row bring no pause, since they may be about pages and not about the host.
    """

    first_seconds: float
    most_seconds: float
    pardoned: int = 0


PACES = {
    # A server that counts requests does so by the minute or the hour.
    Failure.THROTTLED: HostPace(first_seconds=30.0, most_seconds=3600.0),
    # One forbidden page is ordinary. Three in a row look like a closed door.
    Failure.REFUSED: HostPace(first_seconds=15.0, most_seconds=3600.0, pardoned=2),
    # A restart takes seconds.
    Failure.BROKEN: HostPace(first_seconds=5.0, most_seconds=900.0),
    Failure.SILENT: HostPace(first_seconds=5.0, most_seconds=900.0),
}


def failure_of(answer: int | Fault) -> Failure | None:
    """What a status or fault says about the host; None is a success, or none of its business.

    404, 410 and 401 are whole answers of a healthy host. Blocked means slower, never another address.
    """
    if isinstance(answer, Fault):
        return None if answer in _OURS else Failure.SILENT
    if answer == 429:
        return Failure.THROTTLED
    if 500 <= answer <= 599:
        return Failure.BROKEN
    if answer == 403 or not 100 <= answer <= 599:
        return Failure.REFUSED
    return None


def is_success(answer: int | Fault) -> bool:
    """Whether the host's failures are forgotten: it answered, and not with a failure. Our own faults say nothing."""
    return not isinstance(answer, Fault) and failure_of(answer) is None


def failures_after(failures: int, answer: int | Fault) -> int:
    """The count of failures in a row after one more answer."""
    if failure_of(answer) is not None:
        return failures + 1
    return 0 if is_success(answer) else failures


def pause_seconds(failure: Failure, failures: int, *, jitter: float, asked_seconds: float | None = None) -> float:
    """How long nobody asks the host, after `failures` in a row of which the last was this one.

    `jitter`, from 0 to 1, chooses between half of the pause and all of it, so that hosts that failed together do not
    come back together. A Retry-After time is used as it is; 0, or a date in the past, has no effect.
    """
    whole("failures", failures, 1, WIDEST)
    number("jitter", jitter, 0, 1)
    if asked_seconds is not None and asked_seconds > 0:
        return asked_seconds
    pace = PACES[failure]
    counted = failures - pace.pardoned
    if counted < 1:
        return 0.0
    # Beyond 2**30 every pause is at its most; larger powers would overflow.
    full = min(pace.most_seconds, pace.first_seconds * 2.0 ** min(counted - 1, 30))
    return full * (0.5 + jitter / 2)
