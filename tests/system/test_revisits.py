"""A page that is visited again is requested with its stored validator; 304 is a result like any other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shoal.model import Visit
from tests.site.responses import Response, html
from tests.system.crawls import Crawls, open_crawls

DATE = "Sun, 06 Nov 1994 08:49:37 GMT"


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawls]:
    with open_crawls(tmp_path_factory.mktemp("revisits"), hosts=10) as opened:
        yield opened


def again(crawls: Crawls, crawl: str, url: str) -> None:
    crawls.do(crawls.frontier.add(crawl, [Visit(url=url, found="revisit")], force=True))


@pytest.mark.parametrize(
    ("validators", "header", "value"),
    [
        ({"etag": '"v1"'}, "if-none-match", '"v1"'),
        ({"etag": 'W/"v1"'}, "if-none-match", 'W/"v1"'),
        ({"modified": DATE}, "if-modified-since", DATE),
        ({"etag": '"v1"', "modified": DATE}, "if-none-match", '"v1"'),
    ],
)
def test_an_unchanged_page_is_confirmed_by_304_and_keeps_its_row(
    crawls: Crawls, validators: dict[str, Any], header: str, value: str
) -> None:
    (host,) = crawls.site.take()
    url = crawls.site.at(host, "/", Response(body=html(title="Kept", body="Kept words."), **validators))
    crawl = crawls.begin(url)
    before = crawls.finish(crawl, host).rows[url]
    again(crawls, crawl, url)
    done = crawls.finish(crawl, host)
    first, second = (request for request in done.judge.requests if not request.is_robots)
    assert header not in first.headers
    assert (second.headers.get(header), second.status) == (value, 304)
    after = done.rows[url]
    assert (after["title"], after["text"], after["status"]) == (before["title"], before["text"], 200)
    assert after["title"] == "Kept"
    assert after["fetched_at"] > before["fetched_at"]
    assert done.counts.stored == 1


def test_a_changed_page_replaces_its_row(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    url = crawls.site.at(host, "/", Response(body=html(title="Old"), etag='"old"'))
    crawl = crawls.begin(url)
    crawls.finish(crawl, host)
    crawls.site.at(host, "/", Response(body=html(title="New"), etag='"new"'))
    again(crawls, crawl, url)
    done = crawls.finish(crawl, host)
    assert done.judge.requests[-1].headers["if-none-match"] == '"old"'
    assert (done.rows[url]["title"], done.rows[url]["etag"]) == ("New", '"new"')
    again(crawls, crawl, url)
    done = crawls.finish(crawl, host)
    assert done.judge.requests[-1].headers["if-none-match"] == '"new"'


def test_a_page_without_a_validator_is_requested_without_one_the_next_time(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    old = Response(body=html(title="Old"), etag='"old"')
    url = crawls.site.at(host, "/", old, Response(body=html(title="New")), old)
    crawl = crawls.begin(url)
    crawls.finish(crawl, host)
    for _ in range(2):
        again(crawls, crawl, url)
        done = crawls.finish(crawl, host)
    # A 304 to the first ETag would confirm a row that has another page by now.
    assert "if-none-match" not in done.judge.requests[-1].headers
    assert done.rows[url]["title"] == "Old"


def test_an_unrequested_304_is_not_a_page(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    done = crawls.run(crawls.site.at(host, "/", Response(status=304)))
    assert done.counts.stored == 0
    assert done.counts.reasons == {"failed:status 304": 1}
