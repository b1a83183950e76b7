"""Scrapy Cluster's own JSON: accepted unchanged, and answered in its format. Its programs need not change."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import InvalidInput
from shoal.model.crawl_request import CrawlRequest
from shoal.operations.scrapy_cluster import ClusterAction, cluster_name
from shoal.operations.submit import parse, to_submission
from shoal.urls.canonical import canonical
from shoal.urls.scope import Scope
from tests.api.process import ApiProcess, serve_api
from tests.site.responses import page
from tests.system.crawls import Crawls, open_crawls


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawls]:
    folder = tmp_path_factory.mktemp("cluster")
    with open_crawls(folder, hosts=10, settings={"outputs": {"default": str(folder / "default.db")}}) as crawls:
        yield crawls


@pytest.fixture(scope="module")
def api(crawls: Crawls) -> Iterator[ApiProcess]:
    settings = f'[outputs]\ndefault = "{crawls.folder / "default.db"}"\n'
    with serve_api(crawls.folder / "served", "--folder", crawls.folder / "store", settings=settings) as api:
        yield api


def feed(api: ApiProcess, **request: Any) -> Any:
    response = api.ask("POST", "/feed", request)
    assert response.json.keys() == {"status", "data", "error"}
    return response.json


def test_a_scrapy_cluster_request_is_crawled_with_its_limits(crawls: Crawls, api: ApiProcess) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/", page("/a", "/b.pdf", "/no"))
    crawls.site.at(host, "/a", page("/a/b"))
    crawls.site.at(host, "/a/b", page("/a/b/c"))
    reply = feed(
        api, url=f"http://{host}/", appid="testapp", crawlid="abc123", maxdepth=2, priority=90, deny_regex=["/no$"],
        deny_extensions=["pdf"], attrs={"mine": [1]}, useragent="TheirBot/1.0", cookie="c=1", expires=0,
        allowed_domains=[host.partition(":")[0]],
    )  # fmt: skip
    assert reply == {"status": "SUCCESS", "data": None, "error": None}
    done = api.client.wait("testapp:abc123", timeout_seconds=60)
    assert done["counts"]["stored"] == 3
    assert done["policy"]["app"] == "testapp"
    assert crawls.site.judge(host).paths(host) == ["/robots.txt", "/", "/a", "/a/b"]
    request = crawls.site.requests(host)[-1]
    assert (request.headers["user-agent"], request.headers["cookie"]) == ("TheirBot/1.0", "c=1")
    assert [record["attributes"] for record in api.client.records("testapp:abc123")] == [{"mine": [1]}] * 3


def test_more_urls_join_a_crawl_and_actions_are_answered_in_the_format_of_scrapy_cluster(
    crawls: Crawls, api: ApiProcess
) -> None:
    first, second = crawls.site.take(2)
    api.client.change_host(first, delay_seconds=600)
    for host, paths in ((first, "abc"), (second, "a")):
        for path in paths:
            assert (
                feed(api, url=f"http://{host}/{path}", appid="testapp", crawlid="two", spiderid="other")["error"]
                is None
            )
    data = feed(api, action="info", appid="testapp", crawlid="two", uuid="u1", spiderid="other")["data"]
    assert data.pop("server_time") == pytest.approx(time.time(), abs=60)
    assert data == {
        "uuid": "u1", "appid": "testapp", "crawlid": "two", "spiderid": "other", "total_pending": 4, "total_domains": 2,
        "domains": {
            first: {"low_priority": 0, "high_priority": 0, "total": 3},
            second: {"low_priority": 0, "high_priority": 0, "total": 1},
        },
    }  # fmt: skip
    data = feed(api, action="info", appid="testapp", uuid="u2", spiderid="other")["data"]
    assert data["total_crawlids"] == 1
    assert data["crawlids"]["two"]["total"] == data["total_pending"] == 4
    assert data["crawlids"]["two"]["distinct_domains"] == data["total_domains"] == 2
    data = feed(api, action="stop", appid="testapp", crawlid="two", uuid="u3", spiderid="other")["data"]
    assert (data["action"], data["total_purged"], data["uuid"]) == ("stop", 4, "u3")
    assert api.client.crawl("testapp:two")["state"] == "stopped"
    # The same message again is not an error; another URL for a stopped crawl is.
    assert feed(api, url=f"http://{first}/a", appid="testapp", crawlid="two", spiderid="other")["status"] == "SUCCESS"
    assert api.ask("POST", "/feed", {"url": f"http://{first}/z", "appid": "testapp", "crawlid": "two"}).status == 409


def test_the_expire_action_ends_a_crawl_at_once(crawls: Crawls, api: ApiProcess) -> None:
    (host,) = crawls.site.take()
    feed(api, url=f"http://{host}/", appid="testapp", crawlid="old", spiderid="other")
    data = feed(api, action="expire", appid="testapp", crawlid="old", uuid="u", spiderid="other")["data"]
    assert (data["action"], data["total_expired"]) == ("expired", 1)
    assert api.client.crawl("testapp:old")["state"] == "expired"


def test_errors_are_reported_in_the_format_of_scrapy_cluster(api: ApiProcess) -> None:
    response = api.ask("POST", "/feed", {"url": "http://a/", "appid": "testapp", "crawlid": "x", "crazykey": 1})
    assert response.status == 400
    assert response.json["status"] == "FAILURE"
    assert "crazykey" in response.json["error"]["message"]


def test_without_a_default_output_requests_are_refused_in_the_format_of_scrapy_cluster(tmp_path: Path) -> None:
    with serve_api(tmp_path) as api:
        response = api.ask("POST", "/feed", {"url": "http://a.example/", "appid": "testapp", "crawlid": "x"})
        assert (response.status, response.json["status"]) == (400, "FAILURE")
        assert "name an output `default` in [outputs] of shoal.toml" in response.json["error"]["message"]
        response = api.ask("POST", "/v1/crawls", {"seeds": ["http://a.example/"]})
        assert response.status == 422
        assert response.json["detail"].startswith('No output: pass e.g. "outputs": ["NAME"] in the request, or')
        assert list(api.client.crawls()) == []


def test_fields_mean_the_same_as_in_scrapy_cluster() -> None:
    fields = {"url": "http://www.cnn.com/", "appid": "app", "crawlid": "c"}
    request = parse(fields)
    assert isinstance(request, CrawlRequest)
    assert (request.max_depth, request.scope, request.priority, request.spider) == (0, "any", 0, "")
    assert (request.name, request.app, request.joins) == ("app:c", "app", True)
    request = parse({**fields, "spiderid": "link", "priority": 100, "domain_max_pages": 7, "expires": 5, "attrs": None})
    assert isinstance(request, CrawlRequest)
    assert (request.spider, request.priority, request.max_pages_per_host, request.expires_at) == ("", 10, 7, 5.0)
    action = parse(b'{"action": "info", "appid": "a", "uuid": "u", "spiderid": "link"}')
    assert isinstance(action, ClusterAction)
    assert cluster_name("a", "x y") != cluster_name("a", "x-y")
    assert cluster_name("a" * 100, "b" * 100) != cluster_name("a" * 100, "b" * 99)


@pytest.mark.parametrize(
    ("domains", "patterns", "inside", "outside"),
    [
        (["cnn.com"], [], ["http://www.cnn.com/x", "http://cnn.com/"], ["http://bbc.co.uk/", "http://xcnn.com/"]),
        (
            ["cnn.com"],
            ["^http://[a-z]+.cnn.com/a"],
            ["http://www.cnn.com/a"],
            ["http://www.cnn.com/b", "http://x.org/a"],
        ),
        (["docs.bbc.co.uk"], [], ["http://docs.bbc.co.uk/x"], ["http://www.bbc.co.uk/", "http://xdocs.bbc.co.uk/"]),
        ([], ["/a"], ["http://x.org/a"], ["http://x.org/b"]),
        ([], [], ["http://x.org/a"], []),
    ],
)
def test_allowed_domains_and_patterns_must_both_match(
    domains: list[str], patterns: list[str], inside: list[str], outside: list[str]
) -> None:
    fields = {"url": "http://www.cnn.com/", "appid": "app", "crawlid": "c"}
    request = parse({**fields, "allowed_domains": domains, "allow_regex": patterns})
    assert isinstance(request, CrawlRequest)
    spec = to_submission(request).spec
    scope = Scope(spec.scope, [canonical(seed) for seed in spec.seeds], allow=spec.allow, deny=spec.deny)
    for url in inside:
        assert scope.verdict(canonical(url)) == "", url
    for url in outside:
        assert scope.verdict(canonical(url)) != "", url


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"{", b"[]", b"null", b'"x"', b"[" * 100_000, b"\xff\xfe", b"\x80\x04}q.",
        b'{"url": 1, "appid": "a"}', b'{"action": "drop"}', b'{"seeds": ["http://a/"], "priority": 11}', b'{"seeds": "http://a/"}',
        b'{"seeds": ["http://a/"], "attributes": []}', b"x" * 5_000_000,
    ],
)  # fmt: skip
def test_a_message_that_is_not_a_request_is_refused_in_one_sentence(raw: bytes) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(raw)
    assert str(refused.value).endswith(".")
    assert len(str(refused.value)) < 300
