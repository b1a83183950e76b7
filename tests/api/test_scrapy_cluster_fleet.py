"""Scrapy Cluster's statistics and domain updates: answered in its format from Shoal's numbers, or clearly refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from shoal.api.auth import create_token
from tests.api.process import ApiProcess, ApiResponse, serve_api

TOKENS = {role: create_token(role) for role in ("admin", "submit", "admin:shop")}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    folder = tmp_path_factory.mktemp("cluster-fleet")
    settings = f'[api]\nrate = 10000\n[outputs]\ndefault = "{folder / "pages.db"}"\n[tokens]\n'
    settings += "".join(f'{role.replace(":", "-")} = "{line}"\n' for role, (_, line) in TOKENS.items())
    with serve_api(folder / "served", settings=settings, token=TOKENS["admin"][0]) as api:
        yield api


def feed(api: ApiProcess, role: str = "admin", **fields: Any) -> ApiResponse:
    request = {"appid": "app", "uuid": "u1", **fields}
    return api.ask("POST", "/feed", request, Authorization=f"Bearer {TOKENS[role][0]}")


def test_statistics_come_from_the_frontier_in_scrapy_clusters_format(api: ApiProcess) -> None:
    for number, spider in ((1, "link"), (2, "link"), (3, "wiki")):
        response = api.ask(
            "POST", "/feed",
            {"url": f"http://h{number}.example/", "appid": "app", "crawlid": str(number), "spiderid": spider},
        )  # fmt: skip
        assert response.status == 200
    queue = feed(api, "submit", stats="queue").json["data"]
    assert (queue["stats"], queue["appid"], queue["uuid"]) == ("queue", "app", "u1")
    assert queue["server_time"] > 0
    link = queue["queues"]["queue_link"]
    assert (link["spider_backlog"], link["num_domains"]) == (2, 2)
    assert {"domain": "h1.example", "backlog": 1} in link["domains"]
    assert queue["queues"]["total_backlog"] == 3
    spiders = feed(api, stats="spider").json["data"]["spiders"]
    assert spiders["wiki"] == {
        "count": 0, "stored": {"lifetime": 0}, "failed": {"lifetime": 0}, "excluded": {"lifetime": 0},
    }  # fmt: skip
    assert (spiders["unique_spider_count"], spiders["total_spider_count"]) == (0, 0)
    assert feed(api, stats="machine").json["data"]["machines"] == {"count": 0}
    assert feed(api, stats="crawler").json["data"]["crawler"].keys() == {"spiders", "machines"}
    everything = feed(api).json["data"]
    assert everything["stats"] == "all"
    assert everything["queue"]["queues"] == queue["queues"]


@pytest.mark.parametrize("stats", ["kafka-monitor", "redis-monitor", "rest"])
def test_components_that_shoal_does_not_have_are_refused_with_the_alternative(api: ApiProcess, stats: str) -> None:
    response = feed(api, stats=stats)
    assert (response.status, response.json["status"]) == (400, "FAILURE")
    assert "is not supported" in response.json["error"]["message"]
    assert "/metrics" in response.json["error"]["message"]


def test_domains_are_slowed_and_blocked_by_administrators_of_the_fleet(api: ApiProcess) -> None:
    for role in ("submit", "admin:shop"):
        assert feed(api, role, action="blacklist-update", domain="slow.example").status == 403
    assert feed(api, "admin:shop", stats="queue").status == 403
    reply = feed(api, action="domain-update", domain="slow.example", hits=60, window=60, scale=0.5).json["data"]
    assert (reply["action"], reply["domain"], reply["uuid"]) == ("domain-update", "slow.example", "u1")
    assert api.ask("GET", "/v1/hosts/slow.example").json["delay_seconds"] == 2.0
    feed(api, action="blacklist-update", domain="slow.example")
    assert api.ask("GET", "/v1/hosts/slow.example").json["blocked"]
    for action in ("domain-remove", "blacklist-remove"):
        assert feed(api, action=action, domain="slow.example").status == 200
    host = api.ask("GET", "/v1/hosts/slow.example").json
    assert (host["delay_seconds"], host["blocked"]) == (None, "")
    assert feed(api, action="domain-update", domain="slow.example").status == 400
    changes = [json.loads(line) for line in api.output().splitlines() if '"host.changed"' in line]
    assert [change["changed"] for change in changes] == [
        ["domain-update"], ["blacklist-update"], ["domain-remove"], ["blacklist-remove"],
    ]  # fmt: skip
