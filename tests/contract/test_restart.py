"""A store that dies and restarts: nothing is lost, no token is used twice, and no host gets a request too soon."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shoal.errors import LeaseLost
from shoal.frontier.shards import Shards
from shoal.model import Limits
from shoal.store import Store
from tests.contract.fleet import Clock, Fleet, drain, end, paths
from tests.servers import Server, redis_server, server, wait_until


@asynccontextmanager
async def _fleet(**place: str | Path) -> AsyncIterator[Fleet]:
    async with await Store.open(**place) as store:  # type: ignore[arg-type]
        clock = Clock()
        yield Fleet("own", store, await Shards.found(store, "own", 4, clock), clock)


@pytest.fixture(params=["always", "everysec"])
def own_redis(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    options = {"appendfsync": request.param, "auto-aof-rewrite-percentage": "0"}
    with server(tmp_path / "own", binary=redis_server(), options=options) as redis:
        yield redis


async def _at_work(fleet: Fleet) -> list[str]:
    ann = fleet.worker(lease_seconds=10)
    await ann.crawls.create("c", Limits(delay_seconds=1))
    await ann.add("c", [url for host in fleet.hosts(6, shard=None) for url in paths(host, 4)])
    leases = await ann.lease(hosts=3, visits=1)
    await end(ann, leases[:1])
    return [lease.token for lease in leases]


async def test_an_embedded_store_that_is_killed_needs_no_hold(tmp_path: Path) -> None:
    async with _fleet(folder=tmp_path / "embedded") as fleet:
        tokens = await _at_work(fleet)
        before = await fleet.state()
        pid = fleet.store.embedded_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        ann = fleet.worker()
        assert await fleet.state() == before
        fleet.clock.tick(1)
        leases = await ann.lease(hosts=12)
        assert fleet.store.embedded_pid() != pid
        assert leases
        assert {lease.epoch for lease in leases} == {2}
        assert not {lease.token for lease in leases} & set(tokens)
        await end(ann, leases)
        fleet.clock.tick(60)
        assert len(await drain(fleet, ann)) == 23 - sum(len(lease.visits) for lease in leases)
        await fleet.check()


async def test_a_store_that_may_have_lost_writes_holds_leasing(own_redis: Server) -> None:
    everysec = "everysec" in own_redis.argv
    async with _fleet(url=own_redis.url) as fleet:
        tokens = await _at_work(fleet)
        ann, bob = fleet.worker(), fleet.worker("bob", lease_seconds=10)
        wait_until(lambda: own_redis.info("persistence")["aof_pending_bio_fsync"] == "0", "written")
        own_redis.restart()
        fleet.clock.tick(1)
        leases = await bob.lease(hosts=12)
        assert bob.epochs == 4
        if not everysec:
            assert leases
        else:
            # Nothing until every lease that may have been forgotten is over, then each host's own delay.
            assert leases == []
            fleet.clock.tick(11.9)
            assert await bob.lease() == []
            fleet.clock.tick(0.1)
            assert await bob.lease() == []
            fleet.clock.tick(0.9)
            assert await bob.lease() == []
            fleet.clock.tick(0.1)
            leases = await bob.lease(hosts=24)
            assert len(leases) == 6
        assert {lease.epoch for lease in leases} == {2}
        assert not {lease.token for lease in leases} & set(tokens)
        await end(bob, leases)
        fleet.clock.tick(60)
        await drain(fleet, ann)
        assert (await ann.crawls.count("c")).stored == 24
        assert await ann.crawls.finish("c")
        await fleet.check()


async def test_a_token_is_not_reused_after_a_rollback(own_redis: Server) -> None:
    async with _fleet(url=own_redis.url) as fleet:
        ann, bob = fleet.worker(lease_seconds=10), fleet.worker("bob", lease_seconds=10)
        await ann.crawls.create("c", Limits(delay_seconds=1))
        await ann.add("c", paths("a.example", 2))
        (part,) = own_redis.folder.glob("appendonlydir/*.incr.aof")
        wait_until(lambda: b"a.example" in part.read_bytes(), "written")
        length = part.stat().st_size
        (old,) = await ann.lease(visits=1)
        own_redis.kill()
        with part.open("r+b") as file:
            file.truncate(length)
        own_redis.start()
        fleet.clock.tick(20)
        leases = await bob.lease(visits=1)
        fleet.clock.tick(20)
        (new,) = leases or await bob.lease(visits=1)
        assert new.visits[0].url == old.visits[0].url
        assert new.token.split(".")[1] == old.token.split(".")[1]
        assert new.token != old.token
        with pytest.raises(LeaseLost):
            await ann.acknowledge(old, [old.visits[0].stored()])
        await end(bob, [new])
        await fleet.check()


async def test_a_lease_outlives_a_restart_only_if_nothing_can_be_lost(own_redis: Server) -> None:
    async with _fleet(url=own_redis.url) as fleet:
        ann = fleet.worker()
        await ann.crawls.create("c", Limits(delay_seconds=0))
        await ann.add("c", paths("a.example", 9))
        (lease,) = await ann.lease(visits=1)
        wait_until(lambda: own_redis.info("persistence")["aof_pending_bio_fsync"] == "0", "written")
        durable = fleet.store.durable
        own_redis.restart()
        (renewed,) = await ann.renew([lease], visits=5)
        assert (renewed is not None) == durable
        assert ann.epochs == 1
