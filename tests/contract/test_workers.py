"""Heartbeats: which workers are alive, by the store's clock, and which shards each of them owns."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import InvalidInput, StoreCorrupt
from shoal.frontier import Frontier, WorkerInfo, owned
from shoal.frontier.shard_owners import sample_shards
from shoal.frontier.workers import MAX_INFO_BYTES, fitted
from shoal.model import Limits
from shoal.model.heartbeat import Heartbeat
from shoal.model.worker_report import LatestPage
from tests.contract.fleet import Fleet, drain, paths
from tests.servers import server


async def test_a_worker_with_a_heartbeat_is_known_to_all(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    assert await bob.workers.alive() == []
    assert await bob.workers.beat({"machine": "m1", "pid": 7, "spiders": ["", "books"], "pages": {"stored": 3}}) == [
        "bob"
    ]
    fleet.clock.tick(2.5)
    assert await ann.workers.beat({}) == ["ann", "bob"]
    assert await ann.workers.alive() == [
        WorkerInfo("ann", 0.0, {}),
        WorkerInfo("bob", 2.5, {"machine": "m1", "pid": 7, "spiders": ["", "books"], "pages": {"stored": 3}}),
    ]
    await bob.workers.beat({"pages": 4})
    assert (await ann.workers.alive())[1] == WorkerInfo("bob", 0.0, {"pages": 4})


async def test_a_heartbeat_is_read_as_it_was_sent(fleet: Fleet) -> None:
    ann, page = fleet.worker(), LatestPage("c", "https://a.example/", 200, "A", 1.5)
    sent = Heartbeat(machine="m1", pid=7, spiders=["", "books"], pages=3, cpu_seconds=1.5, latest=[page], owns=False)
    assert await ann.workers.beat(sent) == []
    assert [worker.heartbeat for worker in await ann.workers.alive()] == [sent]


@pytest.mark.parametrize(
    "invalid",
    [
        {"pages": "many"}, {"pages": 10**15}, {"cpu_seconds": float("inf")}, {"cpu_seconds": float("nan")},
        {"spiders": ["books", 7]}, {"machine": None}, {"latest": [{"url": 1}]}, {"owns": "no"}, {"paused": {}},
    ],
)  # fmt: skip
async def test_an_invalid_field_of_a_heartbeat_has_its_default(fleet: Fleet, invalid: dict[str, Any]) -> None:
    ann = fleet.worker()
    await ann.workers.beat({"version": "1", "unknown": 1, **invalid})
    assert [worker.heartbeat for worker in await ann.workers.alive()] == [Heartbeat(version="1")]


async def test_a_silent_worker_is_dropped_after_30_seconds(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await bob.workers.beat({"n": 1})
    fleet.clock.tick(30)
    assert await ann.workers.beat({}) == ["ann", "bob"]
    fleet.clock.tick(0.001)
    assert [worker.name for worker in await ann.workers.alive()] == ["ann"]
    assert await ann.workers.beat({}) == ["ann"]
    state = await fleet.state()
    assert list(state[f"{fleet.shards.namespace}{{store}}infos"]) == [b"ann"]
    assert await bob.workers.beat({}) == ["ann", "bob"]


async def test_a_worker_that_leaves_is_removed_at_once(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await bob.workers.beat({"owns": False})
    await ann.workers.beat({})
    await bob.workers.leave()
    assert [worker.name for worker in await ann.workers.alive()] == ["ann"]
    await bob.workers.leave()
    await ann.workers.leave()
    assert not [name for name in await fleet.state() if name.endswith(("}beats", "}infos", "}nonowners"))]


async def test_a_worker_that_owns_nothing_is_listed_and_gets_no_shards(fleet: Fleet) -> None:
    """A Scrapy process leases its own spider's visits only: shards it owned would be looked after by nobody."""
    ann, bob = fleet.worker(), fleet.worker("bob")
    assert await bob.workers.beat({"owns": False, "kind": "scrapy"}) == []
    assert await ann.workers.beat({"pid": 7}) == ["ann"]
    assert [worker.name for worker in await ann.workers.alive()] == ["ann", "bob"]
    assert owned("ann", await ann.workers.beat({}), 16) == list(range(16))
    await bob.workers.beat({"owns": True})
    assert await ann.workers.beat({}) == ["ann", "bob"]


