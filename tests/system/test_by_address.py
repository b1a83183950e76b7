"""Many names on one address: with --by-address they share one politeness delay."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

from shoal import Frontier, Limits, Visit
from shoal.model.crawl_spec import CrawlSpec
from shoal.settings import load
from shoal.worker.worker import Worker
from tests.servers import WAIT_SECONDS
from tests.site.log import Request
from tests.site.responses import page
from tests.site.site import serving

NAMES = [f"name-{number}.example" for number in range(20)]
DELAY_SECONDS = 0.05


async def _resolve(host: str) -> list[str]:
    if host not in NAMES:
        raise OSError(f"{host} is none of this test's")
    return ["127.0.0.1"]


async def _crawl(folder: Path, seeds: list[str], *, by_address: bool) -> tuple[int, dict[str, int]]:
    """Two workers in this process: what was stored, and what the rest came to."""
    settings = load(
        environ={}, flags={"store.folder": str(folder / "store"), "fetch.allow_networks": "127.0.0.0/8"}
    ).settings  # fmt: skip
    policy = CrawlSpec(seeds=tuple(seeds), user_agent="Test/1.0", delay_factor=0.0, by_address=by_address)
    frontiers = [await Frontier.from_settings(settings) for _ in range(2)]
    first = frontiers[0]
    await first.crawls.create("c", Limits(delay_seconds=DELAY_SECONDS), policy.stored())
    await first.add("c", [Visit(url=seed, found="seed") for seed in seeds])
    workers = [Worker(frontier, settings, resolver=_resolve) for frontier in frontiers]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    async with asyncio.timeout(WAIT_SECONDS):
        while not await first.crawls.finished("c"):  # noqa: ASYNC110 - other processes send no event
            await asyncio.sleep(0.05)
    counts = await first.crawls.count("c")
    for worker in workers:
        worker.stop()
    await asyncio.gather(*running)
    for frontier in frontiers:
        await frontier.close()
    return counts.stored, counts.reasons


def _gaps(requests: list[Request]) -> list[float]:
    """Seconds from the end of each request to the start of the next, whichever name they were for."""
    order = sorted(requests, key=lambda request: request.began)
    return [later.began - earlier.ended for earlier, later in itertools.pairwise(order)]


async def test_twenty_names_on_one_address_are_one_host_to_politeness(tmp_path: Path) -> None:
    with serving(tmp_path, hosts=1) as site:
        hosts = [site.name(name) for name in NAMES]
        seeds = [site.at(host, "/", page("/more")) for host in hosts]
        for host in hosts:
            site.at(host, "/more", page())
        stored, reasons = await _crawl(tmp_path, seeds, by_address=True)
        requests = site.requests(*hosts)
    assert (stored, reasons) == (40, {"excluded:requeued under its IP address": 40})
    # robots.txt of each name, and two pages.
    assert len(requests) == 60
    assert min(_gaps(requests)) >= DELAY_SECONDS


async def test_without_the_option_each_name_is_a_separate_host(tmp_path: Path) -> None:
    with serving(tmp_path, hosts=1) as site:
        hosts = [site.name(name) for name in NAMES]
        seeds = [site.at(host, "/", page()) for host in hosts]
        stored, _ = await _crawl(tmp_path, seeds, by_address=False)
        requests = site.requests(*hosts)
    assert stored == 20
    assert min(_gaps(requests)) < DELAY_SECONDS
