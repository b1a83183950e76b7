"""A worker's estimate of the remaining time: which host of each crawl takes longest, which hosts are paused.

Each lease carries how long the host's queue takes at its pace (`Lease.ahead_seconds`). For each crawl the slowest host
is remembered, with the time at which it will be done. The numbers are for display: no decision depends on them.
"""

from __future__ import annotations

from shoal.model.lease import Lease
from shoal.model.worker_report import WorkerReport

_MOST_HOSTS = 10_000


class Eta:
    """Times are values of `shoal.frontier.mono`, passed in."""

    def __init__(self) -> None:
        # By crawl: when its slowest host is done, and which host that is.
        self._longest: dict[str, tuple[float, str]] = {}
        # Paused hosts, and until when.
        self._backing_off: dict[str, float] = {}

    def note(self, lease: Lease, now: float) -> None:
        """A lease was granted or topped up: its host may now be the slowest, or no longer be the slowest."""
        done = now + lease.ahead_seconds
        for crawl in {visit.crawl for visit in lease.visits}:
            longest, host = self._longest.get(crawl, (0.0, ""))
            if lease.ahead_seconds and (done > longest or host == lease.host):
                self._longest[crawl] = (done, lease.host)

    def backs_off(self, host: str, until: float) -> None:
        """The host is paused because it failed."""
        if len(self._backing_off) < _MOST_HOSTS:
            self._backing_off[host] = until

    def gone(self, host: str) -> None:
        """The host was given up, with the visits that waited for it."""
        self._longest = {crawl: entry for crawl, entry in self._longest.items() if entry[1] != host}
        self._backing_off.pop(host, None)

    def fill(self, report: WorkerReport, now: float) -> None:
        self._longest = {crawl: entry for crawl, entry in self._longest.items() if entry[0] > now}
        self._backing_off = {host: until for host, until in self._backing_off.items() if until > now}
        report.ahead = {crawl: round(done - now, 3) for crawl, (done, _) in self._longest.items()}
        report.backing_off = len(self._backing_off)
