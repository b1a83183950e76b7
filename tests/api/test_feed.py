"""Scrapy Cluster's crawls belong to their application and spider, and a finished one accepts more URLs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shoal.api.auth import create_token
from tests.api.process import ApiProcess, ApiResponse, serve_api
from tests.site.responses import page
from tests.system.crawls import Crawls, open_crawls

TOKENS = {role: create_token(role) for role in ("admin", "submit:appa", "submit:appb", "submit:my-app")}


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawls]:
    folder = tmp_path_factory.mktemp("feed")
    with open_crawls(folder, hosts=10, settings={"outputs": {"default": str(folder / "default.db")}}) as crawls:
        yield crawls


@pytest.fixture(scope="module")
def api(crawls: Crawls) -> Iterator[ApiProcess]:
    settings = f'[api]\nrate = 100000\n[outputs]\ndefault = "{crawls.folder / "default.db"}"\n[tokens]\n'
    settings += "".join(f'{role.replace(":", "-")} = "{line}"\n' for role, (_, line) in TOKENS.items())
    where = ("--folder", crawls.folder / "store")
    with serve_api(crawls.folder / "served", *where, settings=settings, token=TOKENS["admin"][0]) as api:
        yield api


def ask(api: ApiProcess, role: str = "admin", **request: Any) -> ApiResponse:
    response = api.ask("POST", "/feed", request, Authorization=f"Bearer {TOKENS[role][0]}")
    assert response.json.keys() == {"status", "data", "error"}
    assert (response.json["status"] == "SUCCESS") == (response.status == 200) == (response.json["error"] is None)
    return response


def state(api: ApiProcess, crawl: str) -> str:
    return str(api.client.crawl(crawl)["state"])


def test_an_action_does_not_reach_a_crawl_of_another_application_with_that_name(api: ApiProcess) -> None:
    request = {"seeds": ["http://example.org/"], "name": "appa:x", "spider": "nobody"}
    response = api.ask("POST", "/v1/crawls", request, Authorization=f"Bearer {TOKENS['submit:appb'][0]}")
    assert response.status == 201
    for action in ("info", "stop", "expire"):
        for crawlid in ("x", "appa:x"):
            response = ask(api, "submit:appa", action=action, appid="appa", crawlid=crawlid, uuid="1")
            assert response.status == 404
            assert "has no crawl" in response.json["error"]["message"]
    assert state(api, "appb:appa:x") == "running"
    assert ask(api, "submit:appb", action="stop", appid="appb", crawlid="appa:x", uuid="1").status == 200
    assert state(api, "appb:appa:x") == "stopped"


def test_actions_on_an_application_apply_to_one_spider(api: ApiProcess) -> None:
    for crawlid, spider in (("one", "other"), ("two", "other"), ("three", "third")):
        request = {"url": "http://example.org/", "appid": "appa", "crawlid": crawlid, "spiderid": spider}
        assert ask(api, **request).status == 200
    act = {"appid": "appa", "uuid": "u"}
    data = ask(api, **act, action="info", spiderid="other").json["data"]
    assert (set(data["crawlids"]), data["spiderid"], data["total_pending"]) == ({"one", "two"}, "other", 2)
    for usual in ({"spiderid": "link"}, {}):
        data = ask(api, **act, **usual, action="info").json["data"]
        assert (data["total_crawlids"], data["spiderid"]) == (0, "link")
    for action in ("info", "stop"):
        response = ask(api, **act, action=action, crawlid="three", spiderid="other")
        assert response.status == 404
        assert "of spider 'other'" in response.json["error"]["message"]
    data = ask(api, **act, action="stop", spiderid="other").json["data"]
    assert data.pop("server_time") > 0
    assert data == {**act, "spiderid": "other", "action": "stop", "total_purged": 2}
    assert [state(api, f"appa:{crawlid}") for crawlid in ("one", "two", "three")] == ["stopped", "stopped", "running"]
    # A crawl without a named spider is found by its name.
    data = ask(api, **act, action="stop", crawlid="three").json["data"]
    assert (data["spiderid"], data["total_purged"]) == ("third", 1)
    assert ask(api, **act, action="expire").status == 400


def test_an_application_is_identified_by_the_name_that_it_uses(api: ApiProcess) -> None:
    sender = {"appid": "my app", "spiderid": "nobody"}
    for crawlid in ("plain", "with space"):
        assert ask(api, "submit:my-app", url="http://example.org/", crawlid=crawlid, **sender).status == 200
    data = ask(api, "submit:my-app", action="info", uuid="u", **sender).json["data"]
    assert (data["appid"], data["total_crawlids"]) == ("my app", 2)
    assert "plain" in data["crawlids"]
    for crawlid in data["crawlids"]:
        data = ask(api, "submit:my-app", action="stop", uuid="u", crawlid=crawlid, **sender).json["data"]
        assert (data["crawlid"], data["total_purged"]) == (crawlid, 1)


def test_an_impossible_action_is_reported_in_the_format_of_scrapy_cluster(api: ApiProcess) -> None:
    assert ask(api, "submit:appb", action="info", appid="appa", uuid="u").status == 403
    assert ask(api, url="http://example.org/", appid="appa", crawlid="shape", spiderid="nobody").status == 200
    assert ask(api, "submit:appa", action="stop", appid="appa", crawlid="shape", uuid="u").status == 200
    response = ask(api, url="http://example.org/2", appid="appa", crawlid="shape", spiderid="nobody")
    assert response.status == 409
    assert "exists and is stopped" in response.json["error"]["message"]


def test_a_request_that_has_expired_does_not_use_up_its_id(api: ApiProcess) -> None:
    request = {"url": "http://example.org/", "appid": "appa", "crawlid": "late", "spiderid": "nobody"}
    response = ask(api, **request, expires=1000)
    assert response.status == 400
    assert "is in the past" in response.json["error"]["message"]
    assert ask(api, **request).status == 200
    api.client.stop("appa:late")


@pytest.mark.full
def test_a_finished_crawl_accepts_more_urls(crawls: Crawls, api: ApiProcess) -> None:
    (host,) = crawls.site.take()
    for number in range(4):
        crawls.site.at(host, f"/{number}", page())
        assert ask(api, url=f"http://{host}/{number}", appid="appa", crawlid="many").status == 200
        assert api.client.wait("appa:many", timeout_seconds=60)["counts"]["stored"] == number + 1
    # The first one again is a message that came twice.
    assert ask(api, url=f"http://{host}/0", appid="appa", crawlid="many").status == 200
    assert crawls.site.judge(host).paths(host) == ["/robots.txt", "/0", "/1", "/2", "/3"]
    # In our own words an id is used once.
    response = api.ask("POST", "/v1/crawls", {"seeds": [f"http://{host}/9"], "name": "appa:many", "app": "appa"})
    assert response.status == 409


def test_a_crawl_that_ended_at_a_limit_stays_ended(crawls: Crawls, api: ApiProcess) -> None:
    (host,) = crawls.site.take()
    for path in "01":
        crawls.site.at(host, f"/{path}", page())
    request = {"seeds": [f"http://{host}/0", f"http://{host}/1"], "name": "appa:full", "app": "appa", "max_pages": 1}
    api.client.submit(**request, delay_seconds=0)
    assert api.client.wait("appa:full", timeout_seconds=60)["why"] != "finished"
    assert ask(api, url=f"http://{host}/2", appid="appa", crawlid="full").status == 409
