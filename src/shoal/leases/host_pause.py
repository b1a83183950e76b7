"""The pause after a host failed: how long the whole fleet sends it no requests, and when its visits are given up."""

from __future__ import annotations

import random
import time
from typing import NamedTuple

from shoal.frontier import Frontier
from shoal.model.response import Response
from shoal.model.visit import Visit
from shoal.politeness import backoff
from shoal.politeness.backoff import Fault, counts_against_host, failure_of, pardoned, pause_seconds
from shoal.politeness.delay import http_date, requested_pause_seconds

# A host that has never responded is given up after this many faults: its name or port is probably wrong.
_NEVER_REACHED = 3
# A long wait between these attempts would gain nothing.
_NEVER_REACHED_SECONDS = 1.0
# A host that has only returned error statuses for robots.txt is given up after this many, within about a minute.
_NEVER_SERVED = 5


class HostPause(NamedTuple):
    """`given_up`: the host was given up, and the visits that waited for it have failed, or have to fail now."""

    seconds: float
    given_up: bool


async def pause_host(
    frontier: Frontier, host: str, cause: int | Fault, response: Response | None, reason: str,
    *, host_failures: int | None = None, visit: Visit | None = None, after_success: bool = False, drains: bool = False,
) -> HostPause:  # fmt: skip
    """Pause a host after a failure: for its Retry-After time, or longer with each failure in a row.

    host_failures   number of failures in a row after which the host is given up, instead of the setting's value
    visit           the page that failed. Single pages fail on healthy hosts, so some failures cause no pause.
                    None is robots.txt, without which no page may be requested: every failure of it counts
    after_success   the host has responded well since the caller's last call, so this failure is the first in a row
    drains          when the host is given up, the caller leases the visits that wait for it and fails each of them.
                    So they stay in the queue, and the host is not paused
    """
    retry_after = None
    if response is not None:
        # A date in Retry-After is on the server's own clock, which the Date header contains.
        now = http_date(response.header("date")) or time.time()
        retry_after = requested_pause_seconds(response.status, response.header("retry-after") or None, now=now)
    seconds, counts, free = 0.0, True, 0
    failure = failure_of(cause)
    if failure is not None:
        known = await frontier.hosts.get(host)
        reached = bool(known.last_successful_at) or after_success
        failures = 0 if after_success else known.failures
        if visit is not None and reached:
            free = pardoned(failure)
            # A Retry-After applies to the host, whichever URL was requested.
            counts = bool(retry_after) or counts_against_host(failure, visit.retries)
            if not counts and failures <= free:
                return HostPause(0.0, False)
        seconds = pause_seconds(
            failure, failures + counts, jitter=random.random(), requested_seconds=retry_after, pardoned=free,
            back_off=frontier.hosts.back_off,
        )  # fmt: skip
        if not reached and (visit is None or isinstance(cause, Fault)):
            max_failures = _NEVER_REACHED if isinstance(cause, Fault) else _NEVER_SERVED
            # An unknown name is probably a typing error.
            max_failures = 1 if cause is Fault.UNKNOWN_HOST else max_failures
            host_failures = min(host_failures or frontier.hosts.host_failures or max_failures, max_failures)
            if cause in (Fault.UNRESOLVED, Fault.REFUSED) and failures + 1 < host_failures:
                seconds = min(seconds, _NEVER_REACHED_SECONDS)
        if drains:
            max_failures = host_failures or frontier.hosts.host_failures
            given_up = 0 < max_failures <= failures + 1
            await frontier.hosts.postpone(host, 0.0 if given_up else seconds, failed=True, host_failures=0)
            return HostPause(seconds, given_up)
    given_up = await frontier.hosts.postpone(
        host, seconds, failed=counts, host_failures=host_failures, reason=reason or "unreachable", pardoned=free,
        after_success=after_success, requested=bool(retry_after),
    )  # fmt: skip
    return HostPause(seconds, given_up)


def retry_seconds(frontier: Frontier, visit: Visit, pause: HostPause) -> float:
    """How long a failed visit waits for its next try: by its own schedule, and for as long as its host is paused."""
    own_seconds = backoff.retry_seconds(visit.retries, jitter=random.random(), back_off=frontier.hosts.back_off)
    return max(pause.seconds, own_seconds)
