"""The audit log: an event for every change that a request made, and for every request that was refused or failed.

Owns the mapping of routes to operations. Events are built here, from a route's request and response, so that handlers
need not emit any. A request that only reads is logged when it fails or is not authorized. Reports of IndexNow, which
any site may send without a token, are logged only if they fail.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from shoal.api.auth import Caller
from shoal.api.middleware import RateLimiter, now
from shoal.api.problem_details import TYPE, Problem
from shoal.api.request import ApiServer, RequestContext
from shoal.api.routes import Route
from shoal.errors import ShoalError
from shoal.frontier.audit_trail import AuditRecord
from shoal.model.crawl import Crawl
from shoal.operations.events import Emit, emit_action
from shoal.operations.scrapy_cluster import ClusterAction, cluster_name

# Repeated refusals must not fill the log's disk.
_REFUSALS_PER_SECOND = 10.0
_MAX_NAME = 200
_ENTRY = "shoal.audit_entry"
# Statuses of requests that are not authorized. They are logged also for requests that only read.
_UNAUTHORIZED = (401, 403, 429)


class Operation(NamedTuple):
    """The event of a route, and the fields of its response that the event repeats."""

    event: str
    facts: tuple[str, ...] = ()


# By Route.name. A request to /feed is a crawl, or an action on one.
OPERATIONS = {
    "post_crawls": Operation("crawl.submitted", ("created",)),
    "post_feed": Operation("crawl.submitted"),
    "delete_crawls_crawl": Operation("crawl.deleted"),
    "post_crawls_crawl_pause": Operation("crawl.paused", ("state",)),
    "post_crawls_crawl_resume": Operation("crawl.resumed", ("state",)),
    "post_crawls_crawl_stop": Operation("crawl.stopped", ("state",)),
    "patch_crawls_crawl": Operation("crawl.changed", ("changed", "removed")),
    "post_crawls_crawl_seeds": Operation("crawl.seeded", ("new", "known", "refused")),
    "post_crawls_crawl_touch": Operation("crawl.touched", ("touched", "new")),
    "post_crawls_crawl_retry": Operation("crawl.retried", ("retried",)),
    "post_crawls_crawl_forget": Operation("urls.forgotten", ("forgotten",)),
    "post_crawls_crawl_revisit": Operation("urls.revisited", ("queued",)),
    "patch_hosts_host": Operation("host.changed", ("delay_seconds", "places", "blocked")),
}


_CALLER = ("who", "role")
_REQUEST = ("method", "route", "crawl", "host", "app", *_CALLER, "address", "status", "problem", "id")


def facts() -> dict[str, list[str]]:
    """The fields of each event of the API, for docs/reference/logs.md."""
    by_event: dict[str, list[str]] = {}
    for event, from_response in OPERATIONS.values():
        subject = ("host", "changed") if event == "host.changed" else ("crawl", "app")
        seeds = ("seeds",) if event in ("crawl.submitted", "crawl.seeded") else ()
        names = by_event.setdefault(event, [])
        names += [name for name in (*subject, *seeds, *from_response, *_CALLER) if name not in names]
    by_event["request.refused"] = [*_REQUEST, "left_out"]
    by_event["request.failed"] = [*_REQUEST, "left_out", "trace"]
    return by_event


class AuditEntry:
    """The data of a request for the audit log, as far as they are known."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self.caller: Caller | None = None
        self.crawl = self.app = ""
        self.body = b""


def start_entry(scope: Scope, route: Route) -> None:
    scope[_ENTRY] = AuditEntry(route)


class AuditedRequest(RequestContext):
    """A request whose caller, body and crawl are kept for the audit log."""

    def __init__(self, request: Request, server: ApiServer, caller: Caller) -> None:
        super().__init__(request, server, caller)
        self._entry: AuditEntry = request.scope[_ENTRY]
        self._entry.caller = caller

    async def body(self, max_bytes: int) -> bytes:
        self._entry.body = await super().body(max_bytes)
        return self._entry.body

    async def crawl(self) -> Crawl:
        crawl = await super().crawl()
        self._entry.crawl, self._entry.app = crawl.id, crawl.app
        return crawl


class _Subject(msgspec.Struct):
    """The fields of a request body that name the crawl and its application."""

    app: str = ""
    appid: str = ""
    name: str = ""
    crawlid: str | None = ""
    action: str = ""
    domain: str = ""
    seeds: list[msgspec.Raw] = []


