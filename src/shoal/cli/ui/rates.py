"""Rates of a crawl from samples that are taken once per second. Pure: time is an argument."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shoal.fleet.totals import causes, seconds_left
from shoal.frontier.inspect import PendingHost
from shoal.model.crawl import Counts
from shoal.model.worker_report import WorkerReport

_NOW_SECONDS = 5.0
# The bottleneck and the remaining time use a longer window, so that they do not jump.
_LATELY_SECONDS = 30.0
_KEPT = 900
_KEPT_OF_WORKER = 12


class Sample(NamedTuple):
    """One sample: `stored` pages, `ended` and `open` visits, of the crawl, or of the workers if there is no crawl."""

    mono: float
    stored: int
    ended: int
    open: int
    total: WorkerReport


class Row(NamedTuple):
    """One worker. `waits` is the cause that took most of its recent time."""

    name: str
    pid: int
    pages: int
    rate: float
    hosts: int
    cpu: float
    waits: str


class Rates:
    def __init__(self, crawl: str = "", max_pages: int = 0) -> None:
        self._crawl = crawl
        self._max_pages = max_pages
        self._samples: deque[Sample] = deque(maxlen=_KEPT)
        self._first: Sample | None = None
        self._noted = 0
        self._workers: dict[str, deque[tuple[float, WorkerReport]]] = {}
        self.counts: Counts | None = None
        # Hosts that are ready, and hosts that are cooling down.
        self.hosts = (0, 0)
        # Hosts that the crawl waits for after failures, the longest wait first.
        self.pending: Sequence[PendingHost] = ()

    def note(
        self,
        now: float,
        total: WorkerReport,
        reports: Iterable[WorkerReport],
        counts: Counts | None,
        hosts: tuple[int, int] = (0, 0),
        pending: Sequence[PendingHost] = (),
    ) -> None:
        self.counts, self.hosts, self.pending = counts, hosts, pending
        sample = Sample(
            now, counts.stored if counts else total.pages, counts.ended if counts else total.pages,
            counts.open if counts else 0, total,
        )  # fmt: skip
        self._first = self._first or sample
        self._samples.append(sample)
        self._noted += 1
        known = self._workers
        self._workers = {}
        for report in reports:
            reports_of_worker = self._workers[report.worker] = known.get(report.worker) or deque(maxlen=_KEPT_OF_WORKER)
            reports_of_worker.append((now, report))

    @property
    def total(self) -> WorkerReport:
        return self._samples[-1].total if self._samples else WorkerReport()

    @property
    def open_hosts(self) -> int:
        """Hosts that workers hold. Reports may be half a second old; if a visit is leased, there is at least one."""
        leased = self.counts is not None and self.counts.leased > 0
        return max(self.total.open_hosts, int(leased))

    @property
    def stored(self) -> int:
        return self._samples[-1].stored if self._samples else 0

    def _since(self, seconds: float) -> tuple[Sample, Sample] | None:
        """Return the newest sample and the one that is `seconds` older, or the oldest one."""
        if len(self._samples) < 2:
            return None
        last = self._samples[-1]
        before = next(
            (sample for sample in reversed(self._samples) if last.mono - sample.mono >= seconds), self._samples[0]
        )
        return last, before

    def _rate(self, name: str, seconds: float) -> float:
        pair = self._since(seconds)
        if pair is None:
            return 0.0
        last, before = pair
        return float(max(0, getattr(last, name) - getattr(before, name)) / max(0.001, last.mono - before.mono))

    @property
    def rate(self) -> float:
        """Current pages per second."""
        return self._rate("stored", _NOW_SECONDS)

    @property
    def mean(self) -> float:
        """Mean pages per second since the first sample."""
        if self._first is None or len(self._samples) < 2:
            return 0.0
        last = self._samples[-1]
        return max(0, last.stored - self._first.stored) / max(0.001, last.mono - self._first.mono)

    @property
    def bytes_per_second(self) -> float:
        pair = self._since(_NOW_SECONDS)
        if pair is None:
            return 0.0
        last, before = pair
        return max(0, last.total.bytes - before.total.bytes) / max(0.001, last.mono - before.mono)

    def left(self, now: float) -> float | None:
        """Return the estimated seconds until the crawl ends (see `seconds_left`)."""
        if self.counts is None or not self._samples:
            return None
        seconds = seconds_left(
            open=self.counts.open,
            ended_per_second=self._rate("ended", _LATELY_SECONDS),
            ahead_seconds=self.total.ahead.get(self._crawl, 0.0),
            pages_left=max(0, self._max_pages - self.counts.stored) if self._max_pages else None,
            pages_per_second=self._rate("stored", _LATELY_SECONDS),
            pending_seconds=self.pending[0].seconds if self.pending else 0.0,
        )
        return None if seconds is None else max(0.0, seconds - (now - self._samples[-1].mono))

    @property
    def is_lower_bound(self) -> bool:
        """Whether the remaining time may grow: more URLs are found than end, or failing hosts may fail again."""
        return self.growing or bool(self.pending)

    @property
    def growing(self) -> bool:
        """Whether more URLs are found than end."""
        pair = self._since(_NOW_SECONDS)
        return pair is not None and pair[0].open > pair[1].open

    def limits(self) -> list[tuple[str, float]]:
        """Return the shares of the workers' recent time by cause, the largest first."""
        pair = self._since(_LATELY_SECONDS)
        return [] if pair is None else causes(pair[0].total, since=pair[1].total)

    def rates(self, columns: int) -> tuple[list[float], float]:
        """Return at most `columns` values of pages per second, the newest last, and the seconds of each value."""
        pairs = list(zip(self._samples, list(self._samples)[1:], strict=False))
        each = max(1, -(-len(pairs) // max(1, columns)))
        groups: dict[int, list[tuple[Sample, Sample]]] = {}
        for number, pair in enumerate(pairs, self._noted - len(pairs)):
            # Grouped by a fixed number, so that a column keeps its value while it moves.
            groups.setdefault(number // each, []).append(pair)
        values = [
            max(0, group[-1][1].stored - group[0][0].stored) / max(0.001, group[-1][1].mono - group[0][0].mono)
            for group in groups.values()
        ]
        passed = self._samples[-1].mono - self._samples[0].mono if pairs else 0.0
        return values[-columns:], passed / max(1, len(values))

    def workers(self) -> list[Row]:
        """Return the running workers in the order of their start."""
        rows = []
        for name, reports in self._workers.items():
            (first_mono, first), (last_mono, last) = reports[0], reports[-1]
            passed = last_mono - first_mono
            shares = causes(last, since=first if passed else None)
            waits = f"{shares[0][0]} {shares[0][1]:.0%}" if shares else ""
            waits = last.trouble or ("work" if last.idle else waits)
            # A process reports twice per second, by its own clock.
            alive = max(0.001, last.alive_seconds - first.alive_seconds)
            rate = max(0, last.pages - first.pages) / alive if passed else 0.0
            cpu = (last.cpu_seconds - first.cpu_seconds) / alive if passed else 0.0
            rows.append(Row(name, last.pid, last.pages, rate, last.open_hosts, min(cpu, 9.99), waits))
        return rows
