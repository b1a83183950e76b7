"""The store fails over or restarts with another clock under a real crawl, and loses confirmed writes."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from tests.chaos.crawl import LONG, CrawlRun, open_crawl
from tests.chaos.test_crawl_clocks import wrong_by
from tests.servers import Cluster, Server, cluster, sentinel_trio, server, wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.full]


@contextlib.asynccontextmanager
async def two_workers(folder: Path, url: str, pages: int) -> AsyncIterator[CrawlRun]:
    """A running crawl of 20 hosts, with leases that expire soon."""
    async with open_crawl(folder, pages=pages, hosts=20, url=url, outputs=("pages.db",), lease_seconds=2.0) as crawl:
        for _ in range(2):
            crawl.start()
        yield crawl


def _replica_of(nodes: Cluster, primary: Server) -> Server:
    port = int(primary.ask("ROLE")[2][0][1])
    return next(node for node in nodes.nodes if node.port == port)


@pytest.mark.parametrize("how", ["FORCE", "TAKEOVER"])
async def test_a_forced_failover_without_the_primary_loses_no_page(tmp_path: Path, how: str) -> None:
    pages, turns = (6_000, 4) if LONG else (900, 2)
    with cluster(tmp_path / "cluster", replicas=1, options={"appendfsync": "everysec"}) as nodes:
        async with two_workers(tmp_path, nodes.url, pages) as crawl:
            for turn in range(1, turns + 1):
                await crawl.requested(pages // (turns + 2) * turn)
                primary = await asyncio.to_thread(nodes.owner, 16383 * (turn % 3) // 2)
                replica = await asyncio.to_thread(_replica_of, nodes, primary)
                await asyncio.to_thread(replica.ask, "CLUSTER", "FAILOVER", how)
                is_primary = partial(lambda node: node.ask("ROLE")[0] == b"master", replica)
                await asyncio.to_thread(wait_until, is_primary, "the replica is the primary")
            await crawl.finish(180)
            await crawl.judge()


def _restart_from_copy(node: Server, copy: Path) -> None:
    """As a machine that comes back with an old disk. The node still knows the configuration of its cluster."""
    node.kill()
    configuration = (node.folder / "nodes.conf").read_bytes()
    shutil.rmtree(node.folder)
    shutil.copytree(copy, node.folder)
    (node.folder / "nodes.conf").write_bytes(configuration)
    node.start()


async def test_a_primary_that_is_restarted_from_an_old_copy_before_any_failover_loses_no_page(tmp_path: Path) -> None:
    pages, turns = (6_000, 4) if LONG else (900, 2)
    options = {"appendfsync": "everysec", "cluster-node-timeout": "10000"}
    with cluster(tmp_path / "cluster", replicas=1, options=options) as nodes:
        async with two_workers(tmp_path, nodes.url, pages) as crawl:
            for turn in range(1, turns + 1):
                await crawl.requested(pages // (turns + 2) * turn)
                primary = await asyncio.to_thread(nodes.owner, 16383 * (turn % 3) // 2)
                copy = tmp_path / f"copy{turn}"
                await asyncio.to_thread(shutil.copytree, primary.folder, copy)
                # Pages that were acknowledged after the copy was made.
                await crawl.requested(pages // (turns + 2) * turn + 100)
                await asyncio.to_thread(_restart_from_copy, primary, copy)
            await crawl.finish(180)
            await crawl.judge()


async def test_a_cluster_whose_nodes_are_all_killed_loses_no_page(tmp_path: Path) -> None:
    pages = 6_000 if LONG else 900
    with cluster(tmp_path / "cluster", replicas=1, options={"appendfsync": "everysec"}) as nodes:
        async with two_workers(tmp_path, nodes.url, pages) as crawl:
            await crawl.requested(pages // 3)
            for node in nodes.nodes:
                node.kill()
            for node in nodes.nodes:
                await asyncio.to_thread(node.start)
            await crawl.finish(180)
            await crawl.judge()


async def test_a_failover_by_sentinels_loses_no_page(tmp_path: Path) -> None:
    pages = 6_000 if LONG else 900
    with sentinel_trio(tmp_path / "sentinels") as trio:
        async with two_workers(tmp_path, trio.url, pages) as crawl:
            await crawl.requested(pages // 3)
            before = trio.named()
            # The primary does not take part: writes that its replicas do not have yet are lost.
            await asyncio.to_thread(trio.sentinels[0].ask, "SENTINEL", "FAILOVER", trio.service)
            await asyncio.to_thread(wait_until, lambda: trio.named() != before, "another server is the primary")
            await crawl.finish(180)
            await crawl.judge()


@pytest.mark.parametrize("offset", ["+300s", pytest.param("-300s", marks=pytest.mark.variant)])
async def test_a_store_restarted_with_another_clock_loses_no_page_and_keeps_delays(tmp_path: Path, offset: str) -> None:
    with server(tmp_path / "server") as store:
        async with two_workers(tmp_path, store.url, 6_000 if LONG else 600) as crawl:
            await crawl.requested(200)
            store.kill()
            store.environ = wrong_by(offset)
            store.start()
            await crawl.finish(180)
            await crawl.judge()
            epochs = [int(store.ask("HGET", prefix + "meta", "epoch")) for prefix in crawl.frontier.shards.prefixes]
            assert max(epochs) <= 3, "workers correct the clock against one another"
