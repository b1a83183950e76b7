"""AutoThrottle's rule for a host's delay. The frontier applies the delay to the whole fleet."""

from __future__ import annotations

from scrapy.settings import BaseSettings


class Throttle:
    """AutoThrottle's rule for the whole fleet: its delay becomes the host's."""

    def __init__(self, settings: BaseSettings) -> None:
        self._least = settings.getfloat("DOWNLOAD_DELAY")
        self._most = max(self._least, settings.getfloat("AUTOTHROTTLE_MAX_DELAY"))
        self._first = max(self._least, settings.getfloat("AUTOTHROTTLE_START_DELAY"))
        self._target = settings.getfloat("AUTOTHROTTLE_TARGET_CONCURRENCY")

    def delay_seconds(self, now: float, latency: float, status: int) -> float:
        # A host without a delay from response times is new to the fleet.
        now = now if now > self._least else self._first
        target = latency / self._target
        delay = min(max(self._least, target, (now + target) / 2), self._most)
        return now if status != 200 and delay <= now else delay
