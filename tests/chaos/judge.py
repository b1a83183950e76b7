"""Reads the requests, the sink and the leases of a crawl, and reports every violation."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.notes import read
from tests.chaos.site import Site

# How much too soon a request may seem to come. The frontier counts in whole milliseconds and rounds some of them down
# (test_corners.py shows it); with that mended, 2e-6 holds: moments are noted to the microsecond.
COARSE_SECONDS = 2e-6


@dataclass(frozen=True)
class Request:
    host: str
    worker: str
    url: str
    start: float
    end: float


class Judge:
    def __init__(self, log: Path, sink: Path, site: Site) -> None:
        self.site = site
        self.events = list(read(log))
        self.recorded = Counter(line[2] for line in read(sink))
        self.requests = self._requests()

    def _requests(self) -> list[Request]:
        """A request that its worker did not live to end is over when the worker is dead."""
        requests = []
        open_: dict[tuple[str, str], tuple[str, float]] = {}
        for kind, moment, worker, *words in self.events:
            if kind == "start":
                open_[worker, words[0]] = words[1], float(moment)
            elif kind == "end":
                url, start = open_.pop((worker, words[0]))
                requests.append(Request(words[0], worker, url, start, float(moment)))
            elif kind == "dead":
                for dead, host in [key for key in open_ if key[0] == worker]:
                    url, start = open_.pop((dead, host))
                    requests.append(Request(host, worker, url, start, float(moment)))
        assert not open_, f"requests without an end: {open_}"
        return requests

    def impolite(self, delay_seconds: float) -> list[str]:
        """Where two requests to a host were open at once (I1), or came too soon after each other (I2)."""
        by_host: dict[str, list[Request]] = defaultdict(list)
        for request in sorted(self.requests, key=lambda each: each.start):
            by_host[request.host].append(request)
        wrong = []
        for host, requests in by_host.items():
            last = requests[0]
            for request in requests[1:]:
                gap = request.start - last.end
                if gap < delay_seconds - COARSE_SECONDS:
                    what = "overlap" if gap < 0 else "short gap"
                    wrong.append(f"{what} on {host}: {gap * 1000:.3f} ms from {last} to {request}")
                last = max(last, request, key=lambda each: each.end)
        return wrong

    def missing(self) -> set[str]:
        """Pages of the walk that have no record (I4)."""
        return self.site.walk() - set(self.recorded)

    def strange(self) -> set[str]:
        return set(self.recorded) - self.site.walk()

    @property
    def extra_requests(self) -> int:
        return len(self.requests) - len({request.url for request in self.requests})

    def count(self, kind: str) -> int:
        return sum(event[0] == kind for event in self.events)

    def tokens_given_twice(self) -> list[str]:
        tokens = Counter(event[4] for event in self.events if event[0] == "lease")
        return [token for token, times in tokens.items() if times > 1]
