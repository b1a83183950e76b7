"""Hostile entries in the store: nothing in them runs, only Shoal's errors are raised, and other hosts continue."""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Awaitable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from shoal.errors import ShoalError, StoreCorrupt
from shoal.frontier import Frontier
from shoal.model import Lease, Limits, Visit
from shoal.store import Argument
from tests.contract.fleet import Fleet, end

KINDS: dict[str, tuple[Argument, ...]] = {
    "text": ("SET", "{}", b"\xff\xfegarbage"),
    "list": ("RPUSH", "{}", b"\xff\xfe"),
    "hash": ("HSET", "{}", b"\xff", b"\xfe"),
    "zset": ("ZADD", "{}", 5, b"\xff\xfe not an entry of Shoal"),
    "huge": ("RPUSH", "{}", b"\xff" * 1_000_000),
}


class Scene:
    """A crawl on two hosts of one shard and one of another; `bad` is the host whose keys are spoilt."""

    def __init__(self, fleet: Fleet, crawl: str, key: str, lease: Lease, good: str, other: str) -> None:
        self.fleet = fleet
        self.crawl = crawl
        self.key = key
        self.lease = lease
        self.bad = lease.host
        self.good = good
        self.other = other
        self.bob = fleet.worker("bob", lease_seconds=5, expiries=2)

    async def spoil(self, name: str, command: tuple[Argument, ...]) -> None:
        key = self.fleet.shards.prefixes[0] + name.format(
            host=self.bad, crawl=self.key, token=self.lease.token, id=self.crawl
        )  # fmt: skip
        await self.fleet.store.command("DEL", key, key=key)
        await self.fleet.store.command(*(key if part == "{}" else part for part in command), key=key)


@pytest.fixture
async def scene(fleet: Fleet) -> Scene:
    ann = fleet.worker("ann", lease_seconds=5)
    crawl = next(f"c{i}" for i in range(999) if fleet.shards.home(f"c{i}") == 0)
    made = await ann.crawls.create(crawl, Limits(delay_seconds=0, max_pages_per_host=50))
    hosts, other = fleet.hosts(2), fleet.hosts(1, shard=1)[0]
    for host in (*hosts, other):
        await ann.add(crawl, [Visit(url=f"http://{host}/{i}", priority=5 * (i % 2)) for i in range(6)])
    (lease,) = await ann.lease(hosts=1, visits=2, shards=[0])
    good = next(host for host in hosts if host != lease.host)
    return Scene(fleet, crawl, made.key, lease, good, other)


async def _everything(scene: Scene) -> list[str]:
    """Call every operation; returns those that end neither in a result nor in one of Shoal's errors."""
    ann, bob, crawl = scene.fleet.worker("ann"), scene.bob, scene.crawl
    fresh = Frontier(scene.fleet.shards, worker="fresh")
    wrong = []

    async def attempt(name: str, call: Awaitable[Any]) -> Any:
        try:
            return await call
        except ShoalError:
            return None
        except Exception as error:
            wrong.append(f"{name}: {error!r}"[:200])

    for _ in range(2):
        for lease in await attempt("lease", bob.lease(hosts=8)) or []:
            await attempt("acknowledge", end(bob, [lease]))
    await attempt("renew", ann.renew([scene.lease], visits=3))
    await attempt("acknowledge", ann.acknowledge(scene.lease, [scene.lease.visits[0].retry(0)]))
    await attempt("release", ann.release([scene.lease]))
    await attempt("reap", bob.reap("ann", token=scene.lease.token, number=1))
    await attempt("count", bob.crawls.count(crawl))
    await attempt("failed", bob.crawls.failed(crawl))
    await attempt("finished", bob.crawls.finished(crawl))
    await attempt("get", fresh.crawls.get(crawl))
    await attempt("host", bob.hosts.get(scene.bad))
    await attempt("postpone", bob.hosts.postpone(scene.bad, 0, failed=True, host_failures=1))
    await attempt("failed again", bob.crawls.failed(crawl))
    await attempt("add", bob.add(crawl, [f"http://{host}/new" for host in (scene.bad, scene.good, scene.other)]))
    await attempt("retry", bob.crawls.retry(crawl))
    await attempt("forget", bob.crawls.forget(crawl, [f"http://{scene.bad}/1"]))
    scene.fleet.clock.tick(20)
    for lease in await attempt("lease after all that", bob.lease(hosts=8)) or []:
        await attempt("acknowledge", end(bob, [lease]))
    await attempt("finish", bob.crawls.finish(crawl))
    await attempt("stop", bob.crawls.stop(crawl))
    await attempt("delete", bob.crawls.delete(crawl))
    return wrong


