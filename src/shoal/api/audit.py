"""What the API did, as events: every change that somebody asked for, and every request that was not granted.

Owns which route is which operation. Here alone requests are told, by what a route takes and answers, so that handlers
need not. Requests that only read are told when they fail or when whoever asks may not.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from shoal.api.auth import Caller
from shoal.api.middleware import Rates, now
from shoal.api.problem_details import TYPE, Problem
from shoal.api.request import ApiServer, RequestContext
from shoal.api.routes import Route
from shoal.model.crawl import Crawl
from shoal.operations.events import Emit, tell_action
from shoal.operations.scrapy_cluster import Action, cluster_name

# Whoever is refused all the time must not fill the disk of the log.
_REFUSALS_A_SECOND = 10.0
_MOST_NAME = 200
_NOTED = "shoal.noted"
# Of what a caller may see or do: also told of requests that only read.
_DENIED = (401, 403, 429)


class Operation(NamedTuple):
    """The event of a route, and what of its answer goes with it."""

    event: str
    facts: tuple[str, ...] = ()


# By Route.name. /feed is several: a crawl, or an action on one.
OPERATIONS = {
    "post_crawls": Operation("crawl.submitted", ("created",)),
    "post_feed": Operation("crawl.submitted"),
    "delete_crawls_crawl": Operation("crawl.deleted"),
    "post_crawls_crawl_pause": Operation("crawl.paused", ("state",)),
    "post_crawls_crawl_resume": Operation("crawl.resumed", ("state",)),
    "post_crawls_crawl_stop": Operation("crawl.stopped", ("state",)),
    "post_crawls_crawl_seeds": Operation("crawl.seeded", ("new", "known", "refused")),
    "post_crawls_crawl_retry": Operation("crawl.retried", ("retried",)),
    "patch_hosts_host": Operation("host.changed", ("delay_seconds", "places", "blocked")),
}


_WHO = ("who", "role")
_ASKED = ("method", "route", "crawl", "host", "app", *_WHO, "address", "status", "problem", "id")


def facts() -> dict[str, list[str]]:
    """What may go with each event of the API, for docs/reference/logs.md."""
    found: dict[str, list[str]] = {}
    for event, own in OPERATIONS.values():
        about = ("host", "changed") if event == "host.changed" else ("crawl", "app")
        seeds = ("seeds",) if event in ("crawl.submitted", "crawl.seeded") else ()
        known = found.setdefault(event, [])
        known += [name for name in (*about, *seeds, *own, *_WHO) if name not in known]
    found["request.refused"] = [*_ASKED, "left_out"]
    found["request.failed"] = [*_ASKED, "left_out", "trace"]
    return found


class AuditEntry:
    """What became known of a request on its way to the handler."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self.caller: Caller | None = None
        self.app = ""
        self.body = b""


class AuditedRequest(RequestContext):
    """A request whose body and crawl are remembered for the log."""

    def __init__(self, request: Request, server: ApiServer, caller: Caller) -> None:
        super().__init__(request, server, caller)
        self._noted: AuditEntry = request.scope[_NOTED]
        self._noted.caller = caller

    async def body(self, most: int) -> bytes:
        self._noted.body = await super().body(most)
        return self._noted.body

    async def crawl(self) -> Crawl:
        crawl = await super().crawl()
        self._noted.app = str(crawl.spec.get("app", ""))
        return crawl


class _Given(msgspec.Struct):
    """The few fields of a body that say whom it is about."""

    app: str = ""
    appid: str = ""
    name: str = ""
    crawlid: str | None = ""
    action: str = ""
    seeds: list[msgspec.Raw] = []


