"""A visit: one URL to fetch in one crawl, what Shoal notes on it, and its outcome."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Any

import msgspec

from shoal.model.page_history import PageHistory
from shoal.model.record import record_url
from shoal.model.validation import WIDEST

# Callers may store their own data in the same dict, so this is a name that they do not use.
_VARIANT = "shoal.variant"
FOUND = ("link", "seed", "redirect", "sitemap", "revisit", "spider", "feed", "other")


def pass_variant(number: int) -> str:
    """The variant of a visit that a spider's crawl makes once in the pass of this number; '' for no pass."""
    return f"pass {number}" if number else ""


class OutcomeCode(StrEnum):
    """How a visit ended; the value is the letter that scripts use."""

    STORED = "s"
    FAILED = "f"
    EXCLUDED = "x"
    RETRY = "r"


class AddResult(StrEnum):
    """The result of adding one visit; the value is the letter that scripts use."""

    NEW = "n"
    SEEN = "s"
    TOO_DEEP = "d"
    HOST_FULL = "h"
    DEPTH_FULL = "l"
    BLOCKED = "b"
    INVALID = "i"

    @property
    def in_crawl(self) -> bool:
        """The crawl has the URL: it was added now or before."""
        return self is AddResult.NEW or self is AddResult.SEEN


_RESULTS = {result.value: result for result in AddResult}
_REFUSED = {
    AddResult.TOO_DEEP: "depth",
    AddResult.HOST_FULL: "pages per host",
    AddResult.DEPTH_FULL: "URLs per depth",
    AddResult.BLOCKED: "blocked",
    AddResult.INVALID: "not a URL",
}


class VisitMeta(msgspec.Struct, frozen=True, kw_only=True, rename={"pass_number": "pass", "variant": _VARIANT}):
    """Shoal's own notes on a visit. They are stored in `Visit.meta`, beside the caller's data."""

    # The pass of a revisit, counted from 1; 0 for other visits.
    pass_number: int = 0
    # A seed led here, perhaps by redirects or as a revisit.
    seed: bool = False
    # A sitemap, and how many sitemap indexes led to it; None for other visits.
    sitemap: int | None = None
    # The usual URL of a sitemap, which was not found anywhere.
    guess: bool = False
    # The redirects that led here: URL and status.
    chain: tuple[tuple[str, int], ...] = ()
    # Requeued under its IP address.
    address: bool = False
    # The robots.txt that this visit fetches for another host.
    robots: dict[str, Any] | None = None
    # The method of the spider that gets the page, and the data it gets with it.
    callback: str = ""
    data: dict[str, Any] = {}
    # Cookies that the spider sends with this request.
    cookies: dict[str, str] = {}
    # Distinguishes this visit from others with the same request: it is made although the crawl has made one before.
    variant: str = ""

    @classmethod
    def of(cls, meta: dict[str, Any]) -> VisitMeta:
        """Read the notes in `meta`. It comes from the store or a caller: an invalid value counts as absent."""
        if not meta:
            return _NO_META
        number, sitemap, robots = meta.get("pass"), meta.get("sitemap"), meta.get("robots")
        if "sitemap" in meta and not isinstance(sitemap, int):
            sitemap = WIDEST
        chain = meta.get("chain")
        pairs = chain if isinstance(chain, list | tuple) else ()
        data = meta.get("data")
        return cls(
            pass_number=number if isinstance(number, int) else 0,
            seed=bool(meta.get("seed")),
            sitemap=sitemap,
            guess=bool(meta.get("guess")),
            chain=tuple((pair[0], pair[1]) for pair in pairs if _is_hop(pair)),
            address=bool(meta.get("address")),
            robots=robots if isinstance(robots, dict) else None,
            callback=str(meta.get("callback") or ""),
            data=data if isinstance(data, dict) else {},
            cookies=_texts(meta.get("cookies")),
            variant=str(meta.get(_VARIANT) or ""),
        )

    def pack(self) -> dict[str, Any]:
        """The notes as `Visit.meta` holds them, without defaults."""
        return {
            stored: value
            for name, stored in zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True)
            if (value := getattr(self, name)) != getattr(_NO_META, name)
        }


