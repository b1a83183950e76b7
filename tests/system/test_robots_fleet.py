"""robots.txt for a whole fleet: eight worker processes act as one (RFC 9309 2.4, and one request for all)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from shoal.model import Visit
from shoal.politeness.robots_policy import RobotsCopy
from tests.site.responses import Response, page, redirect, robots
from tests.system.crawls import Crawls, open_crawls

CLOSED = "User-agent: *\nDisallow: /private\n"
DAY = 86_400.0

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawls]:
    with open_crawls(tmp_path_factory.mktemp("fleet"), hosts=60, workers=8) as opened:
        yield opened


def age(crawls: Crawls, host: str, seconds: float) -> None:
    """Make the copy of a host's robots.txt older, as time would have."""
    name = f"http://{host} shoal"
    kept, _ = crawls.do(crawls.frontier.robots.read(host, name))
    assert kept, f"there is no copy under the name {name!r}"
    version, packed, *rest = msgspec.msgpack.decode(kept)
    copy = RobotsCopy.unpack(packed)
    older = msgspec.structs.replace(copy, confirmed_at=copy.confirmed_at - seconds).pack()
    changed = msgspec.msgpack.encode([version, older, *rest])
    crawls.do(crawls.frontier.robots.write(host, name, changed, known=True))


def test_eight_workers_request_each_robots_txt_once_and_before_any_page(crawls: Crawls) -> None:
    hosts = crawls.site.take(16)
    for host in hosts:
        crawls.site.at(host, "/robots.txt", robots("User-agent: *\nDisallow: /no\n", after=0.2))
    tree = crawls.site.plant(160, hosts)
    done = crawls.run(*(tree.url(number) for number in range(16)), hosts=tuple(hosts))
    assert set(done.rows) == tree.walk()
    assert all(done.judge.times(f"http://{host}/robots.txt") == 1 for host in hosts)
    assert not done.judge.unannounced()
    assert not done.judge.impolite(0.05)
    assert not {url: times for url, times in done.judge.repeated().items() if "robots" not in url}


