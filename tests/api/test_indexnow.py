"""IndexNow with real workers on a real site: who may report pages, the responses, and the requests that follow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shoal.frontier.signals import SignalKind
from shoal.operations.indexnow import IndexNow, Refused
from shoal.settings import ApiSettings, Settings
from tests.api.process import ApiProcess, ApiResponse, serve_api
from tests.api.test_crawls import api, begin, client, crawls
from tests.servers import wait_until
from tests.site.responses import Response, page, redirect
from tests.system.crawls import Crawls

__all__ = ["api", "client", "crawls"]
KEY = "0123456789abcdef"


@pytest.fixture(scope="module")
def reporting(crawls: Crawls) -> Iterator[ApiProcess]:
    settings = f'[api]\nindexnow = "news, other"\n[outputs]\nmain = "{crawls.folder / "api.db"}"\n'
    with serve_api(crawls.folder / "reporting", "--folder", crawls.folder / "store", settings=settings) as api:
        yield api


@pytest.fixture(scope="module")
def news(crawls: Crawls, reporting: ApiProcess) -> Iterator[str]:
    """The host of a perpetual crawl with three pages, and with a key."""
    (host,) = crawls.site.take()
    crawls.site.at(host, "/", page("/a", "/b"))
    for path in ("/a", "/b"):
        crawls.site.at(host, path, page())
    crawls.site.at(host, f"/{KEY}.txt", Response(body=f"{KEY}\n", type="text/plain"))
    begin(reporting.client, f"http://{host}/", name="news", every="1d", scope="domain")
    wait_until(lambda: reporting.client.crawl("news")["scheduled"] == 3, "its pages are scheduled")
    yield host
    reporting.client.stop("news")


def settled(reporting: ApiProcess, method: str, path: str, body: Any = None) -> ApiResponse:
    """Repeat a request while the status is 429, and return the last response."""
    responses: list[ApiResponse] = []

    def is_accepted() -> bool:
        responses.append(reporting.ask(method, path, body))
        return responses[-1].status != 429

    wait_until(is_accepted, "the request is accepted")
    return responses[-1]


def post(reporting: ApiProcess, host: str, *paths: str, key: str = KEY, **more: Any) -> int:
    body = {"host": host, "key": key, "urlList": [f"http://{host}{path}" for path in paths], **more}
    return settled(reporting, "POST", "/indexnow", body).status


def visits(crawls: Crawls, host: str, path: str) -> int:
    return sum(request.path == path for request in crawls.site.requests(host))


@pytest.mark.full
def test_reported_pages_are_visited_and_the_key_is_requested_once(
    crawls: Crawls, reporting: ApiProcess, news: str
) -> None:  # fmt: skip
    assert post(reporting, news, "/a") == 200
    wait_until(lambda: visits(crawls, news, "/a") == 2, "the page is visited")
    assert settled(reporting, "GET", f"/indexnow?url=http%3A%2F%2F{news}%2Fb&key={KEY}").status == 200
    wait_until(lambda: visits(crawls, news, "/b") == 2, "the other page is visited")
    assert visits(crawls, news, f"/{KEY}.txt") == 1
    wait_until(lambda: reporting.client.crawl("news")["scheduled"] == 3, "its pages are scheduled again")
    assert crawls.do(crawls.frontier.signals.precision("news", news)) == {SignalKind.INDEXNOW: (2, 0)}
    assert crawls.site.judge(news).crowded() == []


@pytest.mark.full
def test_a_key_that_the_site_does_not_have_is_refused_and_not_requested_again(
    crawls: Crawls, reporting: ApiProcess, news: str
) -> None:  # fmt: skip
    before = visits(crawls, news, "/")
    for key, response in {
        "another-key": Response(body=KEY, type="text/plain"), "moved-key": redirect(f"/{KEY}.txt"),
    }.items():  # fmt: skip
        crawls.site.at(news, f"/{key}.txt", response)
        assert post(reporting, news, "/", key=key) == 403
        assert post(reporting, news, "/", key=key) == 403
        assert visits(crawls, news, f"/{key}.txt") == 1
    assert visits(crawls, news, "/") == before


def test_an_invalid_notification_is_refused_without_a_request(
    crawls: Crawls, reporting: ApiProcess, news: str
) -> None:  # fmt: skip
    (other,) = crawls.site.take()
    before = len(crawls.site.requests(news))
    there = f"http://{other}/{KEY}.txt"
    assert post(reporting, news, "/a", key="short") == 422
    assert post(reporting, news, "/a", key="no/../path") == 422
    assert post(reporting, news, "/a", urlList=[f"http://{news}/a", f"http://{other}/"]) == 422
    assert post(reporting, news, "/a", keyLocation=there) == 422
    assert post(reporting, news, "/a", keyLocation=f"http://{news}/folder/{KEY}.txt") == 422
    assert post(reporting, news, "/a", urlList=["no URL"]) == 400
    assert post(reporting, news) == 400
    assert settled(reporting, "POST", "/indexnow", b"{").status == 415
    assert settled(reporting, "POST", "/indexnow", {"host": news}).status == 400
    assert settled(reporting, "GET", f"/indexnow?url=http://{news}/a").status == 400
    # Of a host that no crawl covers, nothing is requested.
    assert post(reporting, "pages.example", "/a") == 202
    assert (len(crawls.site.requests(news)), len(crawls.site.requests(other))) == (before, 0)


def test_a_private_address_is_not_requested_unless_it_is_allowed(crawls: Crawls, news: str) -> None:
    before = len(crawls.site.requests(news))
    guarded = IndexNow(crawls.frontier, Settings(api=ApiSettings(indexnow="news")))
    statuses: list[int] = []

    def refused() -> bool:
        with pytest.raises(Refused) as error:
            crawls.do(guarded.accept([f"http://{news}/a"], KEY))
        statuses.append(error.value.status)
        return statuses[-1] != 429

    wait_until(refused, "the host may be requested")
    assert statuses[-1] == 403
    assert len(crawls.site.requests(news)) == before


def test_indexnow_is_off_unless_crawls_are_named(api: ApiProcess) -> None:
    assert api.ask("GET", f"/indexnow?url=http://a.example/&key={KEY}").status == 404
    assert api.ask("POST", "/indexnow", {}).status == 404


def test_one_address_cannot_send_without_limit(reporting: ApiProcess) -> None:
    responses = [reporting.ask("GET", "/indexnow") for _ in range(40)]
    refused = [response for response in responses if response.status == 429]
    assert refused
    assert all(response.headers["retry-after"] == "1" for response in refused)
    assert {response.status for response in responses} <= {400, 429}