async def test_setting_the_clock_back_leaves_no_dead_workers(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await bob.workers.beat({})
    fleet.clock.tick(-3600)
    assert await ann.workers.beat({}) == ["ann"]
    assert list((await fleet.state())[f"{fleet.shards.namespace}{{store}}infos"]) == [b"ann"]
    assert await bob.workers.beat({}) == ["ann", "bob"]


async def test_many_dead_workers_are_dropped_one_hundred_per_call(fleet: Fleet) -> None:
    ann = fleet.worker()
    key = f"{fleet.shards.namespace}{{store}}beats"
    dead = [part for number in range(250) for part in (number, f"w{number}")]
    await fleet.store.command("ZADD", key, *dead, key=key)
    for left in (150, 50, 0, 0):
        assert await ann.workers.beat({}) == ["ann"]
        assert await fleet.store.command("ZCARD", key, key=key) == left + 1


async def test_invalid_information_of_a_worker_is_refused(fleet: Fleet) -> None:
    ann: Any = fleet.worker()
    for info in ({"x": "y" * 4096}, {"x": object()}, {1: 2}, [1], None, "text", {"x": 2**70}, {"x": "\ud800"}):
        with pytest.raises(InvalidInput, match="information of a worker"):
            await ann.workers.beat(info)
    assert await ann.workers.alive() == []


async def test_corrupt_heartbeats_are_ignored(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths("a.example", 2))
    prefix = f"{fleet.shards.namespace}{{store}}"
    beats, infos = prefix + "beats", prefix + "infos"
    await fleet.store.command("ZADD", beats, fleet.clock.ms, b"\xff\xfe", "+inf", "far", "-inf", "long", key=beats)
    for packed in (b"\xff", b"", b"\x91\x01", b"\x81\x01\x02", b"\x91" * 5000):
        await fleet.store.command("HSET", infos, b"\xff\xfe", packed, key=infos)
        assert [worker.info for worker in await ann.workers.alive()] == [{}]
    assert len(await ann.workers.beat({})) == 2
    await fleet.store.command("DEL", beats, key=beats)
    await fleet.store.command("SET", beats, b"\xff", key=beats)
    for call in (ann.workers.beat({}), ann.workers.alive(), ann.workers.leave()):
        with pytest.raises(StoreCorrupt):
            await call
    assert len(await drain(fleet, ann)) == 2


async def test_the_clock_of_the_server_is_used_unless_a_test_sets_one(fleet: Fleet) -> None:
    ann = await fleet.join("ann")
    assert await ann.workers.beat({}) == ["ann"]
    (worker,) = await ann.workers.alive()
    assert worker.seen_seconds_ago < 20
    await ann.close()


async def test_a_full_store_still_accepts_heartbeats(tmp_path: Path) -> None:
    with server(tmp_path / "full") as full:
        async with await Frontier.open(full.url, shards=1, worker="ann") as frontier:
            full.ask("CONFIG", "SET", "maxmemory", "1mb")
            assert await frontier.workers.beat({"x": 1}) == ["ann"]


# Owning

NAMES = st.lists(st.text("abcdef-0123456789", min_size=1, max_size=8), min_size=1, max_size=12, unique=True)


@given(NAMES, st.integers(1, 64))
def test_every_shard_has_one_owner_in_any_order_of_workers(names: list[str], shards: int) -> None:
    shares = [owned(name, names, shards) for name in names]
    assert sorted(shard for share in shares for shard in share) == list(range(shards))
    assert [owned(name, [*reversed(names), *names], shards) for name in names] == shares


@given(NAMES, st.text("xyz", min_size=1, max_size=8), st.integers(1, 64))
def test_a_worker_that_joins_or_leaves_moves_only_its_share(names: list[str], comer: str, shards: int) -> None:
    together = [*names, comer]
    theirs = set(owned(comer, together, shards))
    for name in names:
        alone, beside = set(owned(name, names, shards)), set(owned(name, together, shards))
        assert beside == alone - theirs
    # One that the list does not have yet counts itself.
    assert set(owned(comer, names, shards)) == theirs


def test_shards_are_shared_evenly_enough() -> None:
    names = [f"machine-{number}-{number:06x}" for number in range(10)]
    sizes = [len(owned(name, names, 1024)) for name in names]
    assert min(sizes) > 70
    assert max(sizes) < 140


def test_a_heartbeat_leaves_out_latest_pages_that_it_has_no_room_for() -> None:
    pages = [
        LatestPage("c" * 128, f"https://a.example/{number}" + "x" * 180, 200, "\U0001f41f" * 40, 0.0)
        for number in range(6)
    ]
    paused = ["p" * 128] * 20
    heartbeat = fitted(Heartbeat(paused=paused, latest=pages))
    assert 0 < len(heartbeat.latest) < 6
    assert heartbeat.latest == pages[-len(heartbeat.latest) :]
    assert len(msgspec.msgpack.encode(heartbeat)) <= MAX_INFO_BYTES
    assert fitted(Heartbeat(latest=pages)).latest == pages


def test_only_some_workers_of_a_large_fleet_look_for_work_in_each_shard() -> None:
    assert sample_shards(0, 16) is sample_shards(32, 16) is None
    looking = Counter(shard for _ in range(1000) for shard in sample_shards(1000, 16) or ())
    assert set(looking) == set(range(16))
    assert looking.total() == 1000
    assert len(set(sample_shards(64, 16) or ())) == 8
