"""robots.txt as real servers respond to it (RFC 9309 2.2.1, 2.3, 2.5), judged by the requests they got."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from tests.site.judge import Judge
from tests.site.responses import Response, page, redirect, robots
from tests.system.crawls import Crawls, open_crawls

CLOSED = "User-agent: *\nDisallow: /private\n"
DELAY = 0.05

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawls]:
    with open_crawls(tmp_path_factory.mktemp("robots"), hosts=90, workers=2, second_port=True) as opened:
        yield opened


def furnish(crawls: Crawls, host: str, *responses: Response) -> str:
    """A start page with links to a page for everybody and one that a robots.txt may close."""
    start = crawls.site.at(host, "/", page("/open", "/private"))
    crawls.site.at(host, "/open", page(title="Open"))
    crawls.site.at(host, "/private", page(title="Private"))
    if responses:
        crawls.site.at(host, "/robots.txt", *responses)
    return start


def pages(judge: Judge, host: str) -> set[str]:
    return {path for path in judge.paths(host) if path != "/robots.txt"}


@pytest.mark.smoke
def test_the_product_token_is_in_every_user_agent_header_and_its_group_is_obeyed(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    text = "User-agent: *\nDisallow: /open\n\nUser-agent: SHOAL\nDisallow: /private\n"
    done = crawls.run(furnish(crawls, host, robots(text)))
    assert pages(done.judge, host) == {"/", "/open"}
    assert {request.headers["user-agent"].partition("/")[0] for request in done.judge.requests} == {"Shoal"}
    assert not done.judge.unannounced()


def test_a_custom_user_agent_selects_its_own_group(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    text = "User-agent: *\nDisallow: /\n\nUser-agent: librarian\nDisallow: /private\n"
    agent = "Librarian/2.0 (+https://library.example/robot)"
    done = crawls.run(furnish(crawls, host, robots(text)), user_agent=agent)
    assert pages(done.judge, host) == {"/", "/open"}
    assert {request.headers["user-agent"] for request in done.judge.requests} == {agent}


def test_a_forbidden_page_is_excluded_with_its_reason_and_has_no_row(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    done = crawls.run(furnish(crawls, host, robots(CLOSED)))
    assert (done.counts.stored, done.counts.excluded) == (2, 1)
    assert done.counts.reasons["excluded:robots.txt"] == 1
    assert set(done.rows) == {f"http://{host}/", f"http://{host}/open"}


def test_robots_txt_is_ignored_only_on_request_and_every_row_records_it(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    done = crawls.run(furnish(crawls, host, robots("User-agent: *\nDisallow: /\n")), ignore_robots=True)
    assert pages(done.judge, host) == {"/", "/open", "/private"}
    assert [row["robots_ignored"] for row in done.rows.values()] == [1, 1, 1]


def test_two_ports_of_one_address_have_separate_rules(crawls: Crawls) -> None:
    (first,) = crawls.site.take()
    second = crawls.site.beside(first)
    seeds = [
        furnish(crawls, first, robots("User-agent: *\nDisallow: /open\n")),
        furnish(crawls, second, robots(CLOSED)),
    ]
    done = crawls.run(*seeds)
    assert pages(done.judge, first) == {"/", "/private"}
    assert pages(done.judge, second) == {"/", "/open"}
    assert not done.judge.unannounced()


def test_two_names_of_one_address_have_separate_rules(crawls: Crawls) -> None:
    first, second = crawls.site.name("localhost"), crawls.site.name("127.0.0.1")
    seeds = [
        furnish(crawls, first, robots("User-agent: *\nDisallow: /open\n")),
        furnish(crawls, second, robots(CLOSED)),
    ]
    done = crawls.run(*seeds)
    assert pages(done.judge, first) == {"/", "/private"}
    assert pages(done.judge, second) == {"/", "/open"}


@pytest.mark.smoke
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirected_robots_txt_is_obeyed(crawls: Crawls, status: int) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/elsewhere.txt", robots(CLOSED))
    done = crawls.run(furnish(crawls, host, redirect("elsewhere.txt", status)))
    assert pages(done.judge, host) == {"/elsewhere.txt", "/", "/open"}
    assert done.judge.paths(host)[:2] == ["/robots.txt", "/elsewhere.txt"]
    assert not done.judge.impolite(DELAY)


def test_five_redirects_over_five_hosts_are_followed_and_the_rules_are_those_of_the_first(crawls: Crawls) -> None:
    hosts = crawls.site.take(6)
    for hop, there in enumerate(hosts[1:], 1):
        path = "/robots.txt" if hop == 1 else f"/hop{hop - 1}.txt"
        crawls.site.at(hosts[hop - 1], path, redirect(f"http://{there}/hop{hop}.txt"))
    crawls.site.at(hosts[5], "/hop5.txt", robots(CLOSED))
    # The last of them has no robots.txt of its own: there, everything is allowed.
    seeds = [furnish(crawls, hosts[0]), furnish(crawls, hosts[5])]
    done = crawls.run(*seeds, hosts=tuple(hosts))
    assert pages(done.judge, hosts[0]) == {"/", "/open"}
    assert pages(done.judge, hosts[5]) == {"/hop5.txt", "/", "/open", "/private"}
    for hop in range(1, 6):
        assert done.judge.times(f"http://{hosts[hop]}/hop{hop}.txt") == 1
    assert done.judge.times(f"http://{hosts[0]}/robots.txt") == 1
    assert not done.judge.impolite(DELAY)


def test_a_robots_txt_with_endless_redirects_counts_as_missing(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    done = crawls.run(furnish(crawls, host, redirect("/robots.txt")))
    assert pages(done.judge, host) == {"/", "/open", "/private"}
    assert 6 <= done.judge.times(f"http://{host}/robots.txt") <= 21


def test_a_robots_txt_that_redirects_to_a_broken_host_makes_the_first_host_back_off(crawls: Crawls) -> None:
    host, broken = crawls.site.take(2)
    crawls.site.at(broken, "/rules.txt", Response(status=503))
    crawl = crawls.begin(furnish(crawls, host, redirect(f"http://{broken}/rules.txt")))
    site = crawls.site
    crawls.until(lambda: len(site.requests(broken)) >= 1, "the broken host gets a request")
    # Without a back-off there would be many more: the delay is 0.05 s, the next look is after 1 s.
    crawls.until(lambda: len(site.requests(broken)) >= 2, "it gets another request")
    judge = site.judge(host, broken)
    assert set(judge.paths(host)) == {"/robots.txt"}
    assert judge.gaps(broken)[0] > 2.0
    assert len(judge.paths(host)) <= 3
    crawls.do(crawls.frontier.crawls.stop(crawl))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 418, 451, 499])
def test_without_a_robots_txt_everything_is_allowed(crawls: Crawls, status: int) -> None:
    (host,) = crawls.site.take()
    done = crawls.run(furnish(crawls, host, Response(status=status, body=CLOSED, type="text/plain")))
    assert pages(done.judge, host) == {"/", "/open", "/private"}
    assert done.judge.times(f"http://{host}/robots.txt") == 1


UNREACHABLE = {
    "429": Response(status=429),
    "500": Response(status=500, body=CLOSED),
    "502": Response(status=502),
    "503": Response(status=503),
    "504": Response(status=504),
    "599": Response(status=599),
    "999": Response(status=999),
    "closed": Response(fault="close"),
    "reset": Response(fault="reset"),
    "silent": Response(fault="silent"),
    "cut": robots(CLOSED, cut=20),
}


def test_while_robots_txt_is_unavailable_nothing_else_is_requested_and_no_page_is_lost(crawls: Crawls) -> None:
    site, frontier = crawls.site, crawls.frontier
    hosts = dict(zip(UNREACHABLE, site.take(len(UNREACHABLE)), strict=True))
    seeds = [furnish(crawls, host, UNREACHABLE[name]) for name, host in hosts.items()]
    crawl = crawls.begin(*seeds, timeout_seconds=1.0)
    addresses = list(hosts.values())
    crawls.until(
        lambda: {request.host for request in site.requests(*addresses)} == set(addresses),
        "every robots.txt was requested",
    )
    crawls.until(lambda: len(site.requests(hosts["500"])) >= 2, "one of them is tried again")
    judge = site.judge(*addresses)
    assert {request.path for request in judge.requests} == {"/robots.txt"}
    assert judge.gaps(hosts["500"])[0] > 2.0
    counts = crawls.counts(crawl)
    assert (counts.admitted, counts.ended) == (len(seeds), 0), counts
    # Now all of them respond, and an operator need not wait for the back-off.
    for host in addresses:
        site.at(host, "/robots.txt", robots(CLOSED))
        crawls.do(frontier.hosts.unblock(host))
    done = crawls.finish(crawl, *addresses)
    for host in addresses:
        assert pages(done.judge, host) == {"/", "/open"}
    assert done.counts.failed == 0
    assert not done.judge.impolite(DELAY)
    assert not done.judge.unannounced()


def test_a_host_that_refuses_from_the_first_request_is_given_up(crawls: Crawls) -> None:
    (refusing,) = crawls.site.take()
    seed = furnish(crawls, refusing, robots(CLOSED))
    crawls.site.shut(refusing)
    done = crawls.finish(crawls.begin(seed), refusing)
    assert (done.counts.failed, done.counts.open) == (1, 0)
    assert crawls.do(crawls.frontier.hosts.get(refusing)).failures == 3


def test_no_plain_request_is_sent_to_a_server_without_tls(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    furnish(crawls, host)
    crawl = crawls.begin(f"https://{host}/")
    crawls.until(lambda: crawls.do(crawls.frontier.hosts.get(host)).failures > 0, "the failure is counted")
    assert not crawls.site.requests(host)
    crawls.do(crawls.frontier.crawls.stop(crawl))


def test_only_the_needed_part_of_an_endless_robots_txt_is_read(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    done = crawls.run(furnish(crawls, host, robots(CLOSED, fault="endless")))
    assert pages(done.judge, host) == {"/", "/open"}
    first = done.judge.requests[0]
    assert first.how == "gone"
    assert first.bytes < 20_000_000


def test_the_first_500_kib_of_a_large_robots_txt_are_obeyed_and_the_rest_is_not_read(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    early = "User-agent: *\nDisallow: /private\n"
    text = early + "# nothing to say\n" * 400_000
    whole = 500 * 1024 - len(early) - len("Disallow: /edge\n")
    # One rule that ends within 500 KiB, one that begins behind 6 MB.
    text = early + ("#" * 99 + "\n") * (whole // 100) + "Disallow: /edge\n" + text[len(early) :] + "Disallow: /open\n"
    assert text.index("/edge") < 500 * 1024 < 6_000_000 < text.index("/open")
    crawls.site.at(host, "/edge", page())
    furnish(crawls, host, robots(text))
    start = crawls.site.at(host, "/", page("/open", "/private", "/edge"))
    done = crawls.run(start)
    assert pages(done.judge, host) == {"/", "/open"}


def test_an_html_page_instead_of_robots_txt_forbids_nothing(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    response = msgspec.structs.replace(page("/private", title="Welcome"), status=200)
    done = crawls.run(furnish(crawls, host, response))
    assert pages(done.judge, host) == {"/", "/open", "/private"}
