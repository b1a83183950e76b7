"""Limit the bytes per second that the process receives, on average.

A token bucket that may go into debt: received bytes are subtracted afterwards, because the size of a response is not
known in advance, and no request starts while there is debt. libcurl limits each transfer to the same rate, so the debt
is bounded by the number of open requests. Time is an argument.
"""

from __future__ import annotations


class TokenBucket:
    """A token bucket that holds at most the bytes of one second."""

    __slots__ = ("_left", "_rate", "_then")

    def __init__(self, rate: int, now: float) -> None:
        self._rate = rate
        self._left = float(rate)
        self._then = now

    def wait_seconds(self, now: float) -> float:
        """How long a request that wants to start now must wait, unless others come before it."""
        self._left = min(self._rate, self._left + (now - self._then) * self._rate)
        self._then = now
        return max(0.0, -self._left / self._rate)

    def spend(self, count: int) -> None:
        self._left -= count
