"""The reports of all workers as one, those of dead processes too; and the time that they will still take."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.model.worker_report import WorkerReport

# What a process had when it ended is not had any more.
_NOW = ("open_hosts", "backing_off")
# What the waiting is called for people, and in which count of a report it is.
CAUSES = {
    "politeness": "politeness_seconds",
    "the network": "network_seconds",
    "CPU": "cpu_seconds",
    "the output": "sink_seconds",
    "the store": "store_seconds",
}


class Totals:
    """Sums over processes. Counts of a process that has ended are kept; what it had open is not."""

    def __init__(self) -> None:
        self._ended: list[WorkerReport] = [WorkerReport()]

    def keep(self, report: WorkerReport | None) -> None:
        """The last report of a process that has ended."""
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
    """What the workers' time went to, as shares of it, the largest first; of the time after the report `since`."""
    before = since or WorkerReport()
    seconds = {name: getattr(total, field) - getattr(before, field) for name, field in CAUSES.items()}
    whole = max(total.alive_seconds - before.alive_seconds, sum(seconds.values()))
    return sorted(((name, part / whole) for name, part in seconds.items() if part > 0), key=lambda one: -one[1])


def seconds_left(
    *,
    open: int,
    ended_a_second: float,
    ahead_seconds: float,
    pages_left: int | None = None,
    pages_a_second: float = 0.0,
) -> float | None:
    """The time a crawl still takes: until its slowest host is done, or until all is done at the present pace.

    A host is asked as fast as its delay allows, so that the longest queue decides however many workers there are
    (`ahead_seconds`, by `Report.ahead`); where the workers are the limit, what is open divided by what ends does.
    `pages_left` is what a limit on pages still allows. None: nothing is known yet.

    What it does not know: links that will still be found, so that a crawl that grows takes longer; hosts that nobody
    has leased yet, or not since much was found on them; how long back-off will last; queues that only workers of other
    machines meet, until one of this machine's has the host.
    """
    if not open:
        return 0.0
    known = [open / ended_a_second] if ended_a_second > 0 else []
    if ahead_seconds > 0:
        known.append(ahead_seconds)
    if not known:
        return None
    left = max(known)
    if pages_left is not None and pages_a_second > 0:
        left = min(left, pages_left / pages_a_second)
    return left
