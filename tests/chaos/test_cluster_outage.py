"""One primary of a cluster without replicas is down: the crawl continues on the hosts of the other shards."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shoal.errors import StoreUnavailable
from shoal.frontier import Frontier
from shoal.frontier.shards import Shards
from shoal.model import Limits
from shoal.model.lease import Lease
from shoal.operations.describe import describe, find
from shoal.store import Store, slot_of
from tests.chaos.crawl import CRAWL, open_crawl
from tests.servers import WAIT_SECONDS, Cluster, Server, cluster

pytestmark = [pytest.mark.chaos, pytest.mark.full]
OPTIONS = {"cluster-require-full-coverage": "no"}


def holder(nodes: Cluster, shards: Shards, shard: int) -> Server:
    return nodes.owner(slot_of(shards.prefixes[shard]))


@pytest.mark.smoke
async def test_healthy_shards_give_and_renew_leases_without_the_others(tmp_path: Path) -> None:
    with cluster(tmp_path, options=OPTIONS) as nodes:
        async with await Store.open(nodes.url, timeout_seconds=WAIT_SECONDS) as store:
            shards = await Shards.found(store, "outage", 6)
            ann = Frontier(shards, worker="ann")
            await ann.crawls.create("c", Limits(delay_seconds=0, max_pages=100))
            hosts = [f"h{number}.example" for number in range(30)]
            await ann.add("c", [f"http://{host}/{page}" for host in hosts for page in range(2)])
            home = holder(nodes, shards, shards.home("c"))
            down = next(node for node in nodes.nodes if node is not home)
            healthy = {host for host in hosts if holder(nodes, shards, shards.of(host)) is not down}
            assert 0 < len(healthy) < len(hosts)
            down.kill()

            leases: list[Lease] = []
            while {lease.host for lease in leases} != healthy:
                leases += await ann.lease(hosts=4, visits=1, wait_seconds=WAIT_SECONDS)
            renewed = await ann.renew(leases)
            assert None not in renewed
            assert "shards of the store" in ann.shard_trouble

            await asyncio.to_thread(down.start)
            while {lease.host for lease in leases} != set(hosts):
                leases += await ann.lease(hosts=4, visits=1, wait_seconds=WAIT_SECONDS)
            assert ann.shard_trouble == ""
            await ann.close()


async def test_a_worker_that_cannot_read_the_record_of_a_crawl_releases_its_hosts(tmp_path: Path) -> None:
    with cluster(tmp_path, options=OPTIONS) as nodes:
        async with (
            await Store.open(nodes.url, timeout_seconds=WAIT_SECONDS) as store,
            await Store.open(nodes.url, timeout_seconds=WAIT_SECONDS) as other,
        ):
            shards = await Shards.found(store, "outage", 6)
            ann = Frontier(shards, worker="ann", lease_seconds=3600)
            await ann.crawls.create("c", Limits(delay_seconds=0))
            hosts = [f"h{number}.example" for number in range(30)]
            await ann.add("c", [f"http://{host}/" for host in hosts])
            # A worker that has just started. Its leases would outlast this test.
            bob = Frontier(await Shards.found(other, "outage"), worker="bob", lease_seconds=3600)
            home = holder(nodes, shards, shards.home("c"))
            healthy = {host for host in hosts if holder(nodes, shards, shards.of(host)) is not home}
            assert 0 < len(healthy) < len(hosts)
            home.kill()
            assert await bob.lease(hosts=30, visits=1) == []
            assert await bob.lease(hosts=30, visits=1) == []

            leases: list[Lease] = []
            while {lease.host for lease in leases} != healthy:
                leases += await ann.lease(hosts=30, visits=1, wait_seconds=WAIT_SECONDS)
            await ann.release(leases)
            # Its calls to the home shard would get leases when that is back.
            await ann.close()

            await asyncio.to_thread(home.start)
            leases = []
            while {lease.host for lease in leases} != set(hosts):
                leases += await bob.lease(hosts=30, visits=1, wait_seconds=WAIT_SECONDS)
            await bob.close()


async def test_a_crawl_is_shown_without_the_shards_that_do_not_respond(tmp_path: Path) -> None:
    with cluster(tmp_path, options=OPTIONS) as nodes:
        async with await Store.open(nodes.url, timeout_seconds=WAIT_SECONDS) as store:
            shards = await Shards.found(store, "outage")
            ann = Frontier(shards, worker="ann")
            await ann.crawls.create("c")
            hosts = [f"h{number}.example" for number in range(30)]
            await ann.add("c", [f"http://{host}/" for host in hosts])
            home = holder(nodes, shards, shards.home("c"))
            down = next(node for node in nodes.nodes if node is not home)
            healthy = [host for host in hosts if holder(nodes, shards, shards.of(host)) is not down]
            down.kill()
            # A process that starts now.
            async with await Store.open(nodes.url, timeout_seconds=WAIT_SECONDS) as other:
                bob = Frontier(await Shards.found(other, "outage", exact=False), worker="bob")
                described = await describe(bob, await find(bob, "c"))
                assert described.counts.waiting == len(healthy)
                assert "shards do not respond" in described.waiting[-1]
                await asyncio.to_thread(down.start)
                home.kill()
                with pytest.raises(StoreUnavailable, match="record of crawl"):
                    await find(bob, "c")
                await bob.close()


async def test_a_crawl_continues_without_one_primary_and_completes_when_it_is_back(tmp_path: Path) -> None:
    pages, hosts = 600, 20
    with cluster(tmp_path / "cluster", options=OPTIONS) as nodes:
        async with open_crawl(
            tmp_path, pages=pages, hosts=hosts, seeds=pages, url=nodes.url, outputs=("pages.db", "pages.jsonl"),
            policy={"follow": False},
        ) as crawl:  # fmt: skip
            shards = crawl.frontier.shards
            for _ in range(2):
                crawl.start()
            await crawl.requested(100)
            # A worker that has not read the record of the crawl yet leaves the hosts to the others.
            await crawl.until(lambda: any(crawl.last_report(name).pages for name in crawl.workers), "one works")
            # The one that also has the record of the crawl.
            down = holder(nodes, shards, shards.home(CRAWL))
            healthy = {host for host in crawl.tree.hosts if holder(nodes, shards, shards.of(host)) is not down}
            down.kill()
            reachable = {url for url in crawl.tree.walk() if url.split("/")[2] in healthy}
            assert reachable
            await crawl.until(
                lambda: reachable <= crawl.site.judge(*healthy).counts().keys(), "the other hosts are done"
            )
            await asyncio.to_thread(down.start)
            await crawl.finish()
            await crawl.judge()
