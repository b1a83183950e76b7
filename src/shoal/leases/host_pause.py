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


class HostPause(NamedTuple):
    """`set_aside`: the host was given up, and the visits that waited for it have failed."""

    seconds: float
    set_aside: bool


async def pause_host(
    frontier: Frontier, host: str, cause: int | Fault, response: Response | None, reason: str,
    *, host_failures: int | None = None,
) -> HostPause:  # fmt: skip
    """Leave a host alone after a failure: as long as its Retry-After says, or longer with each failure in a row.

    `host_failures` is how many failures in a row give the host up, where that is not the setting's value.
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
        if isinstance(cause, Fault) and not known.last_successful_at:
            host_failures = min(host_failures or _NEVER_REACHED, _NEVER_REACHED)
    set_aside = await frontier.hosts.postpone(
        host, seconds, failed=True, host_failures=host_failures, reason=reason or "unreachable"
    )
    return HostPause(seconds, set_aside)
