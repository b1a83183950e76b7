"""The description of the API, OpenAPI 3.1, made from the routes and the types that they take and give."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from shoal.api.problem_details import Problem
from shoal.api.routes import Route
from shoal.version import __version__

_REFUSALS = {
    "401": "A token is needed.", "403": "This token may not do that.", "404": "There is no such thing.",
    "409": "The crawl is not in a state for that.", "413": "The request is too large.",
    "415": "The body is not JSON.", "422": "The request cannot be used.", "429": "Too many requests.",
    "503": "The store or an output is away.", "507": "The store is full.",
}  # fmt: skip
_COUNTS = {"admitted": 120, "waiting": 80, "leased": 4, "later": 0, "stored": 35, "failed": 1, "excluded": 0}
EXAMPLES: dict[str, Any] = {
    "CrawlRequest": {
        "seeds": ["https://example.org/"], "name": "example-2026", "scope": "domain", "max_pages": 1000,
        "user_agent": "ExampleBot/1.0 (+https://example.org/bot)", "outputs": ["warehouse"],
        "notify": "https://example.org/told", "attributes": {"order": 17},
    },
    "Submitted": {"id": "example-2026", "created": True},
    "Change": {"id": "example-2026", "state": "paused"},
    "NewSeeds": {"seeds": ["https://example.org/new"]},
    "AddedSeeds": {"new": 1, "known": 0, "refused": 0},
    "Retried": {"retried": 3},
    "HostChange": {"delay_seconds": 5, "blocked": ""},
    "CrawlPage": {
        "crawls": [{
            "id": "example-2026", "app": "", "state": "running", "why": "", "priority": 0, "created_at": 1794797135.1,
            "ended_at": 0.0, "counts": {**_COUNTS, "reasons": {"failed:status 404": 1}},
        }],
        "next": None,
    },
    "FailedUrlPage": {
        "failed": [{"url": "https://example.org/gone", "reason": "status 404", "depth": 1, "attempt": 1}],
        "next": None,
    },
}  # fmt: skip
_ACTION = {"action": "info", "appid": "testapp", "crawlid": "abc123", "uuid": "1", "spiderid": "link"}
_DESCRIPTION = (
    "Crawls as jobs: made, listed, steered and deleted; hosts, workers, metrics. Send a token as "
    "`Authorization: Bearer ...`. Errors are application/problem+json. Headers, cookies, log-ins and passwords of "
    "outputs go in and are never shown."
)


def describe(routes: Sequence[Route]) -> dict[str, Any]:
    types = [type_ for route in routes for type_ in (route.answer, route.body) if _is_struct(type_)]
    unique = list(dict.fromkeys([*types, Problem]))
    _, components = msgspec.json.schema_components(unique, ref_template="#/components/schemas/{name}")
    for name, example in EXAMPLES.items():
        components[name]["examples"] = [example]
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Shoal", "version": __version__, "description": _DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    told: dict[str, Any] = {"operationId": route.name, "summary": route.summary, "responses": _answers(route)}
    if route.role is not None:
        told["security"] = [{"token": []}]
        told["description"] = f"Needs the role {route.role.name.lower()}" + (
            ", of a token that is not bound to an application." if route.whole else "."
        )
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1, "maxLength": 260}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    parameters += [
        {"name": name, "in": "query", "description": meaning, "schema": _parameter(kind, most)}
        for name, kind, meaning, most in route.query
    ]  # fmt: skip
    if parameters:
        told["parameters"] = parameters
    if route.body is not None:
        content: dict[str, Any] = {"schema": _schema(route.body)}
        if route.path == "/feed":
            content["examples"] = {"action": {"value": _ACTION}}
        told["requestBody"] = {"required": True, "content": {"application/json": content}}
    return told


def _parameter(kind: str, most: int) -> dict[str, Any]:
    return {"type": kind, **({"minimum": 1, "maximum": most} if kind == "integer" else {"maxLength": most})}


def _answers(route: Route) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": route.summary}
    if route.status != 204:
        schema = _schema(route.answer) if route.answer is not None else {"type": "string"}
        answer["content"] = {route.media: {"schema": schema}}
    refused = {"$ref": "#/components/schemas/Problem"}
    found: dict[str, Any] = {str(route.status): answer}
    if route.status == 201:
        found["200"] = {**answer, "description": "It was there already: the same request came again."}
    if route.path == "/feed":
        found["400"] = {"description": "The request cannot be used.", "content": answer["content"]}
    if route.role is None:
        if route.path == "/readyz":
            found["503"] = {"description": "The store does not answer.", "content": answer["content"]}
        return found
    for status, meaning in _REFUSALS.items():
        content = {"application/problem+json": {"schema": refused}}
        # What Scrapy Cluster's door itself refuses is said in its shape.
        content |= answer["content"] if route.path == "/feed" else {}
        found[status] = {"description": meaning, "content": content}
    return found


def _schema(type_: Any) -> dict[str, Any]:
    if _is_struct(type_):
        return {"$ref": f"#/components/schemas/{type_.__name__}"}
    return {"type": "object"}


def _is_struct(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)
