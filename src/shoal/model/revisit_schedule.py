"""The schedule of a perpetual crawl: how often its pages are visited, as users write it."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from shoal.errors import InvalidLimit

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_TIME = re.compile(r"(\d+(?:\.\d+)?)([smhdw])\Z")
_SHARE = re.compile(r"(\d+(?:\.\d+)?)%\Z")
_VISITS = re.compile(r"(\d+(?:\.\d+)?)/([smhd])\Z")
_LONGEST_SECONDS = 10 * 365 * 86400.0
_DEFAULT_SHARE = 0.2


class RevisitSchedule(msgspec.Struct, frozen=True):
    """When pages are visited again. A crawl whose `shortest_seconds` is 0 visits no page again."""

    # The shortest and the longest time between two visits of a page; equal times are a fixed interval.
    shortest_seconds: float = 0.0
    longest_seconds: float = 0.0
    # The share of the requests that the delay of a host allows, which revisits may use; 0 means that none is set.
    share: float = 0.0
    # The shortest time between two revisits of one host; 0 means that none is set.
    slot_seconds: float = 0.0

    @property
    def perpetual(self) -> bool:
        return self.shortest_seconds > 0

    def visits_per_second(self, pace_seconds: float) -> float:
        """The revisits that a host may get, by the time that one request and its delay take. inf: no limit applies."""
        if self.slot_seconds:
            return 1 / self.slot_seconds
        return self.share / pace_seconds if self.share and pace_seconds else float("inf")


@lru_cache(1000)
def revisit_schedule(every: str, budget: str) -> RevisitSchedule:
    """The schedule of these options. An invalid text raises InvalidLimit, with what to write instead."""
    if not every:
        if budget:
            raise InvalidLimit(f"budget is {budget!r:.80}, but the crawl visits no page again: set every too, e.g. 1d.")
        return RevisitSchedule()
    first, dots, last = every.partition("..")
    shortest, longest = _seconds(every, first), _seconds(every, last if dots else first)
    if not 1 <= shortest <= longest <= _LONGEST_SECONDS:
        raise InvalidLimit(f"every is {every!r:.80}: write a time from 1s to 3650d, or two with the shorter first.")
    share, slot = _budget(budget)
    if not budget and shortest != longest:
        share = _DEFAULT_SHARE
    return RevisitSchedule(shortest, longest, share, slot)


def _seconds(every: str, text: str) -> float:
    if match := _TIME.match(text):
        return float(match[1]) * _UNITS[match[2]]
    raise InvalidLimit(f"every is {every!r:.80}: write e.g. 1d, or 1h..30d (s, m, h, d and w are units).")


def _budget(text: str) -> tuple[float, float]:
    """The share and the slot of a budget."""
    if not text:
        return 0.0, 0.0
    if (match := _SHARE.match(text)) and 0.1 <= float(match[1]) <= 100:
        return float(match[1]) / 100, 0.0
    if (match := _VISITS.match(text)) and 0.001 <= float(match[1]) <= 10**6:
        return 0.0, _UNITS[match[2]] / float(match[1])
    raise InvalidLimit(
        f"budget is {text!r:.80}: write a share of each host's requests, e.g. 20%, or a rate, e.g. 100/h."
    )
