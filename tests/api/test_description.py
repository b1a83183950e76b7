"""The OpenAPI description: whatever it allows to be asked is answered as it says, never with a defect of the server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.served import Served, served

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
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("described"), settings="[api]\nrate = 100000\n") as api:
        # Something to find, for those who guess well.
        api.client.submit(seeds=["http://example.org/"], name="0", outputs=["main"], spider="nobody")
        yield api


@pytest.fixture(scope="module")
def description(api: Served) -> Any:
    told = api.ask("GET", "/openapi.json").json
    # Streams do not end; they have tests of their own.
    del told["paths"]["/v1/crawls/{crawl}/events"]
    schema = schemathesis.openapi.from_dict(told)
    schema.config.base_url = api.url
    return schema


@pytest.mark.full
def test_every_route_answers_as_described_and_has_no_defect(description: Any) -> None:
    asked = []
    for found in description.get_all_operations():

        @given(case=found.ok().as_strategy())
        @settings(
            max_examples=12, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate], database=None,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        def answers(case: Any) -> None:
            asked.append(case.path)
            case.call_and_validate(checks=CHECKS)

        answers()
    assert len(set(asked)) == 19
    assert len(asked) > 100


def test_the_description_names_every_route_with_examples(api: Served) -> None:
    told = api.ask("GET", "/openapi.json").json
    assert told["openapi"].startswith("3.1")
    for path, methods in told["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"].endswith("."), (method, path)
            assert operation["operationId"]
    schemas = told["components"]["schemas"]
    assert schemas["CrawlRequest"]["examples"]
    example = {**schemas["CrawlRequest"]["examples"][0], "name": "by-example", "spider": "nobody"}
    assert api.client.submit(**example) == {"id": "by-example", "created": True}
