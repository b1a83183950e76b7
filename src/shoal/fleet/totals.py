"""The reports of all workers as one, those of dead processes too."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.worker.report import Report

_NOW = ("open_hosts",)
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
        self._ended: list[Report] = [Report()]

    def keep(self, report: Report | None) -> None:
        """The last report of a process that has ended."""
        if report is not None:
            self._ended = [added([*self._ended, report], living=())]

    def of(self, living: Iterable[Report]) -> Report:
        living = list(living)
        return added([*self._ended, *living], living=living)


def added(reports: Iterable[Report], *, living: Iterable[Report]) -> Report:
    total = Report()
    for report in reports:
        for name in total.__struct_fields__:
            value, so_far = getattr(report, name), getattr(total, name)
            if isinstance(value, dict):
                merged = {key: so_far.get(key, 0) + value.get(key, 0) for key in {**so_far, **value}}
                setattr(total, name, merged)
            elif isinstance(value, (int, float)) and not isinstance(value, bool) and name not in ("pid", *_NOW):
                setattr(total, name, so_far + value)
    living = list(living)
    total.open_hosts = sum(report.open_hosts for report in living)
    total.idle = bool(living) and all(report.idle for report in living)
    total.trouble = next((report.trouble for report in living if report.trouble), "")
    return total


def causes(total: Report) -> list[tuple[str, float]]:
    """What the workers' time went to, as shares of it, the largest first."""
    seconds = {name: getattr(total, field) for name, field in CAUSES.items()}
    whole = max(total.alive_seconds, sum(seconds.values()))
    return sorted(((name, part / whole) for name, part in seconds.items() if part > 0), key=lambda one: -one[1])
