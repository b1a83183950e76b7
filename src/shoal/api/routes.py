"""The table of routes: path, role, handler, types of request and response. openapi.py derives the description."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from starlette.responses import Response

from shoal.api.auth import Role
from shoal.api.fleet_stats import FleetStats
from shoal.api.handlers import crawls, fleet, hosts, records
from shoal.api.pagination import MAX_CURSOR, MAX_PAGE_SIZE
from shoal.api.request import MAX_TEXT, RequestContext
from shoal.model.crawl_spec import CrawlRequest
from shoal.operations.describe import Description
from shoal.operations.submit import Submitted

Handler = Callable[[RequestContext], Awaitable[Response]]
_LIMIT = ("limit", "integer", "Maximum number of results.", MAX_PAGE_SIZE)
_CURSOR = ("cursor", "string", "Start of the page: the `next` of the previous page.", MAX_CURSOR)


class Route(NamedTuple):
    method: str
    path: str
    # None: no token is required.
    role: Role | None
    handler: Handler
    summary: str
    response: Any = None
    body: Any = None
    # Name, type, description, and the largest number or length.
    query: tuple[tuple[str, str, str, int], ...] = ()
    status: int = 200
    # It concerns the fleet, so a token that is bound to an application is refused.
    fleet_wide: bool = False
    media: str = "application/json"

    @property
    def name(self) -> str:
        words = [word.strip("{}") for word in self.path.split("/") if word and word != "v1"]
        words = words or ["index"]
        return "_".join([self.method.lower(), *(word.replace(".", "_") for word in words)])


_CRAWL = "/v1/crawls/{crawl}"
_STATE = ("state", "string", "Only crawls in this state: running, paused, stopped, expired or finished.", MAX_TEXT)
ROUTES: tuple[Route, ...] = (
    Route("POST", "/v1/crawls", Role.SUBMIT, crawls.create, "Submit a crawl.", Submitted, CrawlRequest,
          status=201),
    Route("GET", "/v1/crawls", Role.READ, crawls.listing, "List crawls, newest first.", crawls.CrawlPage,
          query=(_STATE, ("app", "string", "Only crawls of this application.", MAX_TEXT), _LIMIT, _CURSOR)),
    Route("GET", _CRAWL, Role.READ, crawls.show, "Get a crawl's status and settings.", Description),
    Route("DELETE", _CRAWL, Role.ADMIN, crawls.delete, "Delete an ended crawl. Its id cannot be reused.",
          status=204),
    Route("POST", f"{_CRAWL}/pause", Role.SUBMIT, crawls.pause, "Pause a crawl.", crawls.Change),
    Route("POST", f"{_CRAWL}/resume", Role.SUBMIT, crawls.resume, "Resume a paused crawl.", crawls.Change),
    Route("POST", f"{_CRAWL}/stop", Role.SUBMIT, crawls.stop, "Stop a crawl for good.", crawls.Change),
    Route("POST", f"{_CRAWL}/seeds", Role.SUBMIT, crawls.add_seeds, "Add URLs to an open crawl.", crawls.AddedSeeds,
          crawls.NewSeeds),
    Route("GET", f"{_CRAWL}/records", Role.READ, records.listing, "List the crawl's records.",
          records.RecordPage,
          query=(("kind", "string", "`page` or `item`.", MAX_TEXT),
                 ("fields", "string", "Comma-separated field names.", MAX_TEXT), _LIMIT, _CURSOR)),
    Route("GET", f"{_CRAWL}/failed", Role.READ, crawls.failed, "List failed URLs with their reasons.",
          crawls.FailedUrlPage, query=(("limit", "integer", "Maximum number of results.", crawls.MAX_FAILED), _CURSOR)),
    Route("POST", f"{_CRAWL}/retry", Role.SUBMIT, crawls.retry, "Retry all failed URLs.", crawls.Retried),
    Route("GET", f"{_CRAWL}/events", Role.READ, crawls.events, "Stream a crawl's counts until it ends.",
          media="text/event-stream"),
    Route("GET", "/v1/hosts", Role.READ, hosts.listing, "List hosts that have waiting URLs or a lease.", hosts.HostPage,
          query=(_LIMIT, _CURSOR), fleet_wide=True),
    Route("GET", "/v1/hosts/{host}", Role.READ, hosts.show, "Get a host.", hosts.HostView, fleet_wide=True),
    Route("PATCH", "/v1/hosts/{host}", Role.ADMIN, hosts.update, "Set a host's delay or places, block or unblock it.",
          hosts.HostView, hosts.HostChange, fleet_wide=True),
    Route("GET", "/v1/workers", Role.READ, fleet.workers, "List live workers.", fleet.WorkerPage,
          query=(_LIMIT, _CURSOR), fleet_wide=True),
    Route("GET", "/v1/stats", Role.READ, fleet.stats, "Get totals over all crawls.", FleetStats, fleet_wide=True),
    Route("POST", "/feed", Role.SUBMIT, crawls.feed, "Accept Scrapy Cluster's crawl and action requests.",
          dict[str, Any], dict[str, Any]),
    Route("GET", "/metrics", Role.READ, fleet.metrics, "Prometheus metrics.", fleet_wide=True, media="text/plain"),
    Route("GET", "/", None, fleet.index, "What this server is, and where its description is.", fleet.Index),
    Route("GET", "/healthz", None, fleet.health, "Liveness check.", dict[str, bool]),
    Route("GET", "/readyz", None, fleet.ready, "Readiness check: the store responds.", dict[str, bool]),
    Route("GET", "/openapi.json", None, fleet.description, "This OpenAPI document.", dict[str, Any]),
)  # fmt: skip
