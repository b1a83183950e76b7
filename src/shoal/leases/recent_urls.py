"""URLs that a process has added to the frontier not long ago."""

from __future__ import annotations

# Enough for the links that the pages of a few thousand hosts have in common; two generations of about 10 MB.
_REMEMBERED = 100_000


class RecentUrls:
    """URLs that were added not long ago, by their hash: most links of a page are among them.

    One enters only when its add has succeeded. Python's hash has 64 bits and a secret key: no page can make two alike.
    """

    def __init__(self) -> None:
        self._young: set[int] = set()
        self._old: set[int] = set()

    def __contains__(self, url: str) -> bool:
        mark = hash(url)
        return mark in self._young or mark in self._old

    def add(self, url: str) -> None:
        if len(self._young) >= _REMEMBERED:
            self._old, self._young = self._young, set()
        self._young.add(hash(url))

    def clear(self) -> None:
        self._young, self._old = set(), set()
