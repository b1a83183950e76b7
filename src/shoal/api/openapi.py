"""The OpenAPI 3.1 document of the API, derived from the table of routes and the types of requests and responses."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from shoal.api.problem_details import Problem
from shoal.api.routes import Route
from shoal.model import validation
from shoal.model.crawl_options import INTERNAL
from shoal.model.crawl_request import CrawlRequest
from shoal.version import __version__

_ERRORS = {
    "401": "Authentication required.", "403": "Forbidden.", "404": "Not found.",
    "409": "Conflict with the crawl's state.", "408": "The body was not received in time.", "413": "Request too large.",
    "415": "Unsupported media type.", "422": "Invalid request.", "429": "Too many requests.",
    "503": "Store or output unavailable.", "507": "Store full.",
}  # fmt: skip
_REFUSED_REPORTS = {
    "400": "Invalid format.", "403": "The key is not valid.", "404": "IndexNow is off.", "413": "Request too large.",
    "415": "Unsupported media type.", "422": "A URL does not belong to the host, or the key is malformed.",
    "429": "Too many requests.", "503": "Store or output unavailable.", "507": "Store full.",
}  # fmt: skip
_COUNTS = {"admitted": 120, "waiting": 80, "leased": 4, "later": 0, "stored": 35, "failed": 1, "excluded": 0}
EXAMPLES: dict[str, Any] = {
    "CrawlRequest": {
        "seeds": ["https://example.org/"], "name": "example-2026", "scope": "domain", "max_pages": 1000,
        "user_agent": "ExampleBot/1.0 (+https://example.org/bot)", "outputs": ["warehouse"],
        "notify": "https://example.org/hook", "attributes": {"order": 17},
    },
    "Submitted": {"id": "example-2026", "created": True},
    "Change": {"id": "example-2026", "state": "paused"},
    "NewSeeds": {"seeds": ["https://example.org/new"]},
    "AddedSeeds": {"new": 1, "known": 0, "refused": 0},
    "RetryRequest": {"urls": ["https://example.org/gone"]},
    "ChosenUrls": {"urls": ["https://example.org/page"]},
    "TouchRequest": {"urls": ["https://example.org/changed"]},
    "Touched": {"touched": 1, "new": 0, "refused": {}},
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
_IN_PATH: dict[str, dict[str, Any]] = {
    "crawl": {"type": "string", "pattern": validation.ID_PATTERN},
    "host": {"type": "string", "minLength": 1, "maxLength": 260},
}
_TEXT = {"type": "string"}
_ACTION = {"action": "info", "appid": "testapp", "crawlid": "abc123", "uuid": "1", "spiderid": "link"}
_DESCRIPTION = (
    "Submit, list, pause, resume, stop and delete crawls; inspect hosts, workers and metrics. Send a token as "
    "`Authorization: Bearer ...`. Errors are application/problem+json. Headers, cookies, credentials and passwords of "
    "outputs are write-only: no response contains them."
)


def describe(routes: Sequence[Route], *, tokens: bool = True) -> dict[str, Any]:
    """Return the document of a server. Without `tokens`, no route requires a token."""
    types = [type_ for route in routes for type_ in (route.response, route.body) if _is_struct(type_)]
    unique = list(dict.fromkeys([*types, Problem]))
    _, components = msgspec.json.schema_components(unique, ref_template="#/components/schemas/{name}")
    request = components[CrawlRequest.__name__]["properties"]
    for name in INTERNAL:
        del request[name]
    for name, example in EXAMPLES.items():
        components[name]["examples"] = [example]
    for schema in components.values():
        _describe_fields(schema)
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, tokens=tokens)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Shoal", "version": __version__, "description": _DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": components,
            **({"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}} if tokens else {}),
        },
    }


def _describe_fields(schema: dict[str, Any]) -> None:
    """Move lines such as "at  when the change was made" from the description of a type to its fields."""
    fields: dict[str, Any] = schema.get("properties", {})
    others = []
    for line in inspect.cleandoc(schema.get("description", "")).splitlines():
        names, _, meaning = line.partition("  ")
        if meaning and all(name in fields for name in names.split(", ")):
            text = meaning.strip()
            for name in names.split(", "):
                fields[name]["description"] = f"{text[0].upper()}{text[1:]}."
        else:
            others.append(line)
    if "description" in schema:
        schema["description"] = "\n".join(others).strip()


def _operation(route: Route, *, tokens: bool) -> dict[str, Any]:
    operation: dict[str, Any] = {"operationId": route.name, "summary": route.summary, "responses": _responses(route)}
    if route.role is not None and tokens:
        operation["security"] = [{"token": []}]
        operation["description"] = f"Requires the role {route.role.name.lower()}" + (
            " and a token that is not bound to an application." if route.fleet_wide else "."
        )
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _IN_PATH[name]}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    parameters += [
        {"name": name, "in": "query", "description": description, "schema": _parameter(kind, highest)}
        for name, kind, description, highest in route.query
    ]  # fmt: skip
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        content: dict[str, Any] = {"schema": _schema(route.body)}
        if route.path == "/feed":
            content["examples"] = {"action": {"value": _ACTION}}
        required = not _is_struct(route.body) or any(field.required for field in msgspec.structs.fields(route.body))
        operation["requestBody"] = {"required": required, "content": {"application/json": content}}
    return operation


def _parameter(kind: str, highest: int | tuple[str, ...]) -> dict[str, Any]:
    if isinstance(highest, tuple):
        return {"type": kind, "enum": list(highest)}
    return {"type": kind, **({"minimum": 1, "maximum": highest} if kind == "integer" else {"maxLength": highest})}


def _responses(route: Route) -> dict[str, Any]:
    response: dict[str, Any] = {"description": route.summary}
    if route.status != 204:
        schema = _schema(route.response) if route.response is not None else _TEXT
        response["content"] = {route.media: {"schema": schema}}
    problem = {"$ref": "#/components/schemas/Problem"}
    responses: dict[str, Any] = {str(route.status): response}
    if route.status == 201:
        responses["200"] = {**response, "description": "The crawl exists: the same request was sent before."}
    # A request that is not HTTP, or whose head is too long, gets a plain-text response: it reaches no route.
    malformed: dict[str, Any] = {"application/problem+json": {"schema": problem}, "text/plain": {"schema": _TEXT}}
    malformed |= response["content"] if route.path == "/feed" else {}
    responses["400"] = {"description": "Malformed request.", "content": malformed}
    if route.role is None:
        if route.path == "/readyz":
            responses["503"] = {"description": "The store does not respond.", "content": response["content"]}
        if route.path == "/indexnow":
            responses["202"] = {"description": "Received. No crawl covers the host, so the key was not checked."}
            content = {"application/problem+json": {"schema": problem}}
            for status, description in _REFUSED_REPORTS.items():
                responses[status] = {"description": description, "content": content}
        return responses
    for status, description in _ERRORS.items():
        content = {"application/problem+json": {"schema": problem}}
        # /feed reports its own errors in Scrapy Cluster's format.
        content |= response["content"] if route.path == "/feed" else {}
        responses[status] = {"description": description, "content": content}
    return responses


def _schema(type_: Any) -> dict[str, Any]:
    if _is_struct(type_):
        return {"$ref": f"#/components/schemas/{type_.__name__}"}
    return {"type": "object"}


def _is_struct(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)