def test_a_second_crawl_uses_the_robots_txt_of_the_first(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/robots.txt", robots(CLOSED))
    start = crawls.site.at(host, "/", page("/private"))
    crawls.run(start)
    done = crawls.run(start)
    assert done.judge.paths(host) == ["/robots.txt", "/", "/"]


def test_a_copy_that_is_a_day_old_is_confirmed_by_a_conditional_request(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/robots.txt", robots(CLOSED, etag='"v1"'))
    start = crawls.site.at(host, "/", page("/private"))
    crawls.run(start)
    age(crawls, host, DAY + 1)
    done = crawls.run(start)
    first, again = (request for request in done.judge.requests if request.is_robots)
    assert "if-none-match" not in first.headers
    assert again.headers["if-none-match"] == '"v1"'
    assert again.status == 304
    # Confirmed, it serves for another day.
    done = crawls.run(start)
    assert done.judge.paths(host) == ["/robots.txt", "/", "/robots.txt", "/", "/"]


def test_a_date_is_the_validator_if_there_is_no_etag(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    date = "Sun, 06 Nov 1994 08:49:37 GMT"
    crawls.site.at(host, "/robots.txt", robots(CLOSED, modified=date))
    start = crawls.site.at(host, "/", page("/private"))
    crawls.run(start)
    age(crawls, host, DAY + 1)
    done = crawls.run(start)
    again = [request for request in done.judge.requests if request.is_robots][-1]
    assert (again.headers.get("if-modified-since"), again.status) == (date, 304)


def test_a_day_old_copy_is_used_while_robots_txt_is_unavailable(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/robots.txt", robots(CLOSED))
    start = crawls.site.at(host, "/", page("/open", "/private"))
    crawls.run(start)
    crawls.site.at(host, "/robots.txt", Response(status=500))
    age(crawls, host, DAY + 1)
    done = crawls.run(start)
    assert done.counts.reasons.get("excluded:robots.txt") == 1
    assert done.counts.stored + done.counts.failed == 2
    assert "/private" not in done.judge.paths(host)
    assert done.judge.times(f"http://{host}/robots.txt") == 2


def test_a_copy_older_than_thirty_days_is_not_used(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/robots.txt", robots(CLOSED))
    start = crawls.site.at(host, "/", page("/open", "/private"))
    crawls.run(start)
    before = len(crawls.site.requests(host))
    crawls.site.at(host, "/robots.txt", Response(status=500))
    age(crawls, host, 30 * DAY + 1)
    crawl = crawls.begin(start)
    crawls.until(lambda: len(crawls.site.requests(host)) >= before + 2, "robots.txt is requested twice")
    assert {request.path for request in crawls.site.requests(host)[before:]} == {"/robots.txt"}
    crawls.do(crawls.frontier.crawls.stop(crawl))


@pytest.mark.smoke
def test_rules_that_change_during_a_crawl_apply_to_waiting_urls(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    site = crawls.site
    site.at(host, "/robots.txt", robots("User-agent: *\nDisallow: /no\n", etag='"open"'))
    tree = site.plant(300, [host], fan=300)
    crawl = crawls.begin(tree.url(0), delay_seconds=0.02)
    crawls.until(lambda: len(site.requests(host)) > 20, "the crawl is under way")
    site.at(host, "/robots.txt", robots("User-agent: *\nDisallow: /p/\n", etag='"shut"'))
    age(crawls, host, DAY + 1)
    done = crawls.finish(crawl, host)
    paths = done.judge.paths(host)
    assert paths.count("/robots.txt") == 2
    assert paths[-1] == "/robots.txt", "no page after the new rules"
    assert done.counts.reasons["excluded:robots.txt"] == done.counts.admitted - done.counts.stored > 0


def test_a_redirect_to_a_page_that_its_own_host_forbids_is_not_followed(crawls: Crawls) -> None:
    here, there = crawls.site.take(2)
    crawls.site.at(there, "/robots.txt", robots(CLOSED))
    crawls.site.at(there, "/private", page())
    crawls.site.at(there, "/open", page())
    crawls.site.at(here, "/a", redirect(f"http://{there}/private"))
    crawls.site.at(here, "/b", redirect(f"http://{there}/open"))
    start = crawls.site.at(here, "/", page("/a", "/b"))
    done = crawls.run(start, hosts=(here, there), scope="any")
    assert done.judge.paths(there) == ["/robots.txt", "/open"]
    assert done.counts.reasons["excluded:robots.txt"] == 1


def test_canonical_and_alternate_links_obey_the_rules_of_their_own_host(crawls: Crawls) -> None:
    here, there = crawls.site.take(2)
    crawls.site.at(there, "/robots.txt", robots(CLOSED + "Disallow: /secret\n"))
    for path in ("/private", "/secret", "/open"):
        crawls.site.at(there, path, page())
    head = "".join(
        f'<link rel="{relation}" href="http://{there}{path}">'
        for relation, path in (("canonical", "/private"), ("alternate", "/secret"), ("alternate", "/open"))
    )
    start = crawls.site.at(here, "/", page(head=head))
    links = ("a", "canonical", "alternate")
    done = crawls.run(start, hosts=(here, there), scope="any", links=links)
    assert done.judge.paths(there) == ["/robots.txt", "/open"]
    assert done.counts.reasons["excluded:robots.txt"] == 2


def test_a_visit_added_by_hand_is_checked_when_it_is_fetched(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/robots.txt", robots(CLOSED))
    start = crawls.site.at(host, "/", page())
    crawl = crawls.begin(start)
    crawls.do(crawls.frontier.add(crawl, [Visit(url=f"http://{host}/private", found="feed", priority=10)]))
    done = crawls.finish(crawl, host)
    assert set(done.judge.paths(host)) == {"/robots.txt", "/"}
