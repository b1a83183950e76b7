"""What a response or fault means for its visit, and the result of a visit on its way to the outputs and the store.

The table below decides what happens to the URL. The pause of a failing host is `politeness.backoff`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from shoal.frontier.signals import Signal, SignalKind
from shoal.leases.held_lease import HeldLease
from shoal.model.record import Capture, Item, Record
from shoal.model.response import Response
from shoal.model.visit import Outcome, OutcomeCode, Visit
from shoal.model.worker_report import WorkerReport
from shoal.politeness.backoff import Fault
from shoal.politeness.robots_policy import REDIRECTS
from shoal.sinks.contract import Stored
from shoal.worker.crawl_context import CrawlContext

# A longer chain of redirects fails with a named reason; browsers allow 20.
MAX_HOPS = 20


class Action(Enum):
    STORE = "store"
    CONFIRM = "confirm"
    """304: the stored record is still valid."""
    REDIRECT = "redirect"
    RETRY = "retry"
    """Try again later; the visit fails when its retries are used up."""
    FAIL = "fail"


class Decision(NamedTuple):
    """What happens to a URL.

    host_failures  how many failures in a row give the host up, where that is not the setting's value
    blames_host    it counts as a failure of the host, which is then paused
    """

    action: Action
    reason: str = ""
    host_failures: int | None = None
    blames_host: bool = True


class LinksRefused(Enum):
    """Why the links of a page could not be added."""

    FULL = "the store is full"
    LIMIT = "the crawl has reached a limit"


class FetchResult(NamedTuple):
    """What one request returned.

    cause            the status, or the fault if there is no response
    started_at       seconds since 1970
    request_headers  for the archive
    cookies_changed  the response has changed the cookies of the crawl
    """

    cause: int | Fault
    decision: Decision
    response: Response | None
    started_at: float
    request_headers: tuple[tuple[str, str], ...] = ()
    cookies_changed: bool = False


class PageSignals(NamedTuple):
    """What a sitemap or feed says about other pages."""

    kind: SignalKind
    signals: list[Signal]


class VisitResult(NamedTuple):
    """One finished visit.

    visits   links, redirects and sitemaps to add
    context  the crawl; None if nothing is stored
    size     bytes of the items and of the data that `visits` carry
    change   the row in the output of changes, if a perpetual crawl found one
    signals  pages that may have changed, by a sitemap or feed of a perpetual crawl
    version  the text of a page that has changed, for the output of changes
    missed   why a perpetual crawl, which visits the URL again, found no page
    """

    lease: HeldLease
    visit: Visit
    outcome: Outcome
    record: Record | None = None
    visits: Sequence[Visit] = ()
    context: CrawlContext | None = None
    items: tuple[Item, ...] = ()
    capture: Capture | None = None
    size: int = 0
    change: Item | None = None
    missed: str = ""
    signals: PageSignals | None = None
    version: Item | None = None

    @property
    def stored(self) -> Iterator[Stored]:
        """Everything that outputs may store."""
        if self.record is not None:
            yield self.record
        yield from self.items
        if self.capture is not None:
            yield self.capture

    @property
    def weight(self) -> int:
        """The approximate memory that it needs until it is delivered."""
        weight = 200 * len(self.visits) + (0 if self.record is None else len(self.record.text))
        if self.version is not None and self.record is not None:
            weight += 2 * len(self.record.text)
        return weight + 500 * len(self.items) + self.size + (0 if self.capture is None else len(self.capture.page.body))


def count_result(report: WorkerReport, result: VisitResult) -> None:
    """Count an acknowledged visit in its worker's report."""
    outcome, record = result.outcome, result.record
    report.items += len(result.items)
    if result.visit.is_revisit and record is not None:
        unchanged = record.status == 304 or (result.visit.history is not None and result.change is None)
        change = "gone" if record.error else "unchanged" if unchanged else "changed"
        report.revisited[change] = report.revisited.get(change, 0) + 1
    if result.missed:
        report.failed[result.missed] = report.failed.get(result.missed, 0) + 1
        return
    if outcome.code is OutcomeCode.STORED:
        report.pages += 1
    elif outcome.code is OutcomeCode.FAILED:
        report.failed[outcome.reason] = report.failed.get(outcome.reason, 0) + 1
    elif outcome.code is OutcomeCode.EXCLUDED:
        report.excluded[outcome.reason] = report.excluded.get(outcome.reason, 0) + 1


# A name that does not resolve and an invalid certificate rarely recover within an hour.
_FEW_FAILURES = 3
_FAULTS = {
    Fault.UNKNOWN_HOST: Decision(Action.RETRY, host_failures=_FEW_FAILURES),
    Fault.UNRESOLVED: Decision(Action.RETRY, host_failures=_FEW_FAILURES),
    Fault.REFUSED: Decision(Action.RETRY),
    Fault.RESET: Decision(Action.RETRY),
    Fault.TLS: Decision(Action.FAIL, host_failures=_FEW_FAILURES),
    Fault.TIMED_OUT: Decision(Action.RETRY),
    Fault.TRUNCATED: Decision(Action.RETRY),
    Fault.MALFORMED: Decision(Action.RETRY),
    Fault.FORBIDDEN_ADDRESS: Decision(Action.FAIL),
    Fault.TOO_LARGE: Decision(Action.FAIL),
}
# The server closed a kept-alive connection while the request was being sent. The next request opens a new one.
_LOST_CONNECTION = "lost connection"


def decide_fault(fault: Fault, reason: str) -> Decision:
    if reason == _LOST_CONNECTION:
        return Decision(Action.RETRY, reason, blames_host=False)
    return _FAULTS.get(fault, Decision(Action.FAIL))._replace(reason=reason)


def host_failures_without_robots(cause: int | Fault) -> int | None:
    """How many failures to fetch robots.txt in a row give its host up, where that is not the setting's value."""
    if cause is Fault.FORBIDDEN_ADDRESS:
        # This never changes: the visits that wait for the host fail now.
        return 1
    return decide_fault(cause, "").host_failures if isinstance(cause, Fault) else None


def decide_status(status: int, *, conditional: bool, location: bool) -> Decision:
    """`conditional`: the request carried a validator; `location`: the response has a Location header."""
    if 200 <= status <= 299:
        return Decision(Action.STORE)
    if status == 304 and conditional:
        return Decision(Action.CONFIRM)
    if status in REDIRECTS:
        return Decision(Action.REDIRECT) if location else Decision(Action.FAIL, "redirect without location")
    reason = f"status {status}"
    # 408 and 425 invite a retry; 429 and 5xx are about the state of the host, not about the URL.
    retry = status in (408, 425, 429) or 500 <= status <= 599
    return Decision(Action.RETRY if retry else Action.FAIL, reason)
