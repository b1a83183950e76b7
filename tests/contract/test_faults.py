"""Faults between worker and store: lost replies, frozen shards, stepped clocks, other versions; and idle workers."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Any

import pytest

from shoal.errors import StoreRefused
from shoal.frontier import Frontier
from shoal.frontier.scripts import SCHEMA, Status
from shoal.frontier.shards import Shards
from shoal.model import Counts, Limits
from shoal.store import Script, Store
from tests.contract.fleet import Fleet, end, paths
from tests.servers import WAIT_SECONDS

# Replies that never arrive: the same call comes again


async def _leased(fleet: Fleet, request: str = "r1") -> tuple[int, list[Any]]:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    hosts = fleet.hosts(3)
    await ann.add("c", [url for host in hosts for url in paths(host, 4)])
    reply = await fleet.run("lease", 0, "ann", request, 2, 3, 60000, 2000, 10, "0", "")
    assert reply[0] == Status.OK
    return 0, reply


async def test_a_lease_whose_reply_was_lost_is_returned_again(fleet: Fleet) -> None:
    shard, first = await _leased(fleet)
    before = await fleet.state()
    again = await fleet.run("lease", shard, "ann", "r1", 2, 3, 60000, 2000, 10, "0", "")
    assert again[4:] == first[4:]
    assert await fleet.state() == before
    other = await fleet.run("lease", shard, "ann", "r2", 2, 3, 60000, 2000, 10, "0", "")
    assert len(other[5:]) == 7
    assert other[5] not in first


async def test_an_acknowledgement_whose_reply_was_lost_counts_once(fleet: Fleet) -> None:
    shard, reply = await _leased(fleet)
    token, host = reply[5], reply[6]
    lost = re.sub(rb"-\d+", b"-999", token)
    args = (
        "ann",
        "a1",
        0,
        token,
        host,
        0,
        1,
        20,
        "",
        2,
        1,
        "s",
        "",
        0,
        "",
        2,
        "r",
        "",
        1000,
        "",
        lost,
        host,
        0,
        "",
        "",
        "",
        0,
    )
    first = await fleet.run("acknowledge", shard, *args)
    assert first == [Status.OK, fleet.clock.ms, lost]
    before = await fleet.state()
    assert await fleet.run("acknowledge", shard, *args) == first
    assert await fleet.state() == before
    counts = await fleet.worker().crawls.count("c")
    assert (counts.stored, counts.later, counts.leased) == (1, 1, 4)
    await fleet.check()


async def test_an_add_that_is_repeated_adds_nothing(fleet: Fleet) -> None:
    ann = fleet.worker()
    crawl = await ann.crawls.create("c")
    host = fleet.hosts(1)[0]
    await ann.add("c", paths(host, 1))
    args = (crawl.key, 2, "", host, 0, 0, "0", 2, "123", b"\x00\x00/a", "-456", b"\x00\x00/b")
    assert (await fleet.run("add", 0, *args))[:2] == [Status.OK, b"nn"]
    before = await fleet.state()
    assert (await fleet.run("add", 0, *args))[:2] == [Status.OK, b"ss"]
    assert await fleet.state() == before


async def test_a_crawl_is_created_once_by_one_caller(fleet: Fleet) -> None:
    home = fleet.shards.home("c")
    first = await fleet.run("create", home, "c", "nonce1", 0, b"\x81\xa6limits\x80")
    assert first[0] == Status.OK
    assert await fleet.run("create", home, "c", "nonce1", 0, b"\x81\xa6limits\x80") == first
    assert await fleet.run("create", home, "c", "nonce2", 0, b"\x81\xa6limits\x80") == [Status.EXISTS, b"r"]


@pytest.mark.parametrize("repeated", ["release", "reap", "postpone", "renew"])
async def test_other_calls_can_be_repeated_without_changing_counts(fleet: Fleet, repeated: str) -> None:
    shard, reply = await _leased(fleet)
    token, host = reply[5], reply[6]
    args = {
        "release": (3, token, "", 0, 0),
        "reap": ("ann", 0, "", 0, 3, 10),
        "postpone": (host, 500, "0", 10, "down", "0"),
        "renew": (60000, 2000, token, 3, 4),
    }[repeated]
    for _ in range(3):
        assert (await fleet.run(repeated, shard, *args))[0] == Status.OK
        await fleet.check()
    counts = await fleet.worker().crawls.count("c")
    assert (counts.admitted, counts.open) == (12, 12)


# A shard that takes no writes


async def test_a_frozen_shard_refuses_writes_until_it_is_unfrozen(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    here, there = fleet.hosts(1, shard=1)[0], fleet.hosts(1, shard=2)[0]
    await ann.add("c", [*paths(here, 1), *paths(there, 1)])
    assert await fleet.run("freeze", 1, 5000) == [Status.OK]
    before = await fleet.state()
    adding = asyncio.create_task(ann.add("c", paths(here, 1, start=5)))
    await asyncio.sleep(0.1)
    assert not adding.done()
    assert await fleet.state() == before
    # Counting writes nothing, so it still works; other shards do too.
    assert (await ann.crawls.count("c")).waiting == 2
    assert len(await end(ann, await ann.lease(shards=[2]))) == 1
    assert await fleet.run("freeze", 1, 0) == [Status.OK]
    assert (await asyncio.wait_for(adding, WAIT_SECONDS)).letters == "n"
    await fleet.check()


async def test_a_freeze_expires(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    here = fleet.hosts(1, shard=1)[0]
    await ann.add("c", paths(here, 1))
    await fleet.run("freeze", 1, 5000)
    fleet.clock.tick(5)
    assert len(await ann.lease(shards=[1])) == 1


# Clocks


async def test_leasing_is_refused_after_a_clock_step(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths(fleet.hosts(1)[0], 1))
    before = await fleet.state()
    now, lease = fleet.clock.ms, ("ann", "r1", 2, 3, 60000, 2000, 10, "0", "")
    for expected in (now - 1001, now + 1001):
        assert await fleet.raw("lease", 0, f"{now}||1|{expected}", *lease) == [Status.CLOCK, now]
    assert await fleet.state() == before
    reply = await fleet.raw("lease", 0, f"{now}||1|{now + 900}", *lease)
    assert (reply[0], len(reply)) == (Status.OK, 12)


async def test_a_step_of_the_servers_clock_is_corrected_and_leasing_is_held(fleet: Fleet) -> None:
    bob = await fleet.join("bob", lease_seconds=0.3)
    await bob.crawls.create("c", Limits(delay_seconds=0))
    host = fleet.hosts(1)[0]
    await bob.add("c", paths(host, 3))
    await end(bob, await bob.lease(visits=1, shards=[0]))
    # The worker has read a clock that was an hour behind: to it, the server's clock has been stepped.
    readings = bob.shards.epochs.readings
    readings[0] = readings[0]._replace(now_ms=readings[0].now_ms - 3_600_000)
    assert await bob.lease(shards=[0]) == []
    assert bob.epochs == 1
    meta = (await fleet.state())[fleet.shards.prefixes[0] + "meta"]
    assert meta[b"epoch"] == b"2"
    assert -3_601_000 < int(meta[b"offset"]) < -3_599_000
    assert int(meta[b"hold"]) > int((await bob.shards.call("clock", 0, ()))[1]) + 1000
    await bob.close()


async def test_a_slow_call_is_not_mistaken_for_a_step_of_the_clock(fleet: Fleet) -> None:
    bob = await fleet.join("bob")
    await bob.crawls.create("c", Limits(delay_seconds=0))
    await bob.add("c", paths(fleet.hosts(1)[0], 3))
    await end(bob, await bob.lease(visits=1, shards=[0]))
    # Expected is a guess from now; a reply that comes late carries a later time, and the next look agrees.
    await bob.shards.epochs.turn(0)
    assert len(await bob.lease(shards=[0])) == 1
    assert bob.epochs == 0
    await bob.close()


# Other versions and settings


async def test_another_number_of_shards_is_refused(fleet: Fleet, store: Store) -> None:
    namespace = fleet.shards.namespace
    with pytest.raises(StoreRefused, match="has 4 shards, not 8"):
        await Shards.found(store, namespace, 8)
    assert (await Shards.found(store, namespace)).count == 4
    assert (await Shards.found(store, namespace, 4)).seed == fleet.shards.seed


async def test_workers_that_create_one_namespace_at_once_agree(store: Store, namespace: str) -> None:
    founded = await asyncio.gather(*(Shards.found(store, namespace) for _ in range(8)))
    assert {(shards.count, shards.seed) for shards in founded} == {(16, founded[0].seed)}


async def test_another_schema_is_refused(fleet: Fleet, store: Store) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    key = fleet.shards.prefixes[1] + "meta"
    await store.command("HSET", key, "schema", "99", key=key)
    before = await fleet.state()
    with pytest.raises(StoreRefused, match=f"schema 99, this version of Shoal uses {SCHEMA}"):
        await ann.add("c", paths(fleet.hosts(1, shard=1)[0], 1))
    assert await fleet.state() == before
    key = f"{fleet.shards.namespace}{{store}}meta"
    await store.command("HSET", key, "schema", "99", key=key)
    with pytest.raises(StoreRefused, match="dump it there and load it here"):
        await Shards.found(store, fleet.shards.namespace)


# Waking up


async def _woken(sleeper: Frontier, cause: asyncio.Task[None]) -> int:
    leases = await asyncio.wait_for(sleeper.lease(wait_seconds=10 * WAIT_SECONDS), WAIT_SECONDS)
    await cause
    return sum(len(lease.visits) for lease in leases)


async def test_an_idle_worker_wakes_when_another_adds_urls(fleet: Fleet) -> None:
    ann, bob = await fleet.join("ann"), await fleet.join("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    for round_ in range(3):
        host = fleet.hosts(3, shard=None)[round_]

        async def soon(host: str = host) -> None:
            await asyncio.sleep(0.15)
            await ann.add("c", paths(host, 2))

        assert await _woken(bob, asyncio.create_task(soon())) == 2
    await bob.close()


@pytest.mark.parametrize("cause", ["resume", "unblock and retry", "reap", "release"])
async def test_an_idle_worker_wakes_when_visits_become_available_again(fleet: Fleet, cause: str) -> None:
    ann, bob = await fleet.join("ann"), await fleet.join("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths("a.example", 2))
    held = []
    if cause == "resume":
        await ann.crawls.pause("c")
    elif cause == "unblock and retry":
        await ann.hosts.block("a.example")
    else:
        held = await ann.lease()

    async def soon() -> None:
        await asyncio.sleep(0.2)
        if cause == "resume":
            await ann.crawls.resume("c")
        elif cause == "unblock and retry":
            await ann.hosts.unblock("a.example")
            await ann.crawls.retry("c")
        elif cause == "reap":
            await ann.reap("ann")
        else:
            await ann.release(held)

    assert await _woken(bob, asyncio.create_task(soon())) == 2
    await bob.close()


@pytest.mark.parametrize("outcome", ["stored", "retry"])
async def test_an_idle_worker_wakes_when_another_frees_a_host(fleet: Fleet, outcome: str) -> None:
    ann, bob = await fleet.join("ann"), await fleet.join("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths("a.example", 2 if outcome == "stored" else 1))
    held = await ann.lease(visits=1)
    sleeping = asyncio.create_task(bob.lease(wait_seconds=30))
    await asyncio.sleep(0.2)
    await end(ann, held, lambda v: v.stored() if outcome == "stored" else v.retry(0.1))
    # Far longer than a wake-up takes, far shorter than a worker sleeps if it is not woken.
    woken, _ = await asyncio.wait([sleeping], timeout=1)
    sleeping.cancel()
    await asyncio.gather(sleeping, return_exceptions=True)
    await bob.close()
    assert woken


async def test_an_idle_worker_sleeps_until_a_host_is_ready(fleet: Fleet) -> None:
    ann = await fleet.join("ann")
    await ann.crawls.create("c", Limits(delay_seconds=0.4))
    await ann.add("c", paths("a.example", 2))
    await end(ann, await ann.lease(visits=1))
    loop = asyncio.get_running_loop()
    called = loop.time()
    assert len(await ann.lease(wait_seconds=30)) == 1
    assert loop.time() - called >= 0.3
    await ann.close()


async def test_waiting_ends_at_its_timeout(fleet: Fleet) -> None:
    ann = await fleet.join("ann")
    assert await ann.lease(wait_seconds=0.1) == []
    assert await ann.crawls.count((await ann.crawls.create("c")).id) == Counts()
    await ann.close()


@pytest.mark.parametrize("unavailable", [False, True], ids=["slow", "so_slow_that_all_shards_count_as_unavailable"])
async def test_an_idle_worker_calls_each_shard_of_a_slow_store_once(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, unavailable: bool
) -> None:
    """Otherwise hundreds of idle workers keep a store slow that was slow for a moment."""
    ann = await fleet.join("ann")
    # It subscribes to wake-ups, and looks once more when it has.
    assert await ann.lease(wait_seconds=0.5) == []
    monkeypatch.setattr("shoal.frontier.leasing.SLOW_SECONDS", 0.05)
    if unavailable:
        monkeypatch.setattr("shoal.frontier.shards.SLOW_SECONDS", 0.05)
    calls: Counter[str] = Counter()
    call = ann.shards.store.call

    async def call_slowly(script: Script, key: str, *args: Any, **options: Any) -> Any:
        calls[key] += script.name == "lease"
        await asyncio.sleep(0.2)
        return await call(script, key, *args, **options)

    monkeypatch.setattr(ann.shards.store, "call", call_slowly)
    assert await ann.lease(wait_seconds=1.5) == []
    assert calls == {f"{prefix}meta": 1 for prefix in ann.shards.prefixes}
    await ann.close()


async def test_a_shard_that_wakes_an_idle_worker_is_the_only_one_that_it_calls(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise hundreds of idle workers keep a store busy with calls of shards that have nothing."""
    ann, bob = await fleet.join("ann"), await fleet.join("bob")
    await bob.crawls.create("c", Limits(delay_seconds=0, spider="books"))
    assert await ann.lease(wait_seconds=0.5) == []
    calls: Counter[int] = Counter()
    call = ann.shards.call

    async def count(name: str, shard: int, *args: Any, **options: Any) -> Any:
        calls[shard] += 1
        return await call(name, shard, *args, **options)

    monkeypatch.setattr(ann.shards, "call", count)
    leasing = asyncio.create_task(ann.lease(wait_seconds=2.0))
    await asyncio.sleep(0.5)
    # For a spider that this worker does not have.
    await bob.add("c", [f"http://{fleet.hosts(1, shard=1)[0]}/"])
    assert await leasing == []
    assert calls == {shard: 2 if shard == 1 else 1 for shard in range(ann.shards.count)}
    await ann.close()
    await bob.close()


