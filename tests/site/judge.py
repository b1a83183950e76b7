"""Reads the site's log and reports violations of a crawl. Every method returns sentences; an empty list is good."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

from tests.site.log import Request


class Judge:
    """The verdict on requests, by host: a name and a port."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self.requests = sorted(requests, key=lambda request: request.began)
        self.by_host: dict[str, list[Request]] = defaultdict(list)
        for request in self.requests:
            self.by_host[request.host].append(request)

    def crowded(self, places: int = 1) -> list[str]:
        """I1: where more requests to a host were open at once than it has places."""
        wrong = []
        for host, requests in self.by_host.items():
            open_: list[Request] = []
            for request in requests:
                open_ = [*(other for other in open_ if other.ended > request.began), request]
                if len(open_) > places:
                    wrong.append(f"overlap on {host}: {'; '.join(map(str, open_))}")
        return wrong

    def hasty(self, delay_seconds: float | Mapping[str, float]) -> list[str]:
        """I2: where a request began sooner than the delay after the one before had ended."""
        wrong = []
        for host, requests in self.by_host.items():
            delay = delay_seconds if isinstance(delay_seconds, float | int) else delay_seconds.get(host, 0.0)
            for gap, last, request in _gaps(requests):
                # Moments are noted to the microsecond.
                if gap < delay - 2e-6:
                    wrong.append(f"{gap * 1000:.3f} ms instead of {delay * 1000:.0f} on {host}: {last} then {request}")
        return wrong

    def impolite(self, delay_seconds: float | Mapping[str, float]) -> list[str]:
        """I1 and I2 for hosts with one place."""
        return self.crowded() + self.hasty(delay_seconds)

    def gaps(self, host: str) -> list[float]:
        """Seconds between the end of each request and the start of the next."""
        return [gap for gap, _, _ in _gaps(self.by_host[host])]

    def unannounced(self) -> list[str]:
        """Hosts whose first request was not for robots.txt, or with a request before its response was sent."""
        wrong = []
        for host, requests in self.by_host.items():
            if not requests[0].is_robots:
                wrong.append(f"the first request to {host} was {requests[0]}")
            pages = [request for request in requests if not request.is_robots]
            if pages and pages[0].began < requests[0].ended:
                wrong.append(f"{host} got {pages[0]} before the response to robots.txt: {requests[0]}")
        return wrong

    def forbidden(self, allowed: Callable[[str, str], bool]) -> list[str]:
        """I6: what was requested though `allowed(host, path)` is false. robots.txt itself always may be."""
        return [
            str(request)
            for request in self.requests
            if not request.is_robots and not allowed(request.host, request.path)
        ]

    def paths(self, host: str) -> list[str]:
        """The paths that were requested of the host, in order."""
        return [request.path for request in self.by_host[host]]

    def times(self, url: str) -> int:
        return self.counts()[url]

    def counts(self) -> Counter[str]:
        """How often each URL was requested."""
        return Counter(request.url for request in self.requests)

    def repeated(self) -> dict[str, int]:
        """URLs that were requested more than once."""
        return {url: times for url, times in self.counts().items() if times > 1}


def _gaps(requests: list[Request]) -> Iterable[tuple[float, Request, Request]]:
    last = requests[0]
    for request in requests[1:]:
        yield request.began - last.ended, last, request
        last = max(last, request, key=lambda each: each.ended)
