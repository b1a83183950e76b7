"""URLs that a process has added to the frontier recently."""

from __future__ import annotations

# Enough for the common links of a few thousand hosts; two generations of about 10 MB.
_REMEMBERED = 100_000


class RecentUrls:
    """Recently added URLs, by their hash: most links of a page are among them.

    Add a URL after the frontier has accepted it. Python's hash has 64 bits and a secret key: no page can cause a
    collision.
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
