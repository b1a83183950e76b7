"""Totals over all crawls: a Prometheus counter never decreases, not even when a crawl is deleted."""

from __future__ import annotations

import asyncio
from pathlib import Path

from shoal.frontier import Frontier
from shoal.frontier.deletion import noted
from shoal.model.crawl import Counts
from shoal.model.limits import Limits
from shoal.settings import Settings, StoreSettings
from tests.api.process import ApiProcess, serve_api
from tests.contract.fleet import end
from tests.servers import server

PAGES = "shoal_pages_total"
FAILED = 'shoal_failed_total{reason="status 404"}'


def counters(api: ApiProcess) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in api.ask("GET", "/metrics").raw.decode().splitlines() if line[0] != "#"]
    return {name: float(value) for name, _, value in lines if "_total" in name}


async def crawl(store: str, name: str, spider: str = "") -> None:
    """Two pages stored, one failed and one excluded; with a spider, one page more by another spider."""
    async with await Frontier.from_settings(Settings(store=StoreSettings(url=store)), worker="ann") as ann:
        await ann.crawls.create(name, Limits(delay_seconds=0, spider=spider))
        await ann.add(name, [f"http://{host}.example/" for host in ("a", "b", "c", "d")])
        ends = {
            "http://c.example/": lambda visit: visit.failed("status 404"),
            "http://d.example/": lambda visit: visit.excluded("robots"),
        }
        names = [spider]
        if spider:
            await ann.add(await ann.crawls.branch(name, "other"), ["http://e.example/"])
            names.append("other")
        while not await ann.crawls.finish(name):
            leases = await ann.lease(spiders=names, wait_seconds=1)
            await end(ann, leases, lambda visit: ends.get(visit.url, type(visit).stored)(visit))


def test_counters_do_not_fall_when_crawls_are_deleted(tmp_path: Path) -> None:
    with server(tmp_path / "valkey") as store:
        with serve_api(tmp_path / "first", "--store", store.url) as api:
            asyncio.run(crawl(store.url, "one"))
            asyncio.run(crawl(store.url, "two", spider="mine"))
            before = counters(api)
            assert (before[PAGES], before[FAILED], before['shoal_excluded_total{reason="robots"}']) == (5, 2, 2)
            api.client.delete("one")
            assert counters(api) == before
            api.client.delete("two")
            assert counters(api) == before
            # Sums over what is there are others.
            assert api.client.stats()["counts"]["stored"] == 0
            asyncio.run(crawl(store.url, "three"))
            assert counters(api)[PAGES] == 7
        # Another server knows it, too.
        with serve_api(tmp_path / "second", "--store", store.url) as api:
            assert (counters(api)[PAGES], counters(api)[FAILED]) == (7, 3)


def test_the_counts_of_a_crawl_are_added_to_the_totals_once_before_it_is_deleted(tmp_path: Path) -> None:
    async def use(url: str) -> None:
        async with await Frontier.from_settings(Settings(store=StoreSettings(url=url))) as frontier:
            assert await noted(frontier.shards, "one") is None
            await frontier.crawls.delete("one")
            kept = Counts(stored=2, failed=1, excluded=1, reasons={"failed:status 404": 1, "excluded:robots": 1})
            assert await noted(frontier.shards, "one") == kept
            # As a caller does that does not know whether the first attempt succeeded.
            await frontier.crawls.delete("one")
            assert await noted(frontier.shards, "one") == kept

    with server(tmp_path / "valkey") as store:
        asyncio.run(crawl(store.url, "one"))
        asyncio.run(use(store.url))
