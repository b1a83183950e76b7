"""Every route: what it is called, who may use it, what goes in and what comes out. openapi.py describes it by this."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from starlette.responses import Response

from shoal.api.auth import Role
from shoal.api.fleet_stats import FleetStats
from shoal.api.handlers import crawls, fleet, hosts, records
from shoal.api.pagination import MOST_A_PAGE, MOST_CURSOR
from shoal.api.request import MOST_TEXT, RequestContext
from shoal.operations.describe import Description
from shoal.operations.submit import CrawlRequest, Submitted

Handler = Callable[[RequestContext], Awaitable[Response]]
_LIMIT = ("limit", "integer", "How many at most.", MOST_A_PAGE)
_CURSOR = ("cursor", "string", "Where to go on: what `next` of the page before said.", MOST_CURSOR)


class Route(NamedTuple):
    """`role` None is for everybody; `whole`: it is about the fleet, so a token bound to an application may not.

    `query` has names, types, meanings, and the largest number or length.
    """

    method: str
    path: str
    role: Role | None
    handler: Handler
    summary: str
    answer: Any = None
    body: Any = None
    query: tuple[tuple[str, str, str, int], ...] = ()
    status: int = 200
    whole: bool = False
    media: str = "application/json"

    @property
    def name(self) -> str:
        words = [word.strip("{}") for word in self.path.split("/") if word and word != "v1"]
        return "_".join([self.method.lower(), *(word.replace(".", "_") for word in words)])


_CRAWL = "/v1/crawls/{crawl}"
_STATE = ("state", "string", "Only those in this state: running, paused, stopped, expired, finished.", MOST_TEXT)
ROUTES: tuple[Route, ...] = (
    Route("POST", "/v1/crawls", Role.SUBMIT, crawls.create, "Hand a crawl to the fleet.", Submitted, CrawlRequest,
          status=201),
    Route("GET", "/v1/crawls", Role.READ, crawls.listing, "List crawls, the newest first.", crawls.CrawlPage,
          query=(_STATE, ("app", "string", "Only those of this application.", MOST_TEXT), _LIMIT, _CURSOR)),
    Route("GET", _CRAWL, Role.READ, crawls.show, "Say how far a crawl is, and what its rules are.", Description),
    Route("DELETE", _CRAWL, Role.ADMIN, crawls.delete, "Free all that an ended crawl holds; its id stays taken.",
          status=204),
    Route("POST", f"{_CRAWL}/pause", Role.SUBMIT, crawls.pause, "Let nothing more of it be asked.", crawls.Change),
    Route("POST", f"{_CRAWL}/resume", Role.SUBMIT, crawls.resume, "Let a paused crawl go on.", crawls.Change),
    Route("POST", f"{_CRAWL}/stop", Role.SUBMIT, crawls.stop, "End it for good.", crawls.Change),
    Route("POST", f"{_CRAWL}/seeds", Role.SUBMIT, crawls.add_seeds, "Add URLs to an open crawl.", crawls.AddedSeeds,
          crawls.NewSeeds),
    Route("GET", f"{_CRAWL}/records", Role.READ, records.records, "Its records, out of an output that can be read.",
          records.RecordPage,
          query=(("kind", "string", "page or item.", MOST_TEXT),
                 ("fields", "string", "Names of fields, with commas.", MOST_TEXT), _LIMIT, _CURSOR)),
    Route("GET", f"{_CRAWL}/failed", Role.READ, crawls.failed, "URLs that failed, with their reasons.",
          crawls.FailedUrlPage, query=(("limit", "integer", "How many at most.", crawls.MOST_FAILED), _CURSOR)),
    Route("POST", f"{_CRAWL}/retry", Role.SUBMIT, crawls.retry, "Let all failed URLs be tried again.", crawls.Retried),
    Route("GET", f"{_CRAWL}/events", Role.READ, crawls.events, "Its counts whenever they change, until it ends.",
          media="text/event-stream"),
    Route("GET", "/v1/hosts", Role.READ, hosts.listing, "Hosts that have something to do.", hosts.HostPage,
          query=(_LIMIT, _CURSOR), whole=True),
    Route("GET", "/v1/hosts/{host}", Role.READ, hosts.show, "What is known of a host.", hosts.HostView, whole=True),
    Route("PATCH", "/v1/hosts/{host}", Role.ADMIN, hosts.change, "Set its delay or places, block or unblock it.",
          hosts.HostView, hosts.HostChange, whole=True),
    Route("GET", "/v1/workers", Role.READ, fleet.workers, "The workers that live.", fleet.WorkerPage,
          query=(_LIMIT, _CURSOR), whole=True),
    Route("GET", "/v1/stats", Role.READ, fleet.stats, "Sums over all crawls.", FleetStats, whole=True),
    Route("POST", "/feed", Role.SUBMIT, crawls.feed, "Scrapy Cluster's requests and actions, answered in its shape.",
          dict[str, Any], dict[str, Any]),
    Route("GET", "/metrics", Role.READ, fleet.metrics, "Metrics for Prometheus.", whole=True, media="text/plain"),
    Route("GET", "/healthz", None, fleet.health, "The server lives.", dict[str, bool]),
    Route("GET", "/readyz", None, fleet.ready, "The store answers.", dict[str, bool]),
    Route("GET", "/openapi.json", None, fleet.description, "This description.", dict[str, Any]),
)  # fmt: skip
