"""`max_bytes_per_host`: a host that has sent its share gets no more requests, and other hosts do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.site.responses import page
from tests.system.crawls import Crawls, open_crawls

PAGES, PAGE_BYTES = 12, 10_000


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawls]:
    with open_crawls(tmp_path_factory.mktemp("bytes"), hosts=20, workers=2) as opened:
        yield opened


def plant(crawls: Crawls, host: str, pages: int) -> str:
    """A host whose front page links to pages of the same size."""
    for number in range(pages):
        crawls.site.at(host, f"/{number}", page(title=f"Page {number}", body="x" * PAGE_BYTES))
    return crawls.site.at(host, "/", page(*[f"/{number}" for number in range(pages)]))


def test_a_host_is_requested_until_its_bytes_are_received(crawls: Crawls) -> None:
    large, small = crawls.site.take(2)
    seeds = plant(crawls, large, PAGES), plant(crawls, small, 2)
    done = crawls.run(*seeds, delay_seconds=0.0, delay_factor=0.0, max_bytes_per_host=5 * PAGE_BYTES)
    stored = [url for url in done.rows if large in url]
    # The front page, and pages until the limit: the last of them exceeds it.
    assert 5 <= len(stored) <= 6
    assert len([url for url in done.rows if small in url]) == 3
    left = PAGES + 1 - len(stored)
    assert done.counts.reasons == {"excluded:bytes per host": left}
    assert len(done.judge.paths(large)) == len(stored) + 1, "robots.txt and the stored pages"


def test_several_slots_of_a_host_exceed_the_limit_by_open_requests_only(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    done = crawls.run(
        plant(crawls, host, PAGES), delay_seconds=0.0, delay_factor=0.0, limits={"places": 4},
        max_bytes_per_host=3 * PAGE_BYTES,
    )  # fmt: skip
    assert 3 <= len(done.rows) <= 3 + 1 + 4
    assert done.counts.reasons["excluded:bytes per host"] == PAGES + 1 - len(done.rows)


def test_the_total_of_a_host_belongs_to_its_crawl(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    hosts = crawls.frontier.hosts
    first = crawls.begin(plant(crawls, host, 1), max_bytes_per_host=10**9)
    crawls.finish(first)
    crawl = crawls.do(crawls.frontier.crawls.get(first))
    received = crawls.do(hosts.add_bytes(crawl.key, host, 0))
    assert PAGE_BYTES < received < 2 * PAGE_BYTES
    assert crawls.do(hosts.add_bytes(crawl.key, host, 5)) == received + 5
    assert crawls.do(hosts.add_bytes("0" * 16, host, 5)) == 0, "a crawl that does not exist"
