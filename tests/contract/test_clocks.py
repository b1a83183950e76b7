"""The store restarts with another clock, or as another frontier: the time of a shard never jumps."""

from __future__ import annotations

import pytest

from shoal.errors import StoreHeld
from shoal.frontier.frontier import Frontier
from shoal.frontier.shards import Shards
from shoal.model import Limits
from tests.contract.fleet import Fleet, paths

SHARD = [0]
STEPS = [300_000, -300_000, 10 * 365 * 86_400_000, -5 * 365 * 86_400_000]


async def _meta(fleet: Fleet) -> dict[bytes, bytes]:
    meta: dict[bytes, bytes] = (await fleet.state())[fleet.shards.prefixes[0] + "meta"]
    return meta


async def _set(fleet: Fleet, *pairs: str | int) -> None:
    key = fleet.shards.prefixes[0] + "meta"
    await fleet.store.command("HSET", key, *pairs, key=key)


async def _restart(fleet: Fleet, step_ms: int) -> None:
    """Another server process, whose clock differs: scripts add the offset to the server's time."""
    offset = int((await _meta(fleet)).get(b"offset", 0))
    await _set(fleet, "run", "0" * 16, "offset", offset + step_ms)


async def _now(frontier: Frontier) -> int:
    return int((await frontier.shards.call("clock", 0, ()))[1])


async def _assert_no_jump(frontier: Frontier, before: int) -> None:
    # A reading is as exact as its reply was quick, so a correction may be some milliseconds off in either direction.
    assert -1_000 < await _now(frontier) - before < 60_000


async def _pair(fleet: Fleet) -> tuple[Frontier, Frontier]:
    """Two workers that have read the clock."""
    ann = await fleet.join("ann", lease_seconds=0.3)
    bob = await fleet.join("bob", lease_seconds=0.3)
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths(fleet.hosts(1)[0], 3))
    while not (ann.shards.epochs.readings and bob.shards.epochs.readings):
        # A reading counts only if its call was fast.
        await ann.lease(shards=SHARD)
        await bob.lease(shards=SHARD)
    return ann, bob


@pytest.mark.parametrize("step_ms", STEPS)
async def test_a_restart_with_another_clock_is_corrected_in_one_epoch(fleet: Fleet, step_ms: int) -> None:
    ann, bob = await _pair(fleet)
    before = await _now(ann)
    await _restart(fleet, step_ms)
    await ann.lease(shards=SHARD)
    for _ in range(3):
        await bob.lease(shards=SHARD)
        await ann.lease(shards=SHARD)
    await _assert_no_jump(ann, before)
    meta = await _meta(fleet)
    assert meta[b"epoch"] == b"2"
    assert int(meta[b"hold"]) > before
    assert b"doubt" not in meta


@pytest.mark.parametrize("step_ms", STEPS)
async def test_a_worker_that_read_the_clock_before_corrects_a_step_a_new_worker_cannot_see(
    fleet: Fleet, step_ms: int
) -> None:
    ann, bob = await _pair(fleet)
    before = await _now(ann)
    await _restart(fleet, step_ms)
    new = await fleet.join("new", lease_seconds=0.3)
    await new.lease(shards=SHARD)
    assert b"doubt" in await _meta(fleet)
    # Also a report of a failure is not written by the wrong clock.
    await bob.hosts.postpone(fleet.hosts(1)[0], 60)
    for worker in (new, ann, bob, new):
        await worker.lease(shards=SHARD)
    await _assert_no_jump(ann, before)
    meta = await _meta(fleet)
    assert b"doubt" not in meta
    assert int(meta[b"epoch"]) <= 3
    host = await ann.hosts.get(fleet.hosts(1)[0])
    assert abs(host.backoff_until * 1000 - 60_000 - before) < 60_000


async def test_a_restart_with_the_same_clock_keeps_every_clock_reading(fleet: Fleet) -> None:
    ann, bob = await _pair(fleet)
    await _restart(fleet, 0)
    new = await fleet.join("new", lease_seconds=0.3)
    for worker in (new, ann, bob, new, ann):
        await worker.lease(shards=SHARD)
    meta = await _meta(fleet)
    assert meta[b"epoch"] == b"2"
    assert b"doubt" not in meta


async def test_time_does_not_go_back_even_if_no_worker_has_read_the_clock(fleet: Fleet) -> None:
    ann, _ = await _pair(fleet)
    await ann.add("c", paths(fleet.hosts(2)[1], 3))
    while not await ann.lease(shards=SHARD, wait_seconds=1):
        pass
    before = await _now(ann)
    await _set(fleet, "offset", -5 * 365 * 86_400_000)
    new = await fleet.join("new", lease_seconds=0.3)
    await new.lease(shards=SHARD)
    await _assert_no_jump(new, before)


@pytest.mark.parametrize("shards", [4, 3])
async def test_workers_join_a_frontier_that_was_created_again(fleet: Fleet, shards: int) -> None:
    ann, _ = await _pair(fleet)
    for key in await fleet.state():
        await fleet.store.command("DEL", key, key=key)
    again = Frontier(await Shards.found(fleet.store, fleet.shards.namespace, shards), worker="new")
    await again.crawls.create("c", Limits(delay_seconds=0))
    urls = paths(fleet.hosts(1)[0], 3)
    with pytest.raises(StoreHeld, match="created again"):
        await ann.lease()
    assert ann.shards.count == shards
    assert (await ann.add("c", urls)).new == 3
    assert (await again.add("c", urls)).new == 0
    assert len(await ann.lease()) == 1
