"""Rates of counters: samples of the last seconds, and the growth per second between the first and the last."""

from __future__ import annotations

import time
from collections import deque

_SECONDS = 10.0
_MOST_NAMES = 3000


class CountRates:
    """The rates of counters, by name. A counter without a sample for a minute starts again."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[float, int]]] = {}

    def of(self, name: str, count: int, now: float | None = None) -> float | None:
        """Note a count, and return its growth per second in the last seconds; None before the second count."""
        now = time.monotonic() if now is None else now
        samples = self._samples.pop(name, deque())
        if samples and now - samples[-1][0] > 6 * _SECONDS:
            samples.clear()
        if not samples or now - samples[-1][0] >= 0.5:
            samples.append((now, count))
        while len(samples) > 2 and now - samples[1][0] >= _SECONDS:
            samples.popleft()
        # The counter with the newest sample is the last to be dropped.
        self._samples[name] = samples
        while len(self._samples) > _MOST_NAMES:
            del self._samples[next(iter(self._samples))]
        (then, before), (last, after) = samples[0], samples[-1]
        return max(0.0, (after - before) / (last - then)) if last > then else None
