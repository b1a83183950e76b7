"""What all host sessions of a worker share, and how robots.txt is fetched for them."""

from __future__ import annotations

from collections.abc import Callable

from shoal.errors import FetchError
from shoal.fetch import Fetcher, Request
from shoal.frontier import Frontier
from shoal.leases.robots_gate import RobotsGate, RobotsRequest
from shoal.model.lease import Lease
from shoal.model.response import Response
from shoal.model.worker_report import WorkerReport
from shoal.politeness.backoff import Fault
from shoal.politeness.robots_rules import MAX_BYTES
from shoal.urls.canonical import canonical
from shoal.worker.cookies import CrawlCookies
from shoal.worker.crawl_context import CrawlContexts
from shoal.worker.delivery import Delivery
from shoal.worker.eta import Eta
from shoal.worker.leased_fetch import fetch_under_lease
from shoal.worker.page_processor import PageProcessor
from shoal.worker.revisits import RevisitScheduler


class SessionResources:
    """What all sessions of a worker share."""

    def __init__(
        self, frontier: Frontier, fetcher: Fetcher, contexts: CrawlContexts, delivery: Delivery,
        processor: PageProcessor, report: WorkerReport, batch_seconds: float, may_stay: Callable[[Lease], bool],
    ) -> None:  # fmt: skip
        """`may_stay` decides whether a lease may be topped up again, or its host should be free for other workers."""
        self.frontier = frontier
        self.fetcher = fetcher
        self.contexts = contexts
        self.delivery = delivery
        self.processor = processor
        self.report = report
        self.robots = RobotsGate(frontier, self._fetch_robots, fetcher.cached)
        self.cookies = CrawlCookies(frontier)
        self.batch_seconds = batch_seconds
        self.may_stay = may_stay
        self.eta = Eta()
        self.revisits = RevisitScheduler(frontier)
        self.stopping = False
        # Open requests for pages.
        self.fetching = 0

    def count_request(self, bytes_received: int) -> None:
        self.report.requests += 1
        self.report.bytes += bytes_received

    async def _fetch_robots(self, robots: RobotsRequest) -> Response | Fault | None:
        if self.stopping:
            return None
        context = await self.contexts.of(robots.crawl)
        assert robots.lease is not None  # noqa: S101 - a worker requests nothing without one
        request = Request(
            url=robots.url, headers=(*context.headers(canonical(robots.url)), *robots.headers),
            timeout_seconds=context.policy.timeout_seconds, body_bytes=MAX_BYTES + 1, cut=True, ftp=context.ftp,
        )  # fmt: skip
        try:
            response = await fetch_under_lease(robots.lease, self.fetcher, request)
        except FetchError as error:
            self.count_request(0)
            return Fault(error.fault)
        self.count_request(response.bytes_received)
        return response
