"""A visit: one URL to fetch in one crawl, and how it ended."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

FOUND = ("link", "seed", "redirect", "sitemap", "revisit", "spider", "feed", "other")


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be fetched. `url` is all that is needed; the rest has sensible defaults.

    `host` is whose politeness holds for it, where that is not the URL's own host: the address that many names share.
    `crawl`, `number` and the three counts are set on visits that come out of a lease: `retries` says how often it was
    tried again, `expiries` how many leases ran out on it, `blames` how many workers died while they parsed it.
    """

    url: str
    depth: int = 0
    priority: int = 0
    found: str = "link"
    method: str = "GET"
    headers: dict[str, str] = {}
    body: bytes = b""
    meta: dict[str, Any] = {}
    host: str = ""
    crawl: str = ""
    number: int = 0
    retries: int = 0
    expiries: int = 0
    blames: int = 0

    def stored(self, *, revisit_seconds: float = 0.0) -> Outcome:
        """Its record is in every sink. With `revisit_seconds` it comes up again after that time."""
        return Outcome(self.number, "s", "", revisit_seconds)

    def failed(self, reason: str) -> Outcome:
        """It will not be tried again by itself; a person can retry it."""
        return Outcome(self.number, "f", reason, 0.0)

    def excluded(self, reason: str) -> Outcome:
        """It is not to be fetched: robots.txt, scope, a limit."""
        return Outcome(self.number, "x", reason, 0.0)

    def retry(self, after_seconds: float) -> Outcome:
        """It is tried again, no sooner than after this time."""
        return Outcome(self.number, "r", "", after_seconds)


class Outcome(msgspec.Struct, frozen=True):
    """How one visit of a lease ended; made by the methods of Visit."""

    number: int
    code: str
    reason: str
    seconds: float


class Added(msgspec.Struct, frozen=True):
    """What became of visits that were added, one letter each in their order.

    n new, s seen before, d deeper than the crawl goes, h the crawl has its pages of this host, b the host is blocked,
    i not a URL that can be visited.
    """

    letters: str

    @property
    def new(self) -> int:
        return self.letters.count("n")

    @property
    def seen(self) -> int:
        return self.letters.count("s")

    @property
    def refused(self) -> dict[str, int]:
        names = {"d": "depth", "h": "pages per host", "b": "blocked", "i": "not a URL"}
        return {names[letter]: count for letter, count in Counter(self.letters).items() if letter in names}
