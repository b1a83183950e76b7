"""Every error Shoal raises on purpose, as one tree.

    ShoalError
    ├── SettingsError          a setting has a bad value or an unknown name
    ├── InvalidInput           what the caller passed cannot be meant; nothing was changed
    │   ├── InvalidUrl         a URL does not parse, is too long or has a scheme Shoal does not visit
    │   ├── InvalidVisit       a visit is too large or carries what cannot be stored
    │   └── InvalidLimit       a limit, delay, priority or name is outside its range
    ├── StoreError
    │   ├── StoreUnavailable   no answer from the store within the time allowed
    │   ├── StoreRefused       the store answers, but is not safe to use as it is set up
    │   ├── StoreFull          the store has no memory left for new URLs
    │   ├── StoreHeld          this shard takes no writes now (a slot is being moved, a new epoch begins)
    │   └── StoreCorrupt       an entry in the store is not something Shoal wrote
    ├── FetchError             no whole answer came; `fault` says of what kind, `reason` in a few words
    ├── SinkError
    │   ├── SinkRefused        an output cannot be used as it is: a wrong path, no permission, another table
    │   └── SinkUnavailable    an output cannot take records now
    └── CrawlError
        ├── UnknownCrawl       no crawl has this id
        ├── CrawlExists        the id belongs to another crawl, perhaps one that has ended
        ├── CrawlEnded         the crawl takes no more URLs
        └── LeaseLost          the lease is over; somebody else may hold its host

The message is one sentence for a person: what is wrong, where, and what to do.
"""

from __future__ import annotations


class ShoalError(Exception):
    """The root: `except ShoalError` catches what Shoal raises on purpose."""


class SettingsError(ShoalError):
    pass


class InvalidInput(ShoalError):
    pass


class InvalidUrl(InvalidInput):
    pass


class InvalidVisit(InvalidInput):
    pass


class InvalidLimit(InvalidInput):
    pass


class StoreError(ShoalError):
    pass


class StoreUnavailable(StoreError):
    pass


class StoreRefused(StoreError):
    pass


class StoreFull(StoreError):
    pass


class StoreHeld(StoreError):
    pass


class StoreCorrupt(StoreError):
    pass


class FetchError(ShoalError):
    """`fault` is a value of shoal.politeness.backoff.Fault; `reason` is short and of few kinds: it is counted."""

    def __init__(self, message: str, *, fault: str, reason: str = "") -> None:
        super().__init__(message)
        self.fault = fault
        self.reason = reason or fault


class SinkError(ShoalError):
    pass


class SinkRefused(SinkError):
    pass


class SinkUnavailable(SinkError):
    pass


class CrawlError(ShoalError):
    pass


class UnknownCrawl(CrawlError):
    pass


class CrawlExists(CrawlError):
    pass


class CrawlEnded(CrawlError):
    pass


class LeaseLost(CrawlError):
    pass
