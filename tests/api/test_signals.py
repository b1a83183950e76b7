"""Signals pull visits of a perpetual crawl forward, with real workers on a real site: touch, sitemaps and feeds."""

from __future__ import annotations

import time

import pytest

from shoal.client import Client
from shoal.errors import CrawlEnded, InvalidInput, ShoalError
from shoal.frontier.signals import SignalKind
from shoal.parse.dates import timestamp
from shoal.parse.sitemap import Sitemap
from shoal.worker.page_signals import listed_hash
from tests.api.test_crawls import api, begin, client, crawls, ended
from tests.servers import wait_until
from tests.site.responses import Response, page, robots
from tests.system.crawls import Crawls

__all__ = ["api", "client", "crawls"]


def test_touched_pages_are_visited_soon_new_ones_are_added_and_others_reported(crawls: Crawls, client: Client) -> None:
    site = crawls.site
    (host,) = site.take()
    site.at(host, "/", page("/a", "/b"))
    for path in ("/a", "/b", "/fresh"):
        site.at(host, path, page())
    crawl = begin(client, f"http://{host}/", every="1d", deny=["secret"])

    def visits(path: str) -> int:
        return sum(request.path == path for request in site.requests(host))

    wait_until(lambda: client.crawl(crawl)["scheduled"] == 3, "all pages are in the calendar")
    urls = [f"http://{host}/a?utm_source=mail", f"http://{host}/fresh", f"http://{host}/secret", "http://a b/"]
    report = client.touch(crawl, urls)
    assert (report["touched"], report["new"]) == (1, 1)
    assert report["refused"][f"http://{host}/secret"] == "scope: deny pattern secret"
    assert set(report["refused"]) == set(urls[2:])
    wait_until(lambda: visits("/a") == 2 and visits("/fresh") == 1, "both are visited")
    wait_until(lambda: client.crawl(crawl)["scheduled"] == 4, "they are in the calendar again")
    assert visits("/b") == visits("/") == 1
    assert site.judge(host).crowded() == []
    client.stop(crawl)
    with pytest.raises(CrawlEnded):
        client.touch(crawl, [f"http://{host}/a"])


def test_a_crawl_that_is_not_perpetual_and_too_many_urls_are_refused(crawls: Crawls, client: Client) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/", page())
    once = begin(client, f"http://{host}/")
    with pytest.raises(InvalidInput, match="each page once"):
        client.touch(once, [f"http://{host}/"])
    ended(client, once)
    by_address = begin(client, f"http://{host}/", every="1d", by_address=True)
    with pytest.raises(InvalidInput, match="IP address"):
        client.touch(by_address, [f"http://{host}/"])
    client.stop(by_address)
    perpetual = begin(client, f"http://{host}/", every="1d")
    for urls in ([], [f"http://{host}/{number}" for number in range(1001)]):
        with pytest.raises(ShoalError, match="length"):
            client.touch(perpetual, urls)
    client.stop(perpetual)


def test_dates_in_sitemaps_and_feeds_pull_pages_forward(crawls: Crawls, client: Client) -> None:
    site = crawls.site
    (host,) = site.take()
    here = f"http://{host}"
    link = '<link rel=alternate type="application/atom+xml" href="/feed">'
    site.at(host, "/", page("/a", "/b", "/c", head=link))
    for path in ("/a", "/b", "/c", "/d"):
        site.at(host, path, page(head=link))
    site.at(host, "/robots.txt", robots(f"Sitemap: {here}/map.xml"))

    def lists(day: str) -> None:
        dates = f"<lastmod>{day}</lastmod>", f"<updated>{day}</updated>"
        site.at(host, "/map.xml", Response(
            body=f"<urlset><url><loc>{here}/a</loc>{dates[0]}</url><url><loc>{here}/c</loc><lastmod>1999</lastmod></url>"
            f"<url><loc>{here}/d</loc></url></urlset>", type="application/xml",
        ))  # fmt: skip
        site.at(host, "/feed", Response(
            body=f'<feed><entry><link href="/b"/>{dates[1]}</entry></feed>', type="application/atom+xml"
        ))  # fmt: skip

    lists("2001-02-03")
    crawl = begin(client, f"{here}/", every="1d", sitemaps=True)

    def visits(path: str) -> int:
        return sum(request.path == path for request in site.requests(host))

    wait_until(lambda: client.crawl(crawl)["scheduled"] == 7, "the pages, the sitemap and the feed are scheduled")
    (feed,) = [record for record in client.records(crawl) if record["url"] == f"{here}/feed"]
    assert feed["found"] == "sitemap"
    # It is compared by what it lists.
    entries = Sitemap(urls=(f"{here}/b",), changed_at={f"{here}/b": timestamp("2001-02-03")})
    assert feed["text_hash"] == listed_hash(entries)
    # Their interval is a day, and in an hour both will have changed.
    lists(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600)))
    client.touch(crawl, [f"{here}/map.xml", f"{here}/feed"])
    wait_until(lambda: visits("/a") == 2 and visits("/b") == 2, "what they report as changed is visited")
    wait_until(lambda: client.crawl(crawl)["scheduled"] == 7, "everything is scheduled again")
    assert {path: visits(path) for path in ("/", "/c", "/d", "/feed", "/map.xml")} == {
        "/": 1, "/c": 1, "/d": 1, "/feed": 2, "/map.xml": 2,
    }  # fmt: skip
    precision = crawls.do(crawls.frontier.signals.precision(crawl, host))
    assert precision[SignalKind.SITEMAP] == precision[SignalKind.FEED] == (1, 0)
    assert precision[SignalKind.TOUCH] == (2, 2)
    # A feed that has become something else is retired as a page that is gone.
    site.at(host, "/feed", Response(body="<p>Moved.", type="text/html"))
    for misses in (1, 2):
        before = visits("/feed")
        client.touch(crawl, [f"{here}/feed"])
        wait_until(lambda: visits("/feed") > before, f"visit {misses}")  # noqa: B023
        wait_until(lambda: client.crawl(crawl)["scheduled"] == 7, "it is scheduled again")
    assert any(record["url"] == f"{here}/feed" and record["error"] for record in client.records(crawl))
    assert site.judge(host).crowded() == []
    client.stop(crawl)
