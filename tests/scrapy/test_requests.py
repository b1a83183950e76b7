"""The fields of requests and their handling: as in Scrapy, in whichever process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.frontier import Frontier
from tests.scrapy.processes import project
from tests.servers import wait_until
from tests.site.responses import Response, page, redirect, robots
from tests.site.site import Site, serving

pytestmark = pytest.mark.full


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with serving(tmp_path / "site", hosts=2) as served:
        yield served


async def test_forms_cookies_items_errbacks_redirects_and_retries_behave_as_in_scrapy(
    scrapy: str, site: Site, tmp_path: Path
) -> None:
    host = site.take(1)[0]
    base = f"http://{host}/"
    site.at(host, "/login", Response(body="<p>in", headers=(("Set-Cookie", "session=s3cret; Path=/"),)))
    for number in range(6):
        site.at(host, f"/book/{number}", page())
    site.at(host, "/api", page())
    site.at(host, "/gone", Response(status=404, body="no"))
    site.at(host, "/moved", redirect("/there"))
    site.at(host, "/there", page())
    site.at(host, "/flaky", Response(status=503, body="not yet"), page())
    site.at(host, "/broken", page())
    with project(tmp_path / "project", scrapy=scrapy, SCHEDULER_PERSIST=1) as here:
        started = here.crawl("shop", count=3, settings={"DOWNLOAD_DELAY": 0.05}, start=base)
        items = {item["key"]: item for item in here.items()}
        output = "".join(process.output() for process in started)
        async with await Frontier.open(folder=str(here.folder / ".shoal")) as frontier:
            crawls = [crawl.id async for crawl in frontier.crawls.all()]
            counts = await frontier.crawls.count(crawls[0])
            failed = await frontier.crawls.failed(crawls[0])
    assert len(items) == len(here.items()) == 11, here.items()
    for number in range(6):
        assert items[f"book {number}"]["seen"] == [["poems", "2026-01-02", [1, 2], "tuple", "Shelf"]]
    assert items["api"] == {"key": "api", "body": '{"a": [1]}', "pages": [3, 4], "type": "set"}
    assert items["gone"] == {"key": "gone", "status": 404, "what": "gone"}
    assert items["moved"] == {"key": "moved", "url": f"{base}there", "tag": "tuple"}
    assert items["flaky"] == {"key": "flaky", "times": 1}
    # The session that one process opened is known to all.
    inside = [request for request in site.requests() if request.path != "/login"]
    assert len(inside) == 13
    assert {request.headers.get("cookie") for request in inside} == {"session=s3cret"}
    assert [request.method for request in site.requests() if request.path in ("/login", "/api")] == ["POST", "POST"]
    # A value that cannot be stored is reported once, with the name of its field, and has no other effect.
    assert "callback is 'Shop.inside.<locals>.<lambda>', which is not a method of spider shop" in output
    assert "meta['deep'][0]['it'] cannot be stored: it is a builtins.object" in output
    assert sum(process.stat("scheduler/unserializable") for process in started) == 2
    assert (counts.open, counts.failed, counts.excluded) == (0, 1, 1)
    assert counts.reasons == {"failed:spider: KeyError": 1, "excluded:retried": 1}
    assert [(visit.url, reason) for visit, reason in failed] == [(f"{base}broken", "spider: KeyError")]


def _serve_large(site: Site) -> str:
    host = site.take(1)[0]
    site.at(host, "/robots.txt", robots("User-agent: *\nDisallow: /forbidden\n"))
    site.at(host, "*", page())
    return f"http://{host}/"


def test_large_requests_and_long_urls_are_sent_once_and_keep_the_delay_of_their_host(
    site: Site, tmp_path: Path
) -> None:
    start = _serve_large(site)
    with project(tmp_path / "project", ROBOTSTXT_OBEY=1, DOWNLOAD_DELAY=0.3, URLLENGTH_LIMIT=0) as here:
        started = here.crawl("large", count=2, start=start, size="1000000")
        sizes = {item["key"]: item.get("size", 0) for item in here.items()}
    assert here.keys() == {"start": 1, "form": 1, "meta": 1, "long": 1}
    assert all(sizes[key] > 999_000 for key in ("form", "meta"))
    assert sizes["long"] > 9000
    assert sum(process.stat("scheduler/too_large") for process in started) == 0
    assert not site.judge().impolite(0.3)
    assert not any("/forbidden" in request.path for request in site.requests())


def test_a_request_beyond_the_limit_stays_in_its_process_until_it_is_done(site: Site, tmp_path: Path) -> None:
    start = _serve_large(site)
    limits = {"SHOAL_MAX_REQUEST_BYTES": 50_000, "SHOAL_FRONTIER_LEASE_SECONDS": 2}
    with project(tmp_path / "project", DOWNLOAD_DELAY=1, URLLENGTH_LIMIT=0) as here:
        here.settings |= limits
        process = here.start("large", start=start, size="100000")
        wait_until(lambda: "Such requests stay in the process" in process.output(), "it logs the limit")
        here.wait_for_items(1)
        process.kill()
        before = here.keys()
        assert len(before) < 4, "it was killed before its requests were made"
        here.crawl("large", start=start, size="100000")
        assert set(here.keys()) == {"start", "form", "meta", "long", "forbidden"}
        # Its parent was not acknowledged, so that it was made again.
        assert here.keys()["start"] == 2
        assert not site.judge().impolite(1.0)
