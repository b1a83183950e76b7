"""The first URLs that one crawl excluded or did not follow in this worker, by reason, on their way to the store.

A link that is refused costs one look-up here, and the store a call only for the first few of each reason.
"""

from __future__ import annotations

from shoal.frontier.samples import MOST

# A reason may name a pattern of the user, so there can be as many reasons as patterns.
_MOST_REASONS = 100


class ExclusionSamples:
    def __init__(self) -> None:
        self._kept: dict[str, set[str]] = {}
        self._new: list[tuple[str, str]] = []

    def note(self, reason: str, url: str) -> None:
        """Keep a URL, unless there are enough for this reason."""
        kept = self._kept.get(reason)
        if kept is None:
            if len(self._kept) >= _MOST_REASONS:
                return
            kept = self._kept[reason] = set()
        if len(kept) < MOST and url not in kept:
            kept.add(url)
            self._new.append((reason, url))

    def take(self) -> list[tuple[str, str]]:
        """The URLs that were kept since the last call."""
        new, self._new = self._new, []
        return new
