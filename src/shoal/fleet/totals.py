"""The sum of all workers' reports, including dead processes, and the estimate of the remaining time."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.model.worker_report import WorkerReport

# Current values, which end with their process.
_NOW = ("open_hosts", "backing_off")
# What workers spend their time on: the name for people, and the field of a report.
CAUSES = {
    "politeness": "politeness_seconds",
    "the network": "network_seconds",
    "CPU": "cpu_seconds",
    "the output": "sink_seconds",
    "the store": "store_seconds",
}


class ReportTotals:
    """Sums over processes. Counters of a process that has ended stay in the sum; its current values do not."""

    def __init__(self) -> None:
        self._ended: list[WorkerReport] = [WorkerReport()]

    def keep(self, report: WorkerReport | None) -> None:
        """Add the last report of a process that has ended."""
        if report is not None:
            self._ended = [added([*self._ended, report], living=())]

    def of(self, living: Iterable[WorkerReport]) -> WorkerReport:
        living = list(living)
        return added([*self._ended, *living], living=living)


def added(reports: Iterable[WorkerReport], *, living: Iterable[WorkerReport]) -> WorkerReport:
    total = WorkerReport()
    for report in reports:
        for name in total.__struct_fields__:
            value, so_far = getattr(report, name), getattr(total, name)
            if isinstance(value, dict) and name != "ahead":
                merged = {key: so_far.get(key, 0) + value.get(key, 0) for key in {**so_far, **value}}
                setattr(total, name, merged)
            elif isinstance(value, (int, float)) and not isinstance(value, bool) and name not in ("pid", *_NOW):
                setattr(total, name, so_far + value)
    living = list(living)
    for name in _NOW:
        setattr(total, name, sum(getattr(report, name) for report in living))
    for report in living:
        total.ahead |= {crawl: max(s, total.ahead.get(crawl, 0.0)) for crawl, s in report.ahead.items()}
    total.idle = bool(living) and all(report.idle for report in living)
    total.trouble = next((report.trouble for report in living if report.trouble), "")
    return total


def causes(total: WorkerReport, since: WorkerReport | None = None) -> list[tuple[str, float]]:
    """The shares of the workers' time by cause, the largest first; of the time after the report `since`."""
    before = since or WorkerReport()
    seconds = {name: getattr(total, field) - getattr(before, field) for name, field in CAUSES.items()}
    whole = max(total.alive_seconds - before.alive_seconds, sum(seconds.values()))
    return sorted(((name, part / whole) for name, part in seconds.items() if part > 0), key=lambda share: -share[1])


def seconds_left(
    *,
    open: int,
    ended_per_second: float,
    ahead_seconds: float,
    pages_left: int | None = None,
    pages_per_second: float = 0.0,
    pending_seconds: float = 0.0,
) -> float | None:
    """Estimate the remaining time of a crawl: until its slowest host is done, or until all is done at this pace.

    A host is requested as fast as its delay allows, so the longest queue decides, however many workers there are
    (`ahead_seconds`, from `WorkerReport.ahead`). If the workers are the limit, the estimate is the number of open
    visits divided by the number that finish per second. `pages_left` is the number of pages that a limit still allows.
    `pending_seconds` is the longest wait for a host or URL that failed. None: nothing is known yet.

    The estimate does not know links that are still to be found, hosts that were not leased since their queue grew,
    failures to come, and queues of hosts that only workers of other machines have leased.
    """
    if not open:
        return 0.0
    known = [open / ended_per_second] if ended_per_second > 0 else []
    if ahead_seconds > 0:
        known.append(ahead_seconds)
    if pending_seconds > 0:
        known.append(pending_seconds)
    if not known:
        return None
    left = max(known)
    if pages_left is not None and pages_per_second > 0:
        left = min(left, pages_left / pages_per_second)
    return left
