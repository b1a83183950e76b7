"""Every error that Shoal raises deliberately, as one tree.

    ShoalError
    ├── SettingsError             a setting has an invalid value or an unknown name
    ├── InvalidInput              the caller passed an invalid value; nothing was changed
    │   ├── InvalidUrl            a URL does not parse, is too long or has an unsupported scheme
    │   ├── InvalidVisit          a visit is too large or carries data that cannot be stored
    │   └── InvalidLimit          a limit, delay, priority or name is outside its range
    ├── StoreError
    │   ├── StoreNotReady         the same call may succeed later
    │   │   ├── StoreUnavailable  the store did not respond within the timeout
    │   │   └── StoreHeld         a shard accepts no writes for now: its slot is being moved, or a new epoch starts
    │   ├── StoreRefused          the store responds, but its configuration is not safe
    │   ├── StoreFull             the store has no memory left for new URLs
    │   └── StoreCorrupt          an entry in the store is invalid: Shoal did not write it
    ├── FetchError                no complete response; `fault` is its kind, `reason` a short text
    ├── SinkError
    │   ├── SinkRefused           an output cannot be used: wrong path, no permission, a foreign table
    │   └── SinkUnavailable       an output is temporarily unavailable
    └── CrawlError
        ├── UnknownCrawl          no crawl has this id
        ├── CrawlExists           the id belongs to another crawl, perhaps one that has ended
        ├── CrawlEnded            the crawl accepts no more URLs
        └── LeaseLost             the lease has expired; another worker may hold its host

The message is one sentence for a person: what is wrong, where, and what to do.
"""

from __future__ import annotations


class ShoalError(Exception):
    """Base class of all errors that Shoal raises deliberately."""


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


class StoreNotReady(StoreError):
    pass


class StoreUnavailable(StoreNotReady):
    pass


class StoreHeld(StoreNotReady):
    pass


class StoreRefused(StoreError):
    pass


class StoreFull(StoreError):
    pass


class StoreCorrupt(StoreError):
    pass


class FetchError(ShoalError):
    """`fault` is a value of shoal.politeness.backoff.Fault; `reason` is one of a few short texts: it is counted."""

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
