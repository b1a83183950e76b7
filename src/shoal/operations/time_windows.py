"""Times of day at which a crawl may run (`--between 22:00-06:00`): it is paused outside of them, and resumed.

Owns the syntax of windows, and the reason of such a pause. `CrawlRun` and the Maintainer call `keep_to_windows`; the
time is the store's.
"""

from __future__ import annotations

import contextlib
import datetime
import re
import zoneinfo
from typing import NamedTuple

from shoal.errors import CrawlEnded, InvalidLimit
from shoal.frontier import Frontier
from shoal.frontier.inspect import store_seconds
from shoal.model.crawl import Crawl, State

# The reason of the pause.
OUTSIDE = "outside of its times"
_WINDOW = re.compile(r"\s*([01]?\d|2[0-4]):([0-5]\d)\s*-\s*([01]?\d|2[0-4]):([0-5]\d)\s*", re.ASCII)
_DAY = 24 * 60
_MAX_ZONE_CHARACTERS = 60


class TimeWindows(NamedTuple):
    # Start and end of each window in minutes of a day; a window may go over midnight.
    windows: tuple[tuple[int, int], ...]
    # None for the local time of the process that decides.
    zone: datetime.tzinfo | None = None

    def is_open(self, seconds: float) -> bool:
        minute = self._minute(seconds)
        return any(
            start <= minute < end if start < end else minute >= start or minute < end for start, end in self.windows
        )

    def opens_at(self, seconds: float) -> str:
        """When the next window starts, e.g. 22:00."""
        minute = self._minute(seconds)
        start = min((start for start, _ in self.windows), key=lambda start: (start - minute) % _DAY)
        return f"{start // 60:02}:{start % 60:02}"

    def _minute(self, seconds: float) -> float:
        time = datetime.datetime.fromtimestamp(seconds, self.zone)
        return time.hour * 60 + time.minute + time.second / 60


def time_windows_of(text: str) -> TimeWindows | None:
    """The windows of 22:00-06:00, or 22:00-06:00,12:00-13:00 Europe/Berlin; None for ''. InvalidLimit for others."""
    if not text:
        return None
    times, _, name = text.strip().partition(" ")
    windows = []
    for part in times.split(","):
        window = _WINDOW.fullmatch(part)
        start, end = (int(window[i]) * 60 + int(window[i + 1]) for i in (1, 3)) if window else (0, 0)
        if start == end or max(start, end) > _DAY:
            raise InvalidLimit(f"between is {text!r:.80}: write e.g. 22:00-06:00, or 22:00-06:00 Europe/Berlin.")
        windows.append((start % _DAY, end))
    try:
        if len(name) > _MAX_ZONE_CHARACTERS:
            # zoneinfo imports a package for each part of a name.
            raise ValueError(name)
        return TimeWindows(tuple(windows), zoneinfo.ZoneInfo(name.strip()) if name.strip() else None)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidLimit(f"between is {text!r:.80}: {name.strip()!r:.60} is not a time zone.") from None


async def keep_to_windows(frontier: Frontier, crawl: Crawl) -> str:
    """Pause or resume a crawl according to its windows. Returns when it resumes, '' if it may run now."""
    windows = time_windows_of(str(crawl.spec.get("between", "")))
    if windows is None or not crawl.state.open:
        return ""
    seconds = await store_seconds(frontier)
    is_open = windows.is_open(seconds)
    # It may have ended since it was read.
    with contextlib.suppress(CrawlEnded):
        if not is_open and crawl.state is State.RUNNING:
            await frontier.crawls.pause(crawl.id, OUTSIDE)
        elif is_open and crawl.state is State.PAUSED and crawl.why == OUTSIDE:
            await frontier.crawls.resume(crawl.id, OUTSIDE)
    return "" if is_open else windows.opens_at(seconds)