async def test_a_lease_that_a_slow_shard_gives_ends_the_wait(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    ann = await fleet.join("ann")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", [f"http://{host}/" for host in fleet.hosts(1, shard=1)])
    monkeypatch.setattr("shoal.frontier.leasing.SLOW_SECONDS", 0.05)
    call = ann.shards.call

    async def call_slowly(name: str, shard: int, *args: Any, **options: Any) -> Any:
        await asyncio.sleep(0.2 if shard == 1 else 0.0)
        return await call(name, shard, *args, **options)

    monkeypatch.setattr(ann.shards, "call", call_slowly)
    async with asyncio.timeout(WAIT_SECONDS):
        (lease,) = await ann.lease(wait_seconds=2 * WAIT_SECONDS)
    assert lease.shard == 1
    await ann.close()


async def test_a_wake_up_that_overtakes_a_late_reply_is_not_lost(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    ann, bob = await fleet.join("ann"), await fleet.join("bob")
    await bob.crawls.create("c", Limits(delay_seconds=0))
    assert await ann.lease(wait_seconds=0.5) == []
    monkeypatch.setattr("shoal.frontier.leasing.SLOW_SECONDS", 0.05)
    call, called = ann.shards.call, asyncio.Event()

    async def reply_late(name: str, shard: int, *args: Any, **options: Any) -> Any:
        reply = await call(name, shard, *args, **options)
        if shard == 1 and not called.is_set():
            called.set()
            await asyncio.sleep(1.0)
        return reply

    monkeypatch.setattr(ann.shards, "call", reply_late)
    leasing = asyncio.create_task(ann.lease(wait_seconds=9.0))
    await called.wait()
    await bob.add("c", [f"http://{fleet.hosts(1, shard=1)[0]}/"])
    (lease,) = await leasing
    assert lease.shard == 1
    await ann.close()
    await bob.close()
