"""Politeness by the web server's own log: the limits of one Scrapy process apply to all of them together."""

from __future__ import annotations

import msgspec
import pytest

from shoal.frontier import Frontier
from shoal.politeness.robots_policy import RobotsCopy
from tests.scrapy.processes import Project
from tests.site.responses import Response, page, redirect, robots
from tests.site.site import Site

pytestmark = pytest.mark.full


@pytest.mark.smoke
def test_four_processes_together_keep_the_delay_from_the_end_of_each_request(site: Site, here: Project) -> None:
    hosts = site.take(2)
    tree = site.plant(24, hosts)
    here.crawl("tree", count=4, settings={"DOWNLOAD_DELAY": 0.2}, start=tree.url(0))
    judge = site.judge(*hosts)
    assert set(here.keys()) == tree.walk()
    assert not judge.impolite(0.2)
    # Scrapy's own slot would add up to half a delay more, and count it from the start of a request.
    gaps = sorted(gap for host in hosts for gap in judge.gaps(host))
    assert gaps[len(gaps) // 2] < 0.4, gaps


def test_slots_of_a_host_are_counted_over_all_processes(site: Site, here: Project) -> None:
    host = site.take(1)[0]
    paths = [f"/{number}" for number in range(24)]
    url = site.at(host, "/", page(*paths))
    for path in paths:
        site.at(host, path, Response(body="<p>slow", after=0.3))
    here.crawl("tree", count=2, settings={"CONCURRENT_REQUESTS_PER_DOMAIN": 3}, start=url)
    assert len(here.keys()) == 25
    judge = site.judge(host)
    assert not judge.crowded(3)
    assert judge.crowded(2), "three at once are allowed, and used"


def test_robots_txt_is_fetched_once_for_the_fleet_and_obeyed(scrapy: str, site: Site, here: Project) -> None:
    here.scrapy = scrapy
    first, second = site.take(2)
    for host in (first, second):
        site.at(host, "/robots.txt", robots("User-agent: *\nDisallow: /private\nCrawl-delay: 0.3\n"))
        site.at(host, "*", page("/a", "/b", "/private/c", f"http://{second}/d"))
    started = here.crawl("tree", count=3, settings={"ROBOTSTXT_OBEY": 1}, start=f"http://{first}/a")
    judge = site.judge(first, second)
    assert {item["key"] for item in here.items()} == {
        f"http://{first}/a", f"http://{first}/b", f"http://{second}/d", f"http://{second}/a", f"http://{second}/b",
    }  # fmt: skip
    assert [judge.paths(host).count("/robots.txt") for host in (first, second)] == [1, 1]
    assert not judge.unannounced()
    assert not judge.forbidden(lambda _, path: not path.startswith("/private"))
    assert not judge.impolite(0.3)
    assert sum(process.stat("robotstxt/forbidden") for process in started) == 2


def test_an_unavailable_robots_txt_postpones_its_host(site: Site, here: Project) -> None:
    host = site.take(1)[0]
    site.at(host, "/robots.txt", robots("busy", status=503), robots("User-agent: *\nDisallow: /b\n"))
    url = site.at(host, "/", page("/a", "/b"))
    site.at(host, "/a", page())
    here.crawl("tree", settings={"ROBOTSTXT_OBEY": 1}, start=url)
    assert set(here.keys()) == {url, f"{url}a"}
    judge = site.judge(host)
    assert judge.paths(host)[:3] == ["/robots.txt", "/robots.txt", "/"]
    assert "/b" not in judge.paths(host)


@pytest.mark.parametrize("count", [1, 3])
def test_a_robots_txt_on_another_host_keeps_the_delay_of_that_host(
    scrapy: str, site: Site, here: Project, count: int
) -> None:
    """By the process that leases that host: no request to it overlaps another, or starts too soon after one."""
    here.scrapy = scrapy
    first, second = site.take(2)
    moved = "/moved/robots.txt"
    site.at(first, "/robots.txt", redirect(f"http://{second}{moved}"))
    site.at(second, moved, robots("User-agent: *\nDisallow: /private\n", after=0.2))
    site.at(second, "/robots.txt", robots("User-agent: *\nDisallow: /closed\n", after=0.2))
    paths = [f"/{number}" for number in range(8)]
    site.at(second, "*", Response(body="<p>slow", after=0.2))
    url = site.at(second, "/", page(*paths, f"http://{first}/a"))
    site.at(first, "*", page("/b", "/private", "/closed"))
    settings = {"ROBOTSTXT_OBEY": 1, "DOWNLOAD_DELAY": 0.1}
    here.crawl("tree", count=count, settings=settings, start=url)
    judge = site.judge(first, second)
    assert set(here.keys()) == {
        url, *(f"http://{second}{path}" for path in paths),
        *(f"http://{first}/{name}" for name in ("a", "b", "closed")),
    }  # fmt: skip
    # One request each for the fleet; the rules are those of the host with the first request.
    assert judge.paths(first).count("/robots.txt") == 1
    assert judge.times(f"http://{second}{moved}") == 1
    assert "/private" not in judge.paths(first)
    assert not judge.impolite(0.1)
    # No page before the rules are known.
    known = next(request for request in judge.by_host[second] if request.path == moved)
    assert all(request.began > known.ended for request in judge.by_host[first] if not request.is_robots)


def test_two_hosts_whose_robots_txt_is_on_the_other_do_not_wait_for_each_other(site: Site, here: Project) -> None:
    first, second = site.take(2)
    for host, other in ((first, second), (second, first)):
        site.at(host, "/robots.txt", redirect(f"http://{other}/rules"))
        site.at(host, "/rules", robots("User-agent: *\nDisallow: /private\n"))
        site.at(host, "*", page("/a", "/private", f"http://{other}/"))
    here.crawl("tree", count=2, settings={"ROBOTSTXT_OBEY": 1, "DOWNLOAD_DELAY": 0.1}, start=f"http://{first}/")
    assert set(here.keys()) == {f"http://{host}/{path}" for host in (first, second) for path in ("", "a")}
    assert not site.judge(first, second).impolite(0.1)


def test_a_robots_txt_that_redirects_to_a_dead_host_postpones_its_host(site: Site, here: Project) -> None:
    host, dead = site.take(2)
    site.shut(dead)
    site.at(host, "/robots.txt", redirect(f"http://{dead}/robots.txt"), robots("User-agent: *\nDisallow: /b\n"))
    url = site.at(host, "/", page("/a", "/b"))
    site.at(host, "/a", page())
    here.crawl("tree", settings={"ROBOTSTXT_OBEY": 1}, start=url)
    assert set(here.keys()) == {url, f"{url}a"}
    assert site.judge(host).paths(host)[:3] == ["/robots.txt", "/robots.txt", "/"]


async def test_a_copy_that_is_a_day_old_is_confirmed_by_a_conditional_request(site: Site, here: Project) -> None:
    host = site.take(1)[0]
    site.at(host, "/robots.txt", robots("User-agent: *\nDisallow: /private\n", etag='"v1"'))
    url = site.at(host, "/", page("/private"))
    settings = {"ROBOTSTXT_OBEY": 1, "SCHEDULER_FLUSH_ON_START": 1, "USER_AGENT": "MyBot"}
    here.crawl("tree", settings=settings, start=url)
    name = f"http://{host} mybot/"
    async with await Frontier.open(folder=str(here.folder / ".shoal")) as frontier:
        stored, _ = await frontier.robots.read(host, name)
        assert stored, f"there is no copy under the name {name!r}"
        version, packed, *rest = msgspec.msgpack.decode(stored)
        copy = RobotsCopy.unpack(packed)
        older = msgspec.structs.replace(copy, confirmed_at=copy.confirmed_at - 86_401.0).pack()
        await frontier.robots.write(host, name, msgspec.msgpack.encode([version, older, *rest]), known=True)
    here.crawl("tree", settings=settings, start=url)
    judge = site.judge(host)
    first, again = (request for request in judge.requests if request.is_robots)
    assert "if-none-match" not in first.headers
    assert (again.headers["if-none-match"], again.status) == ('"v1"', 304)
    assert judge.paths(host) == ["/robots.txt", "/", "/robots.txt", "/"]


def test_the_retry_after_of_a_robots_txt_is_kept(site: Site, here: Project) -> None:
    host = site.take(1)[0]
    busy = robots("busy", status=503, headers=(("Retry-After", "1"),))
    site.at(host, "/robots.txt", busy, robots(""))
    url = site.at(host, "/", page())
    (process,) = here.crawl("tree", settings={"ROBOTSTXT_OBEY": 1}, start=url)
    assert set(here.keys()) == {url}
    assert "paused for 1 s" in process.output()
    assert min(site.judge(host).gaps(host)) < 2.5, "the server requested one second, not Shoal's own pause"


def test_autothrottle_slows_the_whole_fleet_down(site: Site, here: Project) -> None:
    host = site.take(1)[0]
    url = site.at(host, "/", page(*(f"/{number}" for number in range(6))))
    for number in range(6):
        site.at(host, f"/{number}", Response(body="<p>slow", after=0.3))
    settings = {"AUTOTHROTTLE_ENABLED": 1, "AUTOTHROTTLE_START_DELAY": 0.3}
    here.crawl("tree", count=2, settings=settings, start=url)
    judge = site.judge(host)
    assert len(here.keys()) == 7
    assert not judge.crowded()
    assert all(gap > 0.14 for gap in judge.gaps(host)), judge.gaps(host)


def test_a_cooling_host_does_not_delay_others(site: Site, here: Project) -> None:
    slow, quick = site.take(2)
    tree = site.plant(20, [quick], alike=0)
    slow_paths = [f"http://{slow}/{number}" for number in range(40)]
    for number in range(40):
        site.at(slow, f"/{number}", page())
    url = site.at(slow, "/", page(*slow_paths, tree.url(0)))
    settings = {"DOWNLOAD_DELAY": 0.1, "CONCURRENT_REQUESTS": 2}
    here.crawl("tree", settings=settings, start=url)
    requests = site.requests(slow, quick)
    places = [number for number, request in enumerate(requests) if request.host == quick]
    assert len(places) == 20
    assert places[-1] < len(requests) - 10, "the quick host's pages are through long before the slow one's"


def test_a_host_whose_slots_are_all_taken_does_not_delay_others(site: Site, here: Project) -> None:
    """In Scrapy alone the slow host's requests would wait in its slot, and all of CONCURRENT_REQUESTS with them."""
    slow, quick = site.take(2)
    tree = site.plant(20, [quick], alike=0)
    site.at(slow, "*", Response(body="<p>slow", after=0.4))
    url = site.at(slow, "/", page(*(f"/{number}" for number in range(10)), tree.url(0)))
    here.crawl("tree", settings={"CONCURRENT_REQUESTS_PER_DOMAIN": 1, "CONCURRENT_REQUESTS": 4}, start=url)
    requests = site.requests(slow, quick)
    places = [number for number, request in enumerate(requests) if request.host == quick]
    assert len(places) == 20
    assert len(requests) == 31
    assert places[-1] < len(requests) - 4, "the quick host's pages are through while the slow one's still come"


def test_hosts_that_wait_for_their_delay_do_not_block_others(site: Site, here: Project) -> None:
    """Scrapy takes two requests at once, and there are many more hosts than that."""
    first, *hosts = site.take(41)
    for host in hosts:
        site.at(host, "*", page())
    start = site.at(first, "/", page(*(f"http://{host}/{path}" for host in hosts for path in "ab")))
    here.crawl("tree", settings={"CONCURRENT_REQUESTS": 2, "DOWNLOAD_DELAY": 3}, start=start)
    requests = site.judge(*hosts).requests
    assert len(requests) == 80
    seen: set[str] = set()
    for request in requests:
        if request.host in seen:
            break
        seen.add(request.host)
    assert len(seen) > 20, "so many hosts had their first request before any had its second"


def test_urls_that_scrapys_own_parser_forbids_are_forbidden(site: Site, here: Project) -> None:
    """A user agent that imitates a browser, one of a single request, and a request that need not obey."""
    host = site.take(1)[0]
    groups = ("mybot\nDisallow: /a\nCrawl-delay: 0.3\n", "own\nDisallow: /b\n", "*\nDisallow: /c\n")
    rules = "\n".join(f"User-agent: {group}" for group in groups)
    site.at(host, "/robots.txt", robots(rules))
    site.at(host, "*", page())
    paths = ["/a", "/a?anyway", "/b", "/c", "/a?own", "/b?own"]
    agent = "Mozilla/5.0 (compatible; MyBot/1.0; +https://example.org/bot)"
    settings = {"ROBOTSTXT_OBEY": 1, "USER_AGENT": agent}
    here.crawl("errbacks", settings=settings, urls=",".join(f"http://{host}{path}" for path in paths))
    causes = {item["key"].removeprefix(f"http://{host}"): item["cause"] for item in here.items()}
    forbidden = "IgnoreRequest"
    assert causes == {
        "/a": forbidden, "/a?anyway": 200, "/b": 200, "/c": 200, "/a?own": 200, "/b?own": forbidden,
    }  # fmt: skip
    judge = site.judge(host)
    # One for each user agent.
    assert judge.paths(host).count("/robots.txt") == 2
    assert not judge.impolite(0.3)
