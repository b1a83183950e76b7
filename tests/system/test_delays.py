"""How long a host gets no request, by its own log: from the end of one request to the start of the next."""

from __future__ import annotations

import time
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import pytest

from shoal.frontier.hosts import Host
from tests.site.judge import Judge
from tests.site.responses import Response, page, redirect, robots
from tests.system.crawls import Crawls, open_crawls

ALLOWED = "User-agent: *\nDisallow: /no\n"

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawls]:
    with open_crawls(tmp_path_factory.mktemp("delays"), hosts=80, workers=3) as opened:
        yield opened


def state(crawls: Crawls, host: str) -> Host:
    return crawls.do(crawls.frontier.hosts.get(host))


@pytest.mark.smoke
def test_the_delay_counts_from_the_end_of_a_slow_response(crawls: Crawls) -> None:
    late, long = crawls.site.take(2)
    responses: list[tuple[str, dict[str, Any]]] = [(late, {"after": 0.4}), (long, {"lasting": 0.4})]
    for host, options in responses:
        crawls.site.at(host, "/robots.txt", robots(ALLOWED, **options))
        for path in ("/", "/a", "/b", "/c"):
            crawls.site.at(
                host, path, Response(body='<a href="/a">a</a><a href="/b">b</a><a href="/c">c</a>', **options)
            )
    done = crawls.run(f"http://{late}/", f"http://{long}/", delay_seconds=0.3, delay_factor=0.0)
    assert done.counts.stored == 8
    assert not done.judge.impolite(0.3)


@pytest.mark.smoke
def test_three_workers_together_keep_the_delay(crawls: Crawls) -> None:
    hosts = crawls.site.take(16)
    tree = crawls.site.plant(96, hosts)
    done = crawls.run(tree.url(0), hosts=tuple(hosts), delay_seconds=0.1, scope="any")
    assert set(done.rows) == tree.walk()
    assert not done.judge.impolite(0.1)
    assert len({row["worker"] for row in done.rows.values()}) > 1, "one worker did it all: nothing was shown"


@pytest.mark.parametrize(("value", "seconds"), [("0.4", 0.4), (".35", 0.35), ("1", 1.0)])
def test_a_fractional_crawl_delay_is_kept_exactly(crawls: Crawls, value: str, seconds: float) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/robots.txt", robots(f"User-agent: *\nCrawl-delay: {value}\n"))
    tree = crawls.site.plant(5, [host], fan=5)
    # All are there from the start: they are leased together, before the Crawl-delay is known.
    done = crawls.run(*(tree.url(number) for number in range(5)), delay_seconds=0.05)
    assert done.counts.stored == 5
    assert not done.judge.impolite(seconds)
    assert state(crawls, host).crawl_delay_seconds == seconds


