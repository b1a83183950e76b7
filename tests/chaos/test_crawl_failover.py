"""The store fails over or comes back with another clock under a real crawl, and forgets what it had confirmed."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from tests.chaos.crawl import LONG, crawling
from tests.chaos.test_crawl_clocks import wrong_by
from tests.servers import Cluster, Server, cluster, sentinel_trio, server, wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.full]


def _replica_of(nodes: Cluster, primary: Server) -> Server:
    port = int(primary.ask("ROLE")[2][0][1])
    return next(node for node in nodes.nodes if node.port == port)


@pytest.mark.parametrize("how", ["FORCE", "TAKEOVER"])
async def test_a_forced_failover_without_the_primary_loses_no_page(tmp_path: Path, how: str) -> None:
    pages, turns = (6_000, 4) if LONG else (900, 2)
    with cluster(tmp_path / "cluster", replicas=1, options={"appendfsync": "everysec"}) as nodes:
        async with crawling(
            tmp_path, pages=pages, hosts=20, url=nodes.url, outputs=("pages.db",), lease_seconds=2.0
        ) as crawl:
            for _ in range(2):
                crawl.start()
            for turn in range(1, turns + 1):
                await crawl.requested(pages // (turns + 2) * turn)
                primary = await asyncio.to_thread(nodes.owner, 16383 * (turn % 3) // 2)
                replica = await asyncio.to_thread(_replica_of, nodes, primary)
                await asyncio.to_thread(replica.ask, "CLUSTER", "FAILOVER", how)
                is_primary = partial(lambda node: node.ask("ROLE")[0] == b"master", replica)
                await asyncio.to_thread(wait_until, is_primary, "the replica is the primary")
            await crawl.finish(180)
            await crawl.judge()


async def test_a_failover_by_sentinels_loses_no_page(tmp_path: Path) -> None:
    pages = 6_000 if LONG else 900
    with sentinel_trio(tmp_path / "sentinels") as trio:
        async with crawling(
            tmp_path, pages=pages, hosts=20, url=trio.url, outputs=("pages.db",), lease_seconds=2.0
        ) as crawl:
            for _ in range(2):
                crawl.start()
            await crawl.requested(pages // 3)
            before = trio.named()
            # The primary is not asked: what its replicas do not have yet is lost.
            await asyncio.to_thread(trio.sentinels[0].ask, "SENTINEL", "FAILOVER", trio.service)
            await asyncio.to_thread(wait_until, lambda: trio.named() != before, "another server is the primary")
            await crawl.finish(180)
            await crawl.judge()


@pytest.mark.parametrize("offset", ["+300s", pytest.param("-300s", marks=pytest.mark.variant)])
async def test_a_store_restarted_with_another_clock_loses_no_page_and_keeps_delays(tmp_path: Path, offset: str) -> None:
    with server(tmp_path / "server") as store:
        async with crawling(
            tmp_path, pages=6_000 if LONG else 600, hosts=20, url=store.url, outputs=("pages.db",), lease_seconds=2.0
        ) as crawl:
            for _ in range(2):
                crawl.start()
            await crawl.requested(200)
            store.kill()
            store.environ = wrong_by(offset)
            store.start()
            await crawl.finish(180)
            await crawl.judge()
            epochs = [int(store.ask("HGET", prefix + "meta", "epoch")) for prefix in crawl.frontier.shards.prefixes]
            assert max(epochs) <= 3, "workers correct the clock against one another"
