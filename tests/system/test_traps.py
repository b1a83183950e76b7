"""Endless sites: a crawl of one ends by itself, or stays small and does not delay others."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal import Frontier, Limits, Visit
from shoal.model.crawl_spec import CrawlSpec
from shoal.settings import load
from shoal.urls.traps import DomainHosts
from shoal.worker.worker import Worker
from tests.servers import WAIT_SECONDS
from tests.site.log import Request
from tests.site.responses import Responses, page
from tests.site.site import serving
from tests.system.crawls import Crawls, open_crawls

pytestmark = pytest.mark.full

# The clock of a test machine may be anywhere; calendars here last longer than any.
MONTHS = [(year, month) for year in range(2020, 2120) for month in range(1, 13)]
MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawls]:
    with open_crawls(tmp_path_factory.mktemp("traps"), hosts=40, workers=1) as opened:
        yield opened


def crawled(crawls: Crawls, host: str, **policy: Any) -> list[str]:
    """The requests to a host by a crawl that ends by itself."""
    crawls.run(f"http://{host}/", delay_seconds=0.0, delay_factor=0.0, seconds=60, **policy)
    return [request.path for request in crawls.site.requests(host) if not request.is_robots]


@pytest.mark.parametrize("form", ["/calendar/{}/{:02}/", "/?date={}-{:02}-01", "/events?year={}&month={}"])
def test_the_crawl_of_an_endless_calendar_ends(crawls: Crawls, form: str) -> None:
    (host,) = crawls.site.take()
    paths = [form.format(*month) for month in MONTHS]
    triples = zip(paths, paths[1:], paths[2:], strict=False)
    crawls.site.send(
        Responses(host, "/", (page(paths[6 * 12]),)),
        *(Responses(host, path, (page(before, after),)) for before, path, after in triples),
    )
    requested = crawled(crawls, host)
    # From 2020 to the year after next, and not a century.
    assert paths[6 * 12] in requested
    assert 80 < len(requested) < 500
    assert form.format(2100, 5) not in requested


def test_the_crawl_of_endlessly_nested_folders_ends(crawls: Crawls) -> None:
    """Every page is found, whatever its path, and has links that are deeper: wrong relative links, soft 404s."""
    (host,) = crawls.site.take()
    crawls.site.at(host, "*", page("a/b/", "a/"))
    requested = crawled(crawls, host)
    assert "/a/b/" in requested
    assert len(requested) < 500


@pytest.mark.smoke
def test_the_crawl_of_ever_longer_paths_ends(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    path = "/"
    for number in range(60):
        crawls.site.at(host, path, page(f"s{number}/"))
        path += f"s{number}/"
    assert len(crawled(crawls, host)) == 21


def test_a_session_id_in_every_link_creates_no_new_pages(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    sessions = (f"{n:032x}" for n in itertools.count())

    def links(path: str) -> tuple[str, ...]:
        session = next(sessions)
        return (
            f"{path};jsessionid={session}", f"{path}?PHPSESSID={session}",
            f"{path}?utm_source={session}&fbclid={session}", f"/other;jsessionid={session}?id=1",
        )  # fmt: skip

    for path in ("/", "/page", "/other?id=1"):
        crawls.site.at(host, path, *(page(*links("/page")) for _ in range(20)))
    assert sorted(crawled(crawls, host)) == ["/", "/other?id=1", "/page"]


def test_parameters_in_every_order_are_one_page(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    filters = ["colour=red", "size=9", "brand=x", "sort=price"]
    every = ["/list?" + "&".join(order) for order in itertools.permutations(filters)]
    crawls.site.at(host, "*", page(*every))
    assert crawled(crawls, host) == ["/", every[0]]


def test_without_trap_detection_traps_are_followed(crawls: Crawls) -> None:
    """And the tests above could fail."""
    (host,) = crawls.site.take()
    every = ["/list?" + "&".join(order) for order in itertools.permutations(["a=1", "b=2", "c=3"])]
    crawls.site.at(host, "*", page(*every, "/x/x/x/x/", "/x?utm_source=1"))
    requested = crawled(crawls, host, traps=False, drop_parameters=())
    assert len(requested) == 1 + 6 + 1 + 1


def memory(pid: int) -> int:
    """The most that a process has had, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise AssertionError(pid)


def pace(requests: list[Request]) -> float:
    """Requests per second."""
    return (len(requests) - 1) / (requests[-1].began - requests[0].began)


def test_other_hosts_keep_their_rate_beside_traps(crawls: Crawls) -> None:
    """Hosts that get requests as fast as they respond, without end; on a busy machine the best of three."""
    (process,) = crawls.workers.values()
    traps = crawls.site.take(4)
    for host in traps:
        crawls.site.at(host, "*", page("a/", "b/", "c/", "d/"))
    # More folders than a test has time for, and fewer than a crawl would take without the rules.
    shares = []
    for _ in range(3):
        alone, beside = crawls.site.take(2)
        for host in (alone, beside):
            crawls.site.plant(12, [host])
        crawls.run(f"http://{alone}/p/0", delay_seconds=0.25, delay_factor=0.0)
        before = memory(process.pid)
        trap = crawls.begin(*(f"http://{host}/" for host in traps), delay_seconds=0.0, delay_factor=0.0)
        crawls.until(lambda: len(crawls.site.requests(*traps)) > 100, "the trap is sprung")
        crawls.run(f"http://{beside}/p/0", delay_seconds=0.25, delay_factor=0.0)
        crawls.do(crawls.frontier.crawls.stop(trap))
        assert memory(process.pid) - before < 100 * MEBIBYTE
        shares.append(pace(crawls.site.requests(beside)) / pace(crawls.site.requests(alone)))
        if shares[-1] >= 0.9:
            return
    raise AssertionError(f"beside traps a host had these shares of its rate: {shares}")


async def test_the_crawl_of_endless_subdomains_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any name of the domain resolves, and every page links to new ones. In this process: names need a resolver."""
    monkeypatch.setattr("shoal.worker.crawl_context.DomainHosts", functools.partial(DomainHosts, most=30))

    async def resolve(host: str) -> list[str]:
        return ["127.0.0.1"]

    with serving(tmp_path, hosts=1) as site:
        names = [site.name(f"h{n}.trap.example") for n in range(120)]
        links = [f"http://{name}/" for name in names]
        site.send(*(Responses(name, "/", (page(*links[n : n + 5]),)) for n, name in enumerate(names)))
        flags = {"store.folder": str(tmp_path / "store"), "fetch.allow_networks": "127.0.0.0/8"}
        settings = load(environ={}, flags=flags).settings
        frontier = await Frontier.from_settings(settings)
        policy = CrawlSpec(seeds=(links[0],), scope="domain", delay_factor=0.0)
        await frontier.crawls.create("c", Limits(delay_seconds=0.0), policy.stored())
        await frontier.add("c", [Visit(url=links[0], found="seed")])
        worker = Worker(frontier, settings, resolver=resolve)
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(WAIT_SECONDS):
            while not await frontier.crawls.finished("c"):  # noqa: ASYNC110 - the store sends no event
                await asyncio.sleep(0.05)
        worker.stop()
        await running
        await frontier.close()
        assert len({request.host for request in site.requests()}) == 30
        assert worker.report.trapped["trap: subdomains"] > 0