def test_a_crawl_delay_shorter_than_our_own_changes_nothing(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/robots.txt", robots("User-agent: *\nCrawl-delay: 0.1\n"))
    tree = crawls.site.plant(4, [host])
    done = crawls.run(tree.url(0), delay_seconds=0.3)
    assert not done.judge.impolite(0.3)


def test_the_crawl_delay_of_the_applicable_group_counts(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    groups = [
        "User-agent: *\nDisallow: /no\nCrawl-delay: 200\n",
        ALLOWED.replace("*", "shoal"),
        "User-agent: Shoal\nCrawl-delay: 0.3\n",
    ]
    crawls.site.at(host, "/robots.txt", robots("\n".join(groups)))
    tree = crawls.site.plant(4, [host])
    done = crawls.run(tree.url(0))
    assert done.counts.stored == 4
    assert not done.judge.impolite(0.3)


def test_a_crawl_delay_allows_one_slot_whatever_the_crawl_allows(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/robots.txt", robots("User-agent: *\nCrawl-delay: 0.2\n", after=0.1))
    tree = crawls.site.plant(10, [host], fan=10)
    done = crawls.run(tree.url(0), limits={"places": 4})
    assert not done.judge.impolite(0.2)


def test_all_slots_of_a_host_are_used_and_no_more(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/", page(*(f"/{number}" for number in range(24))))
    for number in range(24):
        crawls.site.at(host, f"/{number}", Response(body="slow", after=0.3))
    done = crawls.run(f"http://{host}/", limits={"places": 3}, delay_factor=0.0)
    assert not done.judge.crowded(places=3)
    assert done.judge.crowded(places=1), "places were not used"
    assert not done.judge.unannounced()


@pytest.mark.parametrize("absurd", ["-1", "nan", "10s", "inf", "", "1,5", "0x10"])
def test_a_crawl_delay_that_is_not_a_number_is_ignored(crawls: Crawls, absurd: str) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/robots.txt", robots(f"User-agent: *\nCrawl-delay: {absurd}\nDisallow: /no\n"))
    tree = crawls.site.plant(3, [host])
    done = crawls.run(tree.url(0))
    assert done.counts.stored == 3
    assert state(crawls, host).crawl_delay_seconds == 0


@pytest.mark.parametrize("absurd", ["1e9", "86400", "999999999999999999999999"])
def test_an_absurd_crawl_delay_is_capped(crawls: Crawls, absurd: str) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/robots.txt", robots(f"User-agent: *\nCrawl-delay: {absurd}\n"))
    crawl = crawls.begin(crawls.site.at(host, "/", page()))
    crawls.until(lambda: state(crawls, host).crawl_delay_seconds == 300, "the delay is 300 s")
    assert crawls.site.judge(host).paths(host) == ["/robots.txt"]
    crawls.do(crawls.frontier.crawls.stop(crawl))


def test_a_slow_server_is_given_a_delay_of_its_response_time(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    paths = [f"/{number}" for number in range(4)]
    crawls.site.at(host, "/", Response(body="".join(f'<a href="{path}">x</a>' for path in paths), after=0.4))
    for path in paths:
        crawls.site.at(host, path, Response(body="slow", after=0.4))
    done = crawls.run(f"http://{host}/", delay_factor=1.5, delay_seconds=0.05)
    # robots.txt, a 404, was fast; every page took 0.4 s.
    assert min(done.judge.gaps(host)[1:]) >= 0.6


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_kept_by_the_whole_fleet(crawls: Crawls, status: int, form: str) -> None:
    (host,) = crawls.site.take()
    # A date has whole seconds: one that is 3 s away may be 2 s and a bit.
    value = "2" if form == "seconds" else formatdate(time.time() + 4, usegmt=True)
    crawls.site.at(host, "/", Response(status=status, headers=(("Retry-After", value),)), page("/a"))
    crawls.site.at(host, "/a", page())
    began = time.time()
    done = crawls.run(f"http://{host}/")
    assert done.counts.stored == 2
    after = next(request for request in done.judge.requests if request.status == status)
    following = next(request for request in done.judge.requests if request.began > after.began)
    if form == "seconds":
        assert following.began - after.ended >= 2.0
    else:
        offset = time.time() - time.monotonic()
        assert following.began + offset >= int(began + 4) - 0.01


def test_a_huge_retry_after_is_kept_for_at_most_a_day(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/", Response(status=503, headers=(("Retry-After", "99999999999"),)))
    crawl = crawls.begin(f"http://{host}/")
    crawls.until(lambda: state(crawls, host).backoff_until > 0, "the host backs off")
    left = state(crawls, host).backoff_until - time.time()
    assert 86_000 < left <= 86_401
    crawls.do(crawls.frontier.crawls.stop(crawl))


def test_retry_after_on_robots_txt_is_kept_too(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    busy = Response(status=503, headers=(("Retry-After", "2"),))
    crawls.site.at(host, "/robots.txt", busy, robots(ALLOWED))
    done = crawls.run(crawls.site.at(host, "/", page()))
    assert done.judge.paths(host) == ["/robots.txt", "/robots.txt", "/"]
    assert done.judge.gaps(host)[0] >= 2.0


def test_a_retry_after_in_the_past_causes_the_usual_back_off(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    past = Response(status=503, headers=(("Retry-After", "Sun, 06 Nov 1994 08:49:37 GMT"),))
    done = crawls.run(crawls.site.at(host, "/", past, page()))
    assert done.judge.gaps(host)[-1] >= 2.5


def test_a_delay_set_by_an_operator_soon_applies_to_a_host_that_is_being_crawled(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    tree = crawls.site.plant(400, [host], fan=400)
    crawl = crawls.begin(tree.url(0), delay_seconds=0.02)
    crawls.until(lambda: len(crawls.site.requests(host)) > 10, "the crawl is under way")
    crawls.do(crawls.frontier.hosts.set_delay(host, 0.06))
    changed = time.monotonic()
    crawls.until(lambda: time.monotonic() > changed + 4, "time passes")
    crawls.do(crawls.frontier.crawls.stop(crawl))
    # A lease has visits for 2 s; those it had may still go by the delay it was given with.
    late = [request for request in crawls.site.requests(host) if request.began > changed + 2.5]
    assert late
    assert not Judge(late).impolite(0.06)


def test_robots_txt_redirects_and_retries_keep_the_delay_like_other_requests(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    site = crawls.site
    site.at(host, "/robots.txt", redirect("/rules"))
    site.at(host, "/rules", robots(ALLOWED))
    site.at(host, "/", page("/a", "/broken"))
    site.at(host, "/a", redirect("/b"))
    site.at(host, "/b", redirect("/c"))
    site.at(host, "/c", page())
    site.at(host, "/broken", Response(status=500), page())
    done = crawls.run(f"http://{host}/", delay_seconds=0.3)
    assert sorted(done.judge.paths(host)) == sorted(
        ["/robots.txt", "/rules", "/", "/a", "/b", "/c", "/broken", "/broken"]
    )
    assert not done.judge.impolite(0.3)


def test_a_failed_page_is_retried_with_growing_pauses_and_then_fails_with_its_reason(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/", Response(status=500))
    done = crawls.run(f"http://{host}/", retries=1)
    assert done.judge.times(f"http://{host}/") == 2
    assert done.counts.reasons["failed:status 500"] == 1
    (row,) = done.rows.values()
    assert (row["status"], row["error"], row["attempt"]) == (500, "status 500", 2)


@pytest.mark.parametrize("status", [400, 401, 404, 410])
def test_a_missing_page_is_not_requested_again(crawls: Crawls, status: int) -> None:
    (host,) = crawls.site.take()
    done = crawls.run(crawls.site.at(host, "/", Response(status=status)))
    assert done.judge.paths(host) == ["/robots.txt", "/"]
    assert done.counts.reasons == {f"failed:status {status}": 1}
