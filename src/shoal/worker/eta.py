"""What a worker knows of the time that is still needed: which host of a crawl takes longest, which hosts are at rest.

The store says with each lease how long the host's visits take at its pace (`Lease.ahead_seconds`). One host a crawl is
kept, as the moment it will be done; it comes nearer by itself while nothing new is heard. Counts for people: nothing is
decided by them.
"""

from __future__ import annotations

from shoal.model.lease import Lease
from shoal.model.worker_report import WorkerReport

_MOST = 10_000


class Eta:
    """Times are those of `shoal.frontier.mono`, passed in."""

    def __init__(self) -> None:
        # By crawl: when the host that takes longest is done, and which it is.
        self._longest: dict[str, tuple[float, str]] = {}
        # Hosts that back off, and until when.
        self._resting: dict[str, float] = {}

    def note(self, lease: Lease, now: float) -> None:
        """A lease was given or topped up: its host may be the longest, or be it no more."""
        done = now + lease.ahead_seconds
        for crawl in {visit.crawl for visit in lease.visits}:
            longest, host = self._longest.get(crawl, (0.0, ""))
            if lease.ahead_seconds and (done > longest or host == lease.host):
                self._longest[crawl] = (done, lease.host)

    def rests(self, host: str, until: float) -> None:
        """The host is left alone for a while, because of how it answers."""
        if len(self._resting) < _MOST:
            self._resting[host] = until

    def gone(self, host: str) -> None:
        """What waited for the host was set aside."""
        self._longest = {crawl: one for crawl, one in self._longest.items() if one[1] != host}
        self._resting.pop(host, None)

    def tell(self, report: WorkerReport, now: float) -> None:
        self._longest = {crawl: one for crawl, one in self._longest.items() if one[0] > now}
        self._resting = {host: until for host, until in self._resting.items() if until > now}
        report.ahead = {crawl: round(done - now, 3) for crawl, (done, _) in self._longest.items()}
        report.backing_off = len(self._resting)
