"""The table of routes: path, role, handler, types of request and response. openapi.py derives the description."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from starlette.responses import Response

from shoal.api.auth import Role
from shoal.api.fleet_stats import FleetStats
from shoal.api.handlers import audit, crawls, fleet, history, hosts, indexnow, known_urls, records
from shoal.api.pagination import MAX_CURSOR, MAX_PAGE_SIZE
from shoal.api.request import MAX_TEXT, RequestContext
from shoal.frontier.audit_trail import MAX_ENTRIES
from shoal.frontier.history import Step
from shoal.model.crawl_request import CrawlRequest
from shoal.operations.change import ChangedCrawl
from shoal.operations.describe import Description
from shoal.operations.explain import Explanation
from shoal.operations.submit import Submitted
from shoal.operations.touch import Touched
from shoal.urls.canonical import MAX_URL_BYTES

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
    # Name, type, description, and the largest number or length, or the allowed values.
    query: tuple[tuple[str, str, str, int | tuple[str, ...]], ...] = ()
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
_STATE = ("state", "string", "Only crawls in this state: running, paused, stopped, expired or finished.", crawls.STATES)
_STEP = ("step", "string", "`minute` for the last day (default), `hour` for the last 90 days.", tuple(Step))
ROUTES: tuple[Route, ...] = (
    Route("POST", "/v1/crawls", Role.SUBMIT, crawls.create, "Submit a crawl.", Submitted, CrawlRequest,
          status=201),
    Route("GET", "/v1/crawls", Role.READ, crawls.listing, "List crawls, newest first.", crawls.CrawlPage,
          query=(_STATE, ("app", "string", "Only crawls of this application.", MAX_TEXT), _LIMIT, _CURSOR)),
    Route("GET", _CRAWL, Role.READ, crawls.show, "Get a crawl's status and settings.", Description),
    Route("GET", f"{_CRAWL}/explain", Role.READ, crawls.explain,
          "Explain whether a URL is visited, and which rule decides.", Explanation,
          query=(("url", "string", "The URL.", MAX_URL_BYTES),)),
    Route("PATCH", _CRAWL, Role.SUBMIT, crawls.update, "Change options of an open crawl.", ChangedCrawl,
          crawls.CrawlChange),
    Route("DELETE", _CRAWL, Role.ADMIN, crawls.delete,
          "Delete an ended crawl. Requests cannot use its id again; `shoal crawl` on the store can.",
          status=204),
    Route("POST", f"{_CRAWL}/pause", Role.SUBMIT, crawls.pause, "Pause a crawl.", crawls.Change),
    Route("POST", f"{_CRAWL}/resume", Role.SUBMIT, crawls.resume, "Resume a paused crawl.", crawls.Change),
    Route("POST", f"{_CRAWL}/stop", Role.SUBMIT, crawls.stop, "Stop a crawl permanently.", crawls.Change),
    Route("POST", f"{_CRAWL}/seeds", Role.SUBMIT, crawls.add_seeds, "Add URLs to an open crawl.", crawls.AddedSeeds,
          crawls.NewSeeds),
    Route("POST", f"{_CRAWL}/touch", Role.SUBMIT, crawls.touch_pages,
          "Visit pages of a perpetual crawl soon; URLs in scope that it does not know are added.", Touched,
          crawls.TouchRequest),
    Route("GET", f"{_CRAWL}/records", Role.READ, records.listing, "List the crawl's records.",
          records.RecordPage,
          query=(("kind", "string", "`page` or `item`.", records.KINDS),
                 ("fields", "string", "Comma-separated field names.", MAX_TEXT), _LIMIT, _CURSOR)),
    Route("GET", f"{_CRAWL}/failed", Role.READ, crawls.failed, "List failed URLs with their reasons.",
          crawls.FailedUrlPage, query=(("limit", "integer", "Maximum number of results.", crawls.MAX_FAILED), _CURSOR)),
    Route("POST", f"{_CRAWL}/retry", Role.SUBMIT, crawls.retry, "Retry failed URLs, all or some.", crawls.Retried,
          crawls.RetryRequest),
    Route("POST", f"{_CRAWL}/forget", Role.SUBMIT, known_urls.forget,
          "Forget that a crawl has seen URLs: they are visited when they are found again.", known_urls.Forgotten,
          known_urls.ChosenUrls),
    Route("POST", f"{_CRAWL}/revisit", Role.SUBMIT, known_urls.revisit,
          "Visit URLs again now, although the crawl has seen them.", known_urls.Revisits, known_urls.ChosenUrls),
    Route("GET", f"{_CRAWL}/events", Role.READ, crawls.events, "Stream a crawl's counts until it ends.",
          media="text/event-stream"),
    Route("GET", f"{_CRAWL}/history", Role.READ, history.of_crawl, "Get a crawl's history by minute or hour.",
          history.HistoryView, query=(_STEP,)),
    Route("GET", "/v1/history", Role.READ, history.of_fleet, "Get the fleet's history by minute or hour.",
          history.HistoryView, query=(_STEP,), fleet_wide=True),
    Route("GET", "/v1/hosts", Role.READ, hosts.listing, "List hosts that have waiting URLs or a lease.", hosts.HostPage,
          query=(_LIMIT, _CURSOR), fleet_wide=True),
    Route("GET", "/v1/hosts/{host}", Role.READ, hosts.show, "Get a host.", hosts.HostView, fleet_wide=True),
    Route("GET", "/v1/hosts/{host}/back-offs", Role.READ, hosts.back_offs,
          "List a host's last back-offs, newest first.", hosts.BackOffs, fleet_wide=True),
    Route("PATCH", "/v1/hosts/{host}", Role.ADMIN, hosts.update,
          "Set a host's delay or slots (`places`), block it or unblock it.", hosts.HostView, hosts.HostChange,
          fleet_wide=True),
    Route("GET", "/v1/workers", Role.READ, fleet.workers, "List live workers.", fleet.WorkerPage,
          query=(_LIMIT, _CURSOR), fleet_wide=True),
    Route("GET", "/v1/stats", Role.READ, fleet.stats, "Get totals over all crawls.", FleetStats, fleet_wide=True),
    Route("GET", "/v1/audit", Role.ADMIN, audit.listing, "List the latest changes, newest first.", audit.AuditPage,
          query=(("limit", "integer", "Maximum number of results.", MAX_ENTRIES),), fleet_wide=True),
    Route("POST", "/feed", Role.SUBMIT, crawls.feed, "Accept Scrapy Cluster's crawl and action requests.",
          dict[str, Any], dict[str, Any]),
    Route("GET", "/metrics", Role.READ, fleet.metrics, "Prometheus metrics.", fleet_wide=True, media="text/plain"),
    Route("POST", "/indexnow", None, indexnow.report, "Report changed pages of a site, if `api.indexnow` is set.",
          body=indexnow.IndexNowReport),
    Route("GET", "/indexnow", None, indexnow.report_one, "Report one changed page of a site, if `api.indexnow` is set.",
          query=(("url", "string", "The page.", MAX_URL_BYTES), ("key", "string", "The key of the site.", MAX_TEXT),
                 ("keyLocation", "string", "URL of the key file.", MAX_URL_BYTES))),
    Route("GET", "/", None, fleet.index, "Get the server's name and version, and paths to start from.", fleet.Index),
    Route("GET", "/healthz", None, fleet.health, "Liveness check.", dict[str, bool]),
    Route("GET", "/readyz", None, fleet.ready, "Readiness check: the store responds.", dict[str, bool]),
    Route("GET", "/openapi.json", None, fleet.description, "This OpenAPI document.", dict[str, Any]),
)  # fmt: skip