_SPOILT = [
    (name, kind)
    for name, kinds in {
        "w:{host}": KINDS, "q:{crawl}:0:{host}": KINDS, "q:{crawl}:5:{host}": KINDS, "p:{crawl}:{host}": KINDS,
        "h:{host}": KINDS, "l:{token}": KINDS, "c:{crawl}": KINDS, "hp:{crawl}": ["text"], "later": ["text", "zset"],
        "leases": ["text", "zset"], "workers": ["text"], "acks": ["text"], "meta": ["text"],
        "ready:1:": ["text", "zset"],
        "failed:{crawl}": KINDS, "fi:{crawl}": ["text", "hash"], "reasons:{crawl}": ["text", "hash"],
        "crawl:{id}": ["text", "hash"], "keys": ["text"], "crawls": ["text"], "trash": ["list"],
    }.items()
    for kind in kinds
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind"), _SPOILT)
async def test_only_errors_of_shoal_are_raised(scene: Scene, name: str, kind: str) -> None:
    await scene.spoil(name, KINDS[kind])
    assert await _everything(scene) == []


ENTRIES = [b"\xff", b"\x00", b"\x04\x01", b"\x08\x00\x05abc", b"\x00" + b"\xff" * 20, b"\x00\x00\xff\xfe",
           b"\x03\x00no url",
           b"\x08\x00\xff\xff\xff\xff\x7fx", b"\x08\x00\x03\x94\x01\x80x", b"\x00\x00" + b"/\xc3" * 10]  # fmt: skip


async def _spoil_queue(scene: Scene, entry: bytes) -> None:
    """The front of a waiting queue is replaced; the counts stay right."""
    key = f"{scene.fleet.shards.prefixes[0]}q:{scene.key}:5:{scene.bad}"
    await scene.fleet.store.command("LSET", key, 0, entry, key=key)
    await end(scene.fleet.worker("ann"), [scene.lease])


@pytest.mark.parametrize("entry", ENTRIES[:6], ids=[entry[:8].hex() for entry in ENTRIES[:6]])
async def test_a_corrupt_entry_finally_fails_and_all_other_visits_are_made(scene: Scene, entry: bytes) -> None:
    await _spoil_queue(scene, entry)
    made: set[str] = set()
    named: list[bool] = []
    for _ in range(12):
        try:
            for lease in await scene.bob.lease(hosts=8, visits=1):
                made |= {visit.url for visit in await end(scene.bob, [lease])}
        except StoreCorrupt as error:
            named.append(scene.bad in str(error))
        scene.fleet.clock.tick(6)
    everything = {f"http://{host}/{i}" for host in (scene.bad, scene.good, scene.other) for i in range(6)}
    gone = {visit.url for visit in scene.lease.visits}
    assert all(named)
    assert len(everything - gone - made) == 1
    counts = await scene.bob.crawls.count(scene.crawl)
    assert (counts.open, counts.failed) == (0, 1)


async def _hosts_leased(scene: Scene) -> set[str]:
    """The hosts that three calls lease. Corrupt data may fail a call."""
    hosts: set[str] = set()
    for _ in range(3):
        with contextlib.suppress(StoreCorrupt):
            hosts |= {lease.host for lease in await scene.bob.lease(hosts=8)}
    return hosts


async def test_a_corrupt_entry_does_not_prevent_leases_of_other_hosts(scene: Scene) -> None:
    await _spoil_queue(scene, ENTRIES[0])
    assert {scene.good, scene.other} <= await _hosts_leased(scene)


@pytest.mark.parametrize("name", ["w:{host}", "p:{crawl}:{host}", "h:{host}"])
async def test_a_corrupt_host_does_not_affect_other_shards(scene: Scene, name: str) -> None:
    await scene.spoil(name, KINDS["text"])
    leases = await scene.bob.lease(shards=[1])
    assert [lease.host for lease in leases] == [scene.other]
    await end(scene.bob, leases)


@pytest.mark.parametrize("name", ["w:{host}", "p:{crawl}:{host}", "h:{host}"])
async def test_a_corrupt_host_does_not_stop_leasing(scene: Scene, name: str) -> None:
    await end(scene.fleet.worker("ann"), [scene.lease])
    await scene.spoil(name, KINDS["text"])
    assert scene.other in await _hosts_leased(scene)


class _Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


async def test_nothing_read_from_the_store_is_executed(scene: Scene, tmp_path: Path) -> None:
    trap = pickle.dumps(_Trap(tmp_path / "ran"))
    canary = f"{scene.fleet.shards.prefixes[0]}canary"
    lua = f"']] redis.call('SET', '{canary}', 1) --[['".encode()
    queue = f"{scene.fleet.shards.prefixes[0]}q:{scene.key}:0:{scene.bad}"
    for number, entry in enumerate((trap, b"\x00\x00" + trap, b"\x08\x00" + bytes((len(trap) & 127,)) + trap, lua)):
        await scene.fleet.store.command("LPUSH" if number % 2 else "RPUSH", queue, entry, key=queue)
    for name, command in (
        ("h:{host}", ("HSET", "{}", "x2", lua, "d", lua, "g", lua, "m", trap)),
        ("later", ("ZADD", "{}", 1, lua)),
        ("trash", ("RPUSH", "{}", b"x:1:1")),
        ("reasons:{crawl}", ("HSET", "{}", lua, 1)),
    ):
        await scene.spoil(name, command)
    await _everything(scene)
    assert not (tmp_path / "ran").exists()
    assert await scene.fleet.store.command("EXISTS", canary, key=canary) == 0


async def test_a_planted_url_of_another_host_is_leased_as_it_is(scene: Scene) -> None:
    """A whole URL in an entry may name any host: its visit has that URL, and no other visit is changed by it."""
    elsewhere = "http://elsewhere.example/"
    await _spoil_queue(scene, b"\x03\x00" + elsewhere.encode())
    made: dict[str, str] = {}
    while leases := await scene.bob.lease(hosts=8):
        made |= {visit.url: lease.host for lease in leases for visit in lease.visits}
        await end(scene.bob, leases)
        scene.fleet.clock.tick(6)
    assert made.pop(elsewhere) == scene.bad
    assert {urlsplit(url).netloc for url in made} == {scene.bad, scene.good, scene.other}
    assert all(urlsplit(url).netloc == host for url, host in made.items())