class AuditLog:
    def __init__(self, tell: Emit) -> None:
        self._tell = tell
        self._rates = Rates(_REFUSALS_A_SECOND)
        self._left_out = 0

    def note(self, request: Request, route: Route) -> None:
        request.scope[_NOTED] = AuditEntry(route)

    async def done(self, asked: RequestContext, route: Route, response: Response) -> None:
        """A request that was granted."""
        operation = OPERATIONS.get(route.name)
        if operation is None:
            return
        noted: AuditEntry = asked.request.scope[_NOTED]
        given = _decoded(noted.body, _Given) or _Given()
        answer: dict[str, Any] = _decoded(bytes(response.body), dict[str, Any]) or {}
        who = _who(asked.caller)
        if response.status_code >= 400:
            why = str((answer.get("error") or {}).get("message", ""))
            self._refuse(asked.request.scope, response.status_code, why, problem="InvalidInput")
            return
        if given.action:
            action = msgspec.json.decode(noted.body, type=Action)
            await tell_action(self._tell, asked.frontier, action, **who)
            return
        facts = {name: answer.get(name) for name in operation.facts}
        if operation.event == "host.changed":
            host = str(answer.get("name", ""))
            facts["changed"] = sorted(_decoded(noted.body, dict[str, Any]) or ())
            self._tell(f"Host {host} was changed by {asked.caller.name}.", event=operation.event,
                       host=host, **who, **facts)  # fmt: skip
            return
        crawl = str(answer.get("id") or asked.request.path_params.get("crawl") or _name(given))
        app = noted.app or asked.caller.app or given.app or given.appid
        again = " again" if answer.get("created") is False else ""
        verb = operation.event.partition(".")[2]
        seeds = len(given.seeds) or None
        self._tell(f"Crawl {crawl} was {verb}{again} by {asked.caller.name}.", event=operation.event,
                   crawl=crawl, app=app, seeds=seeds, **who, **facts)  # fmt: skip

    def problem(self, scope: Scope, told: Problem, error: BaseException, trace: str) -> None:
        """A request that was refused, or that failed."""
        kind = told.type.removeprefix(TYPE)
        if told.status != 500:
            self._refuse(scope, told.status, told.detail, problem=kind, id=told.id)
            return
        text = f"Defect {told.id} at {scope['method']} {scope['path'][:_MOST_NAME]!r}: {type(error).__name__}."
        facts = _about(scope) | {"status": told.status, "problem": kind, "id": told.id, "trace": trace}
        self._tell(text, event="request.failed", **facts)

    def _refuse(self, scope: Scope, status: int, why: str, **facts: object) -> None:
        if scope["method"] in ("GET", "HEAD") and status < 500 and status not in _DENIED:
            return
        about = _about(scope)
        if self._rates.wait_seconds(str(about.get("who") or about.get("address")), now()):
            self._left_out += 1
            return
        facts |= {"status": status, "left_out": self._left_out or None}
        self._left_out = 0
        what = about.get("route", "a request")
        if status >= 500:
            self._tell(f"{scope['method']} {what} failed: {why}", event="request.failed", **about, **facts)
        else:
            self._tell(f"{scope['method']} {what} was refused: {why}", event="request.refused", **about, **facts)


def _about(scope: Scope) -> dict[str, object]:
    """Who asked, for what. Of a path that is none of ours nothing is repeated."""
    facts: dict[str, object] = {"method": scope["method"]}
    noted: AuditEntry | None = scope.get(_NOTED)
    if noted is not None:
        facts["route"] = noted.route.path
        given = _decoded(noted.body, _Given) or _Given()
        for name in ("crawl", "host"):
            facts[name] = str(scope.get("path_params", {}).get(name, ""))[:_MOST_NAME]
        facts["crawl"] = facts["crawl"] or _name(given)
        facts["app"] = noted.app or (noted.caller.app if noted.caller else "") or given.app or given.appid
    if noted is not None and noted.caller is not None:
        return facts | _who(noted.caller)
    return facts | {"address": (scope.get("client") or ("",))[0]}


def _who(caller: Caller) -> dict[str, str]:
    return {"who": caller.name, "role": caller.role.name.lower()}


def _name(given: _Given) -> str:
    """The crawl that a body names, '' when the store was to name it."""
    name = cluster_name(given.appid, given.crawlid) if given.appid and given.crawlid else given.name
    return name[:_MOST_NAME]


def _decoded(raw: bytes, type_: Any) -> Any:
    try:
        return msgspec.json.decode(raw, type=type_)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def log(text: str, /, *, event: str, **facts: object) -> None:
    """Where nobody said how to tell."""
    print("\n".join(filter(None, (text, str(facts.get("trace", ""))))), file=sys.stderr, flush=True)
