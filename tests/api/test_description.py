"""The OpenAPI description: every allowed request gets a described response, and never an internal error."""

from __future__ import annotations

import http.client
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

from shoal.api.auth import create_token
from tests.api.process import ApiProcess, serve_api

if os.environ.get("CI") != "true":
    pytest.importorskip("schemathesis", reason="it is not installed; run: pip install schemathesis")
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    with serve_api(tmp_path_factory.mktemp("described"), settings="[api]\nrate = 100000\n") as api:
        # Something to find, for those who guess well.
        api.client.submit(seeds=["http://example.org/"], name="0", outputs=["main"], spider="nobody")
        yield api


@pytest.fixture(scope="module")
def description(api: ApiProcess) -> Any:
    openapi = api.ask("GET", "/openapi.json").json
    # Streams do not end; they have tests of their own.
    del openapi["paths"]["/v1/crawls/{crawl}/events"]
    schema = schemathesis.openapi.from_dict(openapi)
    schema.config.base_url = api.url
    return schema


@pytest.mark.full
def test_every_route_responds_as_described_without_internal_errors(description: Any) -> None:
    requested = []
    for operation in description.get_all_operations():

        @given(case=operation.ok().as_strategy())
        @settings(
            max_examples=12, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate], database=None,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        def check_response(case: Any) -> None:
            requested.append(case.path)
            case.call_and_validate(checks=CHECKS)

        check_response()
    assert len(set(requested)) == 28
    assert len(requested) > 100


def test_the_description_names_every_route_with_examples(api: ApiProcess) -> None:
    openapi = api.ask("GET", "/openapi.json").json
    assert openapi["openapi"].startswith("3.1")
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"].endswith("."), (method, path)
            assert operation["operationId"]
    schemas = openapi["components"]["schemas"]
    assert schemas["CrawlRequest"]["examples"]
    example = {**schemas["CrawlRequest"]["examples"][0], "name": "by-example", "spider": "nobody"}
    assert api.client.submit(**example) == {"id": "by-example", "created": True}


def test_the_description_allows_what_the_server_accepts(api: ApiProcess, tmp_path: Path) -> None:
    openapi = api.ask("GET", "/openapi.json").json
    listing = {each["name"]: each["schema"] for each in openapi["paths"]["/v1/crawls"]["get"]["parameters"]}
    assert listing["state"]["enum"] == ["running", "paused", "stopped", "expired", "finished"]
    for state in (*listing["state"]["enum"], "deleted"):
        assert (api.ask("GET", f"/v1/crawls?state={state}").status == 200) == (state != "deleted")
    (crawl,) = openapi["paths"]["/v1/crawls/{crawl}/pause"]["post"]["parameters"]
    for name in ("a", "..", ".", "...", "a:b@c_d.e-f", "a" * 128, "a" * 129, "a%0A", "a b"):
        valid = re.search(crawl["schema"]["pattern"], unquote(name).replace("\n", " ")) is not None
        response = api.ask("POST", f"/v1/crawls/{quote(unquote(name), safe='')}/pause")
        assert response.status == (404 if valid else 422), (name, response)
    # This server has no tokens, so its description requires none; another one does.
    assert "securitySchemes" not in openapi["components"]
    assert not [each for path in openapi["paths"].values() for each in path.values() if "security" in each]
    with serve_api(tmp_path, settings=f'[tokens]\nreader = "{create_token("read")[1]}"\n') as guarded:
        openapi = guarded.ask("GET", "/openapi.json").json
    assert openapi["components"]["securitySchemes"]
    assert openapi["paths"]["/v1/crawls"]["get"]["security"] == [{"token": []}]


def test_an_invalid_request_head_gets_the_described_400(api: ApiProcess) -> None:
    with socket.create_connection((api.host, api.port), timeout=60) as connection:
        connection.sendall(b"GET /v1/crawls HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n")
        response = http.client.HTTPResponse(connection)
        response.begin()
    assert response.status == 400
    described = api.ask("GET", "/openapi.json").json["paths"]["/v1/crawls"]["get"]["responses"]["400"]["content"]
    assert response.headers.get_content_type() in described
