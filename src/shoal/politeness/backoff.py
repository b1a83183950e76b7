"""When a failed URL is retried, and when and for how long its host is paused.

A failure first counts against its URL, which is retried on its own schedule. The host is paused when its server
requests it, when it cannot be reached, or when several different URLs have failed with no success in between. Owns the
kinds of failure and their times. The store counts failures in a row, for the whole fleet; random numbers are arguments.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from shoal.model.validation import WIDEST, number, whole


class Fault(StrEnum):
    """Why there is no complete response."""

    UNKNOWN_HOST = "unknown host"
    """The name server reports that the name does not exist, or has no address."""
    UNRESOLVED = "unresolved"
    """The name server did not respond, or reported a temporary failure."""
    REFUSED = "refused"
    RESET = "reset"
    TLS = "tls"
    TIMED_OUT = "timed out"
    TRUNCATED = "truncated"
    MALFORMED = "malformed"
    # These have local causes: they do not count against the host.
    PROXY = "proxy"
    FORBIDDEN_ADDRESS = "forbidden address"
    TOO_LARGE = "too large"
    ABORTED = "aborted"


_LOCAL = frozenset((Fault.PROXY, Fault.FORBIDDEN_ADDRESS, Fault.TOO_LARGE, Fault.ABORTED))
# The connection was established, but the response for this URL was not complete.
_INCOMPLETE = frozenset((Fault.RESET, Fault.TRUNCATED, Fault.MALFORMED))


class Failure(StrEnum):
    """Kinds of failures of a host."""

    THROTTLED = "throttled"
    """429: the server reports too many requests."""
    REFUSED = "refused"
    """403, or a non-standard status such as 999: the server may have blocked us, or only this page."""
    BROKEN = "broken"
    """5xx, or an incomplete response: the program behind this URL may be broken."""
    SLOW = "slow"
    """No response in time."""
    UNREACHABLE = "unreachable"
    """No connection: this says nothing about the URL."""


class BackOff(msgspec.Struct, frozen=True):
    """The pause after the first failure that counts, doubled by each further one up to the longest."""

    first_seconds: float = 5.0
    longest_seconds: float = 900.0


DEFAULT_BACK_OFF = BackOff()


class HostPace(msgspec.Struct, frozen=True):
    """The pauses of one kind of failure: multiples of those of `BackOff`, and how many failures cause no pause.

    `pardoned` failures of different URLs in a row cause no pause, because the pages may have failed and not the host.
    """

    times_first: float = 1.0
    times_longest: float = 1.0
    pardoned: int = 0


PACES = {
    # A server that counts requests does so by the minute or the hour.
    Failure.THROTTLED: HostPace(times_first=6.0, times_longest=4.0),
    # Forbidden pages are ordinary, e.g. a members' area that every page links to. More than this many in a row look
    # like a block.
    Failure.REFUSED: HostPace(times_first=3.0, times_longest=4.0, pardoned=20),
    Failure.BROKEN: HostPace(pardoned=4),
    # Each failure has kept a slot of the host busy for the whole timeout.
    Failure.SLOW: HostPace(pardoned=2),
    Failure.UNREACHABLE: HostPace(),
}
# The longest wait for one URL: a crawl does not wait for much longer than this for its last URLs.
LONGEST_RETRY_SECONDS = 60.0


def failure_of(cause: int | Fault) -> Failure | None:
    """The kind of failure of the host that a status or fault shows; None for a success or a fault with a local cause.

    404, 410 and 401 are complete responses of a healthy host. A worker that is blocked slows down, and never uses
    another address.
    """
    if isinstance(cause, Fault):
        if cause in _LOCAL:
            return None
        if cause is Fault.TIMED_OUT:
            return Failure.SLOW
        return Failure.BROKEN if cause in _INCOMPLETE else Failure.UNREACHABLE
    if cause == 429:
        return Failure.THROTTLED
    if 500 <= cause <= 599:
        return Failure.BROKEN
    if cause == 403 or not 100 <= cause <= 599:
        return Failure.REFUSED
    return None


def is_success(cause: int | Fault) -> bool:
    """Whether the host's failures are reset: it responded without a failure. Local faults do not count."""
    return not isinstance(cause, Fault) and failure_of(cause) is None


def counts_against_host(failure: Failure, retries: int) -> bool:
    """Whether a failure of a page counts as a failure of its host, after this many retries of the page.

    Another failure of the same URL says nothing new about the host, unless the server throttles us or is unreachable.
    """
    return retries == 0 or failure in (Failure.THROTTLED, Failure.UNREACHABLE)


def pardoned(failure: Failure) -> int:
    """How many different URLs may fail like this, with no success between, before their host is paused."""
    return PACES[failure].pardoned


def pause_seconds(
    failure: Failure, failures: int, *, jitter: float, requested_seconds: float | None = None,
    pardoned: int = 0, back_off: BackOff = DEFAULT_BACK_OFF,
) -> float:  # fmt: skip
    """How long the host gets no request, after `failures` in a row of which the last was this one.

    The first `pardoned` of them cause no pause. `jitter`, from 0 to 1, chooses between half of the pause and all of it,
    so that hosts that failed together do not come back together. `requested_seconds` is the Retry-After time, which is
    used unchanged; 0, for example from a date in the past, has no effect.
    """
    whole("failures", failures, 1, WIDEST)
    number("jitter", jitter, 0, 1)
    if requested_seconds is not None and requested_seconds > 0:
        return requested_seconds
    pace = PACES[failure]
    first, longest = back_off.first_seconds * pace.times_first, back_off.longest_seconds * pace.times_longest
    return _doubled(first, longest, failures - pardoned, jitter)


def retry_seconds(retries: int, *, jitter: float, back_off: BackOff = DEFAULT_BACK_OFF) -> float:
    """How long a URL waits before it is tried again, after `retries` of it."""
    whole("retries", retries, 0, WIDEST)
    number("jitter", jitter, 0, 1)
    return _doubled(back_off.first_seconds, LONGEST_RETRY_SECONDS, retries + 1, jitter)


def _doubled(first: float, longest: float, count: int, jitter: float) -> float:
    if count < 1:
        return 0.0
    # Beyond 2**30 every pause is the longest; larger powers would overflow.
    return min(longest, first * 2.0 ** min(count - 1, 30)) * (0.5 + jitter / 2)
