"""Failing pages on healthy hosts, and failing hosts, by the server's log: which pages and hosts wait."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal.frontier.hosts import Host
from shoal.frontier.inspect import PendingHost
from shoal.operations import describe
from tests.site.responses import Response, page, robots
from tests.system.crawls import Crawls, open_crawls

# A tenth of a second instead of five.
BACK_OFF_SECONDS = 0.1
OPEN = robots("User-agent: *\nDisallow:\n")


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawls]:
    settings: dict[str, object] = {"frontier.backoff_seconds": BACK_OFF_SECONDS, "frontier.longest_backoff_seconds": 2}
    with open_crawls(tmp_path_factory.mktemp("retries"), hosts=20, workers=2, settings=settings) as opened:
        yield opened


def state(crawls: Crawls, host: str) -> Host:
    return crawls.do(crawls.frontier.hosts.get(host))


def plant(crawls: Crawls, host: str, good: int, **failing: Response) -> str:
    """A start page that links to good pages and then to failing ones. Returns its URL."""
    crawls.site.at(host, "/robots.txt", OPEN)
    pages = [f"/good{number}" for number in range(good)]
    for path in pages:
        crawls.site.at(host, path, page())
    for name, response in failing.items():
        crawls.site.at(host, f"/{name}", response)
    return crawls.site.at(host, "/", page(*pages, *(f"/{name}" for name in failing)))


@pytest.mark.parametrize("status", [500, 502])
def test_three_failing_pages_are_retried_and_their_host_is_not_paused(crawls: Crawls, status: int) -> None:
    (host,) = crawls.site.take()
    failing = {f"bad{number}": Response(status=status) for number in range(3)}
    done = crawls.run(plant(crawls, host, 27, **failing), delay_seconds=0.0)
    assert (done.counts.stored, done.counts.failed) == (28, 3)
    assert [done.judge.times(f"http://{host}/{name}") for name in failing] == [4, 4, 4]
    assert state(crawls, host).backoff_until == 0


def test_twenty_forbidden_pages_in_a_row_do_not_pause_their_host(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    failing = {f"members{number}": Response(status=403) for number in range(20)}
    done = crawls.run(plant(crawls, host, 10, **failing), delay_seconds=0.0)
    assert (done.counts.stored, done.counts.failed) == (11, 20)
    assert state(crawls, host).backoff_until == 0


@pytest.mark.full
def test_a_host_that_responds_to_all_pages_with_500_is_paused_for_longer_and_longer(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    failing = {f"bad{number}": Response(status=500) for number in range(40)}
    done = crawls.run(plant(crawls, host, 0, **failing), delay_seconds=0.0)
    assert (done.counts.stored, done.counts.failed) == (1, 40)
    first_tries = list(dict.fromkeys(path for path in done.judge.paths(host) if path.startswith("/bad")))
    # Four are pardoned; then ten failures in a row give the host up, with all that waits for it.
    assert len(first_tries) == 14
    # Robots.txt and the start page come first. Half of each pause is certain.
    gaps = sorted(done.judge.gaps(host), reverse=True)
    pauses = [min(2.0, BACK_OFF_SECONDS * 2**number) / 2 for number in range(9)]
    assert all(gap >= pause for gap, pause in zip(gaps, reversed(pauses), strict=False)), (gaps, pauses)


def test_a_success_between_two_failures_counts_even_within_one_lease(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/robots.txt", OPEN)
    links = []
    for number in range(12):
        links += [f"/bad{number}", f"/good{number}"]
        crawls.site.at(host, f"/bad{number}", Response(status=500))
        crawls.site.at(host, f"/good{number}", page())
    done = crawls.run(crawls.site.at(host, "/", page(*links)), delay_seconds=0.0, retries=0)
    assert (done.counts.stored, done.counts.failed) == (13, 12)
    assert state(crawls, host).backoff_until == 0


def test_a_page_that_recovers_is_stored_by_its_own_retry(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/robots.txt", OPEN)
    crawls.site.at(host, "/late", Response(status=503), Response(status=502), page())
    done = crawls.run(crawls.site.at(host, "/", page("/late")), delay_seconds=0.0)
    assert done.rows[f"http://{host}/late"]["status"] == 200
    assert done.judge.times(f"http://{host}/late") == 3
    assert min(done.judge.gaps(host)[-2:]) >= BACK_OFF_SECONDS / 2


@pytest.mark.parametrize(("status", "header"), [(429, ()), (503, (("Retry-After", "1"),))])
def test_a_host_is_paused_at_once_when_its_server_requests_it(
    crawls: Crawls, status: int, header: tuple[tuple[str, str], ...]
) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/robots.txt", OPEN)
    crawls.site.at(host, "/busy", Response(status=status, headers=header), page())
    done = crawls.run(crawls.site.at(host, "/", page("/busy")), delay_seconds=0.0)
    assert done.counts.stored == 2
    known = state(crawls, host)
    assert known.backoff_until > 0
    assert known.backoff_reason == f"status {status}"


@pytest.mark.full
def test_retrying_failed_urls_ends_the_pause_that_they_caused(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    bad = [f"/bad{number}" for number in range(30)]
    crawls.site.at(host, "/robots.txt", OPEN)
    for path in bad:
        crawls.site.at(host, path, Response(status=500))
    crawl = crawls.begin(crawls.site.at(host, "/", page(*bad)), delay_seconds=0.0)
    crawls.finish(crawl, host)
    # As long as a failing host is paused by default.
    crawls.do(crawls.frontier.hosts.postpone(host, 600, failed=True, host_failures=0, reason="status 500"))
    for path in bad:
        crawls.site.at(host, path, page())
    assert crawls.do(crawls.frontier.crawls.retry(crawl)) == 30
    assert state(crawls, host).backoff_until == 0
    done = crawls.finish(crawl, host)
    assert all(done.rows[f"http://{host}{path}"]["status"] == 200 for path in bad)


def test_retrying_failed_urls_keeps_the_pause_that_a_server_requested(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/robots.txt", OPEN)
    crawls.site.at(host, "/gone", Response(status=404))
    crawl = crawls.begin(crawls.site.at(host, "/", page("/gone")), delay_seconds=0.0)
    crawls.finish(crawl, host)
    crawls.do(crawls.frontier.hosts.postpone(host, 600, failed=True, reason="status 429", requested=True))
    assert crawls.do(crawls.frontier.crawls.retry(crawl)) == 1
    assert state(crawls, host).backoff_until > 0
    crawls.do(crawls.frontier.hosts.unblock(host))
    crawls.finish(crawl, host)


def test_a_crawl_reports_which_host_it_waits_for_and_why(crawls: Crawls) -> None:
    busy, failing = crawls.site.take(2)
    for host in (busy, failing):
        crawls.site.at(host, "/robots.txt", OPEN)
    crawls.site.at(busy, "/", Response(status=503, headers=(("Retry-After", "3600"),)))
    crawls.site.at(failing, "/", Response(status=500))
    # With many retries, the waits of one URL become long.
    crawl = crawls.begin(f"http://{busy}/", f"http://{failing}/", delay_seconds=0.0, retries=20)

    def pending() -> dict[str, PendingHost]:
        known = crawls.do(crawls.frontier.crawls.get(crawl))
        return {host.host: host for host in crawls.do(describe(crawls.frontier, known)).pending}

    seen: dict[str, PendingHost] = {}

    def both_are_seen() -> bool:
        # Between its tries, a URL is with a worker for a moment. Its reason, and the pause of its host, come later.
        for host, wait in pending().items():
            if wait.retries and wait.reason and wait.paused == (host == busy):
                seen.setdefault(host, wait)
            elif wait.paused and host == failing:
                # Only seen after so many tries that the host is paused too: it starts again.
                crawls.do(crawls.frontier.hosts.unblock(host))
        return seen.keys() == {busy, failing}

    crawls.until(both_are_seen, "both hosts are waiting")
    wait = seen[busy]
    assert (wait.paused, wait.reason, wait.retries) == (True, "status 503", 1)
    assert 3000 < wait.seconds <= 3600
    assert (seen[failing].paused, seen[failing].reason) == (False, "status 500")
    crawls.do(crawls.frontier.crawls.stop(crawl))
    assert pending() == {}
