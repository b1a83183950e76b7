"""The pause after a host failed: how long the whole fleet leaves it alone, and when its visits are given up."""

from __future__ import annotations

import random
import time
from typing import NamedTuple

from shoal.frontier import Frontier
from shoal.model.response import Response
from shoal.politeness.backoff import Fault, failure_of, pause_seconds
from shoal.politeness.delay import asked_pause_seconds, http_date

# A host that has never responded is given up after this many faults: its name or port is probably wrong.
_NEVER_REACHED = 3
# So nothing is gained by a long wait between them.
_NEVER_REACHED_SECONDS = 1.0
# A host of which only error statuses of robots.txt are known is given up after this many, within about a minute.
_NEVER_SERVED = 5


class HostPause(NamedTuple):
    """`set_aside`: the host was given up, and the visits that waited for it have failed, or have to fail now."""

    seconds: float
    set_aside: bool


async def pause_host(
    frontier: Frontier, host: str, cause: int | Fault, response: Response | None, reason: str,
    *, host_failures: int | None = None, robots: bool = False, drains: bool = False,
) -> HostPause:  # fmt: skip
    """Leave a host alone after a failure: as long as its Retry-After says, or longer with each failure in a row.

    host_failures   how many failures in a row give the host up, where that is not the setting's value
    robots          the failed request was for robots.txt, without which no page may be requested
    drains          when the host is given up, the caller leases the visits that wait for it and fails each of them.
                    So they stay where they are, and the host is not paused
    """
    retry_after = None
    if response is not None:
        # A date is on the server's own clock, which its response tells.
        now = http_date(response.header("date")) or time.time()
        retry_after = asked_pause_seconds(response.status, response.header("retry-after") or None, now=now)
    seconds, failure = 0.0, failure_of(cause)
    if failure is not None:
        known = await frontier.hosts.get(host)
        seconds = pause_seconds(failure, known.failures + 1, jitter=random.random(), asked_seconds=retry_after)
        if not known.last_successful_at and (robots or isinstance(cause, Fault)):
            most = _NEVER_REACHED if isinstance(cause, Fault) else _NEVER_SERVED
            host_failures = min(host_failures or frontier.hosts.host_failures or most, most)
            if cause in (Fault.UNRESOLVED, Fault.REFUSED) and known.failures + 1 < host_failures:
                seconds = min(seconds, _NEVER_REACHED_SECONDS)
        if drains:
            most = host_failures or frontier.hosts.host_failures
            given_up = 0 < most <= known.failures + 1
            await frontier.hosts.postpone(host, 0.0 if given_up else seconds, failed=True, host_failures=0)
            return HostPause(seconds, given_up)
    set_aside = await frontier.hosts.postpone(
        host, seconds, failed=True, host_failures=host_failures, reason=reason or "unreachable"
    )
    return HostPause(seconds, set_aside)
