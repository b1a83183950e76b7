"""A visit that has come to its end, on its way to the outputs and the store.

What an answer means for its visit: the one table of it.

Failures of the host (its pause, and when it is set aside) are politeness.backoff's; here is what becomes of the URL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from shoal.model.record import Capture, Item, Record
from shoal.model.visit import Outcome, Visit
from shoal.politeness.backoff import Fault
from shoal.sinks.contract import Stored
from shoal.worker.crawl_context import CrawlContext
from shoal.worker.hold import Hold


class VisitResult(NamedTuple):
    """One visit that has come to its end."""

    hold: Hold
    visit: Visit
    outcome: Outcome
    record: Record | None = None
    visits: Sequence[Visit] = ()
    conduct: CrawlContext | None = None
    items: tuple[Item, ...] = ()
    capture: Capture | None = None
    # Of the items, and of the data that visits carry.
    size: int = 0

    @property
    def stored(self) -> Iterator[Stored]:
        """Everything that outputs may want of it."""
        if self.record is not None:
            yield self.record
        yield from self.items
        if self.capture is not None:
            yield self.capture

    @property
    def weight(self) -> int:
        """What it takes of memory until it is delivered, about."""
        weight = 200 * len(self.visits) + (0 if self.record is None else len(self.record.text))
        return weight + 500 * len(self.items) + self.size + (0 if self.capture is None else len(self.capture.page.body))


REDIRECTS = frozenset((301, 302, 303, 307, 308))
# Chains longer than this end with a named reason; browsers allow 20.
MAX_HOPS = 20


class Do(Enum):
    STORE = "store"
    CONFIRM = "confirm"
    """304: what is stored still holds."""
    REDIRECT = "redirect"
    RETRY = "retry"
    """Again, after the host's pause; when its tries are used up it fails."""
    FAIL = "fail"


class Verdict(NamedTuple):
    do: Do
    reason: str = ""
    # How many failures in a row set the host aside, where that is not the setting's business.
    host_failures: int | None = None
    # A failure of the host: it is left alone for a while.
    blames_host: bool = True


# A name that does not resolve or a certificate that is wrong does not mend itself within the hour.
_SOON = 3
_FAULTS = {
    Fault.UNRESOLVED: Verdict(Do.RETRY, host_failures=_SOON),
    Fault.REFUSED: Verdict(Do.RETRY),
    Fault.RESET: Verdict(Do.RETRY),
    Fault.TLS: Verdict(Do.FAIL, host_failures=_SOON),
    Fault.TIMED_OUT: Verdict(Do.RETRY),
    Fault.TRUNCATED: Verdict(Do.RETRY),
    Fault.MALFORMED: Verdict(Do.RETRY),
    Fault.FORBIDDEN_ADDRESS: Verdict(Do.FAIL),
    Fault.TOO_LARGE: Verdict(Do.FAIL),
}


# A kept connection that was closed while we wrote: nobody's fault, and the next request opens another.
_LOST_CONNECTION = "lost connection"


def of_fault(fault: Fault, reason: str) -> Verdict:
    if reason == _LOST_CONNECTION:
        return Verdict(Do.RETRY, reason, blames_host=False)
    return _FAULTS.get(fault, Verdict(Do.FAIL))._replace(reason=reason)


def of_status(status: int, *, conditional: bool, location: bool) -> Verdict:
    """`conditional`: the request named what we have; `location`: the answer says where to go."""
    if 200 <= status <= 299:
        return Verdict(Do.STORE)
    if status == 304 and conditional:
        return Verdict(Do.CONFIRM)
    if status in REDIRECTS:
        return Verdict(Do.REDIRECT) if location else Verdict(Do.FAIL, "redirect without location")
    reason = f"status {status}"
    # 408 and 425 ask to try again; 429 and 5xx are about the host's state, not about the URL.
    return Verdict(Do.RETRY if status in (408, 425, 429) or 500 <= status <= 599 else Do.FAIL, reason)