def _is_hop(pair: object) -> bool:
    return isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], int)


def _texts(value: object) -> dict[str, str]:
    """The pairs of text in a dict."""
    if not isinstance(value, dict):
        return {}
    return {name: text for name, text in value.items() if isinstance(name, str) and isinstance(text, str)}


_NO_META = VisitMeta()


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """A URL to fetch. Only `url` is required."""

    url: str
    depth: int = 0
    priority: int = 0
    found: str = "link"
    method: str = "GET"
    headers: dict[str, str] = {}
    body: bytes = b""
    # The caller's own data, and Shoal's notes (`notes`).
    meta: dict[str, Any] = {}
    # The host whose rate limit applies, if it is not the URL's own: an IP address that many names share.
    host: str = ""
    # The following fields are set on a visit that comes from a lease.
    crawl: str = ""
    number: int = 0
    # How often it was retried, how many leases expired on it, and how many workers died while parsing it.
    retries: int = 0
    expiries: int = 0
    blames: int = 0
    # The history of a page of a perpetual crawl that was visited before.
    history: PageHistory | None = None

    @property
    def is_revisit(self) -> bool:
        """The page was stored before, in this crawl."""
        return self.history is not None or self.found == "revisit"

    @property
    def notes(self) -> VisitMeta:
        """Shoal's notes in `meta`, typed."""
        return VisitMeta.of(self.meta)

    @property
    def is_plain(self) -> bool:
        """A GET that the crawl makes once: its URL alone identifies it."""
        return self.method == "GET" and not self.body and _VARIANT not in self.meta

    @property
    def record_url(self) -> str:
        """The URL of its record."""
        return record_url(self.url, self.method, self.body)

    @property
    def identity(self) -> str:
        """The key for deduplication within a process."""
        return self.url if self.is_plain else f"{self.record_url} {self.notes.variant}"

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1, including attempts that ended in a crash."""
        return 1 + self.retries + self.expiries + self.blames

    @property
    def abandoned(self) -> bool:
        """An earlier worker may have fetched it, and died before it could acknowledge it."""
        return bool(self.expiries or self.blames)

    def stored(self, *, revisit_seconds: float = 0.0) -> Outcome:
        """Its record is in every output. With `revisit_seconds` it is visited again after that time."""
        return Outcome(self.number, OutcomeCode.STORED, "", revisit_seconds)

    def scheduled(self, history: PageHistory, after_seconds: float) -> Outcome:
        """Its record is in every output, and its page is visited again after this time. For perpetual crawls."""
        return Outcome(self.number, OutcomeCode.STORED, "", after_seconds, history.pack())

    def failed(self, reason: str) -> Outcome:
        """It is not retried automatically; `crawls.retry` adds it again."""
        return Outcome(self.number, OutcomeCode.FAILED, reason, 0.0)

    def excluded(self, reason: str) -> Outcome:
        """It must not be fetched, e.g. because of robots.txt, the scope or a limit."""
        return Outcome(self.number, OutcomeCode.EXCLUDED, reason, 0.0)

    def retry(self, after_seconds: float) -> Outcome:
        """It is retried after this time at the earliest."""
        return Outcome(self.number, OutcomeCode.RETRY, "", after_seconds)


class Outcome(msgspec.Struct, frozen=True):
    """How one visit of a lease ended; made by the methods of Visit."""

    number: int
    code: OutcomeCode
    reason: str
    # Seconds until a retry or a revisit; 0 for none.
    seconds: float
    # The new page history in a perpetual crawl, packed; b"" in other crawls.
    history: bytes = b""


class Added(msgspec.Struct, frozen=True):
    """The result of adding visits: one letter of `AddResult` for each, in order."""

    letters: str

    @property
    def results(self) -> list[AddResult]:
        return [_RESULTS[letter] for letter in self.letters]

    @property
    def new(self) -> int:
        return self.letters.count(AddResult.NEW)

    @property
    def seen(self) -> int:
        return self.letters.count(AddResult.SEEN)

    @property
    def refused(self) -> dict[str, int]:
        """How many were refused, by reason."""
        counts = Counter(self.letters)
        return {reason: counts[result] for result, reason in _REFUSED.items() if counts[result]}