class AuditLog:
    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._rates = RateLimiter(_REFUSALS_PER_SECOND)
        self._left_out = 0

    def start(self, request: Request, route: Route) -> None:
        start_entry(request.scope, route)

    async def log_change(self, context: RequestContext, route: Route, response: Response) -> None:
        """Emit the event of a request that was carried out, and add it to the audit trail."""
        changes: list[tuple[str, str]] = []

        def emit(text: str, /, *, event: str, **facts: object) -> None:
            self._emit(text, event=event, **facts)
            changes.append((text, event))

        await self._log_change(context, route, response, emit)
        for text, event in changes:
            caller = context.caller
            record = AuditRecord(event=event, text=text, who=caller.name, role=caller.role.name.lower())
            # The change was made even if the entry cannot be stored; the log has it.
            with contextlib.suppress(ShoalError):
                await context.frontier.audit_trail.add(record)

    async def _log_change(self, context: RequestContext, route: Route, response: Response, emit: Emit) -> None:
        operation = OPERATIONS.get(route.name)
        if operation is None:
            return
        entry: AuditEntry = context.request.scope[_ENTRY]
        subject = _decoded(entry.body, _Subject) or _Subject()
        content: dict[str, Any] = _decoded(bytes(response.body), dict[str, Any]) or {}
        caller = _caller_facts(context.caller)
        if response.status_code >= 400:
            reason = str((content.get("error") or {}).get("message", ""))
            self._log_refusal(context.request.scope, response.status_code, reason, problem="InvalidInput")
            return
        if subject.domain:
            text = f"Host {subject.domain} was changed by {context.caller.name}."
            emit(text, event="host.changed", host=subject.domain, changed=[subject.action], **caller)
            return
        if route.path == "/feed" and content.get("data") and not subject.action:
            # Statistics change nothing.
            return
        if subject.action:
            action = msgspec.json.decode(entry.body, type=ClusterAction)
            await emit_action(emit, context.frontier, action, **caller)
            return
        if content.get("applied") is False:
            # A preview changes nothing.
            return
        facts = {name: content.get(name) for name in operation.facts}
        if operation.event == "host.changed":
            host = str(content.get("name", ""))
            facts["changed"] = sorted(_decoded(entry.body, dict[str, Any]) or ())
            emit(f"Host {host} was changed by {context.caller.name}.", event=operation.event,
                       host=host, **caller, **facts)  # fmt: skip
            return
        crawl = str(content.get("id") or entry.crawl or _crawl_name(subject))
        app = entry.app or context.caller.app or subject.app or subject.appid
        again = " again" if content.get("created") is False else ""
        verb = operation.event.partition(".")[2]
        seeds = len(subject.seeds) or None
        what = f"URLs of crawl {crawl} were" if operation.event.startswith("urls.") else f"Crawl {crawl} was"
        emit(f"{what} {verb}{again} by {context.caller.name}.", event=operation.event,
                   crawl=crawl, app=app, seeds=seeds, **caller, **facts)  # fmt: skip

    def log_problem(self, scope: Scope, problem: Problem, error: BaseException, trace: str) -> None:
        """Emit the event of a request that was refused or failed."""
        kind = problem.type.removeprefix(TYPE)
        if problem.status != 500:
            self._log_refusal(scope, problem.status, problem.detail, problem=kind, id=problem.id)
            return
        where = f"{scope['method']} {scope['path'][:_MAX_NAME]!r}"
        text = f"Internal error {problem.id} (a bug in Shoal) at {where}: {type(error).__name__}."
        facts = _request_facts(scope) | {"status": problem.status, "problem": kind, "id": problem.id, "trace": trace}
        self._emit(text, event="request.failed", **facts)

    def _log_refusal(self, scope: Scope, status: int, reason: str, **facts: object) -> None:
        if scope["method"] in ("GET", "HEAD") and status < 500 and status not in _UNAUTHORIZED:
            return
        request = _request_facts(scope)
        if self._rates.wait_seconds(str(request.get("who") or request.get("address")), now()):
            self._left_out += 1
            return
        facts |= {"status": status, "left_out": self._left_out or None}
        self._left_out = 0
        route = request.get("route", "a request")
        if status >= 500:
            self._emit(f"{scope['method']} {route} failed: {reason}", event="request.failed", **request, **facts)
        else:
            self._emit(f"{scope['method']} {route} was refused: {reason}", event="request.refused", **request, **facts)


def _request_facts(scope: Scope) -> dict[str, object]:
    """Fields that describe a request and its caller. The path of an unknown route is not repeated."""
    facts: dict[str, object] = {"method": scope["method"]}
    entry: AuditEntry | None = scope.get(_ENTRY)
    if entry is not None:
        facts["route"] = entry.route.path
        subject = _decoded(entry.body, _Subject) or _Subject()
        for name in ("crawl", "host"):
            facts[name] = str(scope.get("path_params", {}).get(name, ""))[:_MAX_NAME]
        facts["crawl"] = facts["crawl"] or _crawl_name(subject)
        facts["app"] = entry.app or (entry.caller.app if entry.caller else "") or subject.app or subject.appid
    if entry is not None and entry.caller is not None:
        return facts | _caller_facts(entry.caller)
    return facts | {"address": (scope.get("client") or ("",))[0]}


def _caller_facts(caller: Caller) -> dict[str, str]:
    return {"who": caller.name, "role": caller.role.name.lower()}


def _crawl_name(subject: _Subject) -> str:
    """The crawl that a body names, '' when the body has no name."""
    name = cluster_name(subject.appid, subject.crawlid) if subject.appid and subject.crawlid else subject.name
    return name[:_MAX_NAME]


def _decoded(raw: bytes, type_: Any) -> Any:
    try:
        return msgspec.json.decode(raw, type=type_)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def log_to_stderr(text: str, /, *, event: str, **facts: object) -> None:
    """The default for `emit`."""
    print("\n".join(filter(None, (text, str(facts.get("trace", ""))))), file=sys.stderr, flush=True)
