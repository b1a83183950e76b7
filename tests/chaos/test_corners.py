"""Rare states of the frontier, each provoked on purpose."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from shoal.errors import CrawlEnded, LeaseLost, StoreHeld
from shoal.frontier import mono
from shoal.frontier.frontier import Frontier
from shoal.frontier.shards import Shards
from shoal.model import Lease, Limits, Visit
from shoal.store import Store
from tests.proxy import Proxy, proxy
from tests.servers import WAIT_SECONDS, Server, server, wait_until

pytestmark = pytest.mark.chaos


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[Server]:
    """A store that may lose its last writes, and that the test cuts short itself."""
    with server(tmp_path / "store", options={"appendfsync": "everysec", "auto-aof-rewrite-percentage": "0"}) as valkey:
        yield valkey


@contextlib.asynccontextmanager
async def opened(
    url: str, worker: str = "ann", lease_seconds: float = 60.0, *, delay_seconds: float = 0.0, max_pages: int = 0,
    crawl: bool = True,
) -> AsyncIterator[Frontier]:  # fmt: skip
    frontier = await Frontier.open(url, namespace="corner", worker=worker, lease_seconds=lease_seconds, shards=1)
    async with frontier:
        if crawl:
            await frontier.crawls.create("c", Limits(delay_seconds=delay_seconds, max_pages=max_pages))
        yield frontier


@contextlib.asynccontextmanager
async def behind_a_proxy(store: Server, lease_seconds: float = 60.0) -> AsyncIterator[tuple[Frontier, Frontier, Proxy]]:
    """Ann connects to the store directly, bob through a proxy that drops chosen replies."""
    async with (
        opened(store.url, "ann", lease_seconds) as ann,
        proxy(store.port) as store_proxy,
        opened(f"redis://127.0.0.1:{store_proxy.port}", "bob", lease_seconds, crawl=False) as bob,
    ):
        await bob.lease()  # bob knows the time of the store
        yield ann, bob, store_proxy


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    deadline = mono() + 10.0
    while not await true():
        assert mono() < deadline, "not within 10 s"
        await asyncio.sleep(0.01)


def roll_back(server_: Server, length: int) -> None:
    """The store dies and has lost everything it wrote after this length of its file."""
    server_.kill()
    with append_only_file(server_).open("r+b") as file:
        file.truncate(length)
    server_.start()


def append_only_file(server_: Server) -> Path:
    (part,) = server_.folder.glob("appendonlydir/*.incr.aof")
    return part


def written(server_: Server) -> int:
    return append_only_file(server_).stat().st_size


async def lease_one(frontier: Frontier, seconds: float = 5.0) -> Lease:
    (lease,) = await frontier.lease(wait_seconds=seconds)
    return lease


async def test_links_lost_by_a_restart_are_found_again(forgetful: Server) -> None:
    """The lease is kept, the links that were added after it are lost: the page must not count as done."""
    async with opened(forgetful.url, lease_seconds=1.0) as ann:
        await ann.add("c", ["http://h.example/parent"])
        lease = await lease_one(ann)
        # On a slow disk the server keeps what it should write for up to two seconds.
        wait_until(lambda: forgetful.info("persistence")["aof_buffer_length"] == "0", "the lease is in the file")
        kept = written(forgetful)
        assert (await ann.add("c", ["http://h.example/child"])).new == 1
        wait_until(lambda: written(forgetful) > kept, "the links are in the file")
        roll_back(forgetful, kept)
        done = set()
        with contextlib.suppress(LeaseLost):
            await ann.acknowledge(lease, [lease.visits[0].stored()])
        while not await ann.crawls.finished("c"):
            for again in await ann.lease(wait_seconds=1.0):
                urls = [visit.url for visit in again.visits]
                done |= set(urls)
                if "http://h.example/parent" in urls:
                    await ann.add("c", ["http://h.example/child"])
                # A busy machine may take longer than a lease.
                with contextlib.suppress(LeaseLost):
                    await ann.acknowledge(again, [visit.stored() for visit in again.visits])
        assert "http://h.example/child" in done


async def test_a_repeated_lease_is_not_trusted_longer_than_it_is_valid(store: Server) -> None:
    """The reply was lost, and the call is repeated some time later."""
    async with behind_a_proxy(store, lease_seconds=30.0) as (ann, bob, store_proxy):
        await ann.add("c", ["http://h.example/"])
        store_proxy.swallow_replies = True
        leasing = asyncio.create_task(bob.lease())
        await until(lambda: leased(ann, 1))
        store_proxy.refuse = True
        store_proxy.swallow_replies = False
        store_proxy.cut()
        await asyncio.sleep(2.0)
        store_proxy.refuse = False
        leases = await leasing
        assert leases, "nothing is given again: this test proves nothing"
        for lease in leases:
            deadline_ms = float(store.ask("ZSCORE", bob.shards.prefixes[0] + "leases", lease.token))
            seconds, micros = store.ask("TIME")
            left = deadline_ms / 1000 - int(seconds) - int(micros) / 1e6
            assert lease.trusted_until_mono <= mono() + left, "trusted longer than the store keeps it"


async def leased(frontier: Frontier, visits: int) -> bool:
    return (await frontier.crawls.count("c")).leased == visits


async def test_renewing_a_lease_again_gives_no_visit_twice(store: Server) -> None:
    async with opened(store.url) as ann:
        await ann.add("c", [f"http://h.example/{number}" for number in range(3)])
        lease = await lease_one(ann)
        assert len(lease.visits) == 3
        (renewed,) = await ann.renew([lease])
        assert renewed is not None
        assert not renewed.visits
        (again,) = await ann.renew([renewed])
        assert again is not None
        assert not again.visits, "the holder has these visits already, and would make them a second time"


async def test_fetched_visits_can_be_kept_when_a_slot_is_released(store: Server) -> None:
    async with opened(store.url) as ann:
        await ann.add("c", [f"http://h.example/{number}" for number in range(3)])
        lease = await lease_one(ann)
        await ann.release([lease], keep=lease.visits[:1], finished_ago_seconds=0.0)
        await ann.acknowledge(lease, [lease.visits[0].stored()])
        assert (await ann.crawls.count("c")).stored == 1
        assert (await ann.crawls.count("c")).waiting == 2


async def test_a_url_force_added_twice_and_retried_twice_ends_twice(store: Server) -> None:
    async with opened(store.url) as ann:
        await ann.add("c", ["http://h.example/", "http://h.example/"], force=True)
        lease = await lease_one(ann)
        assert len(lease.visits) == 2
        await ann.acknowledge(lease, [visit.retry(0) for visit in lease.visits])
        for _ in range(5):
            for again in await ann.lease(wait_seconds=0.2):
                await ann.acknowledge(again, [visit.stored() for visit in again.visits])
        assert await ann.crawls.finished("c"), await ann.crawls.count("c")


async def test_a_force_added_url_is_queued_once_though_the_reply_was_lost(store: Server) -> None:
    async with behind_a_proxy(store) as (ann, bob, store_proxy):
        await bob.add("c", ["http://h.example/known"])

        async def admitted() -> bool:
            return (await ann.crawls.count("c")).admitted == 2

        store_proxy.swallow_replies = True
        adding = asyncio.create_task(bob.add("c", ["http://h.example/known"], force=True))
        await until(admitted)
        store_proxy.swallow_replies = False
        store_proxy.cut()
        await adding
        assert await admitted()


async def test_a_page_is_acknowledged_once_though_the_reply_was_lost(store: Server) -> None:
    async with behind_a_proxy(store) as (ann, bob, store_proxy):
        await bob.add("c", ["http://h.example/"])
        lease = await lease_one(bob)

        async def stored() -> bool:
            return (await ann.crawls.count("c")).stored == 1

        store_proxy.swallow_replies = True
        acknowledging = asyncio.create_task(bob.acknowledge(lease, [lease.visits[0].stored()]))
        await until(stored)
        store_proxy.swallow_replies = False
        store_proxy.cut()
        await acknowledging
        counts = await ann.crawls.count("c")
        assert (counts.admitted, counts.stored, counts.open) == (1, 1, 0)


async def test_a_lost_reply_to_a_lease_call_is_recovered(store: Server) -> None:
    async with behind_a_proxy(store) as (ann, bob, store_proxy):
        await ann.add("c", [f"http://h{number}.example/" for number in range(5)])
        store_proxy.swallow_replies = True
        leasing = asyncio.create_task(bob.lease(hosts=5))
        await until(lambda: leased(ann, 5))
        store_proxy.swallow_replies = False
        store_proxy.cut()
        assert len(await leasing) == 5
        assert (await ann.crawls.count("c")).waiting == 0


async def test_retrying_the_failed_urls_of_a_blocked_host_terminates(store: Server) -> None:
    async with opened(store.url) as ann:
        await ann.add("c", ["http://h.example/"])
        await ann.hosts.block("h.example")
        assert (await ann.crawls.count("c")).failed == 1
        async with asyncio.timeout(WAIT_SECONDS):
            await ann.crawls.retry("c")


async def test_a_crawl_that_reached_max_pages_is_not_reopened_by_a_retry(store: Server) -> None:
    async with opened(store.url, max_pages=1) as ann:
        await ann.add("c", [f"http://h{number}.example/" for number in range(3)])
        failed = False
        for _ in range(20):
            for lease in await ann.lease(wait_seconds=0.1):
                visit = lease.visits[0]
                await ann.acknowledge(lease, [visit.stored() if failed else visit.failed("broken")])
                failed = True
            if await ann.crawls.finished("c"):
                break
        assert (await ann.crawls.get("c")).state.value == "finished"
        before = await ann.crawls.count("c")
        with pytest.raises(CrawlEnded):
            await ann.crawls.retry("c")
        assert await ann.crawls.count("c") == before
        assert before.stored == 1


async def test_every_slot_of_a_host_keeps_the_delay_after_a_restart_that_lost_writes(forgetful: Server) -> None:
    """Virtual time: two slots with a delay of a minute. The store loses both leases, not their requests."""
    now = 1_000_000
    async with await Store.open(forgetful.url) as store:
        shards = await Shards.found(store, "corner", 1, lambda: now)
        ann = Frontier(shards, worker="ann", lease_seconds=10.0)
        bob = Frontier(shards, worker="bob", lease_seconds=10.0)
        await ann.crawls.create("c", Limits(delay_seconds=60.0, places=2))
        await ann.hosts.set_robots("h.example")
        await ann.add("c", [f"http://h.example/{number}" for number in range(9)])
        kept = written(forgetful)
        for frontier in (ann, bob):
            assert len(await frontier.lease(visits=1)) == 1
        wait_until(lambda: written(forgetful) > kept, "the leases are in the file")
        roll_back(forgetful, kept)
        assert await ann.lease(visits=1) == []
        # The forgotten leases are over after ten seconds; their last requests may have ended just then.
        for now in (now + 10_000, now + 12_000, now + 13_000, now + 20_000, now + 40_000, now + 60_000):  # noqa: B020
            early = await ann.lease(visits=1) + await bob.lease(visits=1)
            assert not early, f"{early[0].token} is leased {now - 1_010_000} ms after the last request"


async def test_the_delay_is_not_rounded_down(store: Server) -> None:
    async with opened(store.url, delay_seconds=0.005) as ann:
        await ann.add("c", [Visit(url=f"http://h.example/{number}") for number in range(200)])
        short = 0
        ended = 0.0
        for _ in range(200):
            while not (leases := await ann.lease(visits=1)):
                pass
            short += mono() - ended < 0.005
            ended = mono()
            await ann.acknowledge(leases[0], [leases[0].visits[0].stored()], finished_ago_seconds=mono() - ended)
        assert short == 0, f"{short} of 200 requests start less than the delay after the one before"


async def test_hosts_that_back_off_do_not_block_another_crawl_of_the_same_spider(store: Server) -> None:
    async with await Frontier.open(store.url, shards=1) as ann:
        hosts = [f"h{number}.example" for number in range(60)]
        for crawl, spider in (("one", "A"), ("two", "B"), ("three", "B")):
            await ann.crawls.create(crawl, Limits(delay_seconds=0.0, spider=spider))
        for crawl in ("one", "two"):
            await ann.add(crawl, [f"http://{host}/" for host in hosts])
        await ann.crawls.pause("two")
        for host in hosts:
            await ann.hosts.postpone(host, 60.0)
        await ann.add("three", ["http://z.example/"])
        for _ in range(10):
            if leases := await ann.lease(hosts=4, spiders=["B"], wait_seconds=0.2):
                break
        assert [lease.host for lease in leases] == ["z.example"]


async def test_leases_of_a_healthy_shard_are_kept_when_another_shard_refuses_writes(
    store: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.frontier.shards._HELD_TIMEOUT_SECONDS", 0.2)
    async with await Frontier.open(store.url, shards=2) as ann:
        await ann.crawls.create("c", Limits(delay_seconds=0.0))
        await ann.add("c", [f"http://h{number}.example/" for number in range(20)])
        await ann.shards.call("freeze", 1, (60_000,))
        held = 0
        for _ in range(3):
            with contextlib.suppress(StoreHeld):
                held += len(await ann.lease(hosts=20))
        assert held > 0
        assert await leased(ann, held)
