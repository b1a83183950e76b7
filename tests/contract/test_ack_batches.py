"""Receipts: acknowledgements whose result another process can read after a crash."""

from __future__ import annotations

import msgspec
import pytest

from shoal.errors import InvalidInput
from shoal.frontier import AckBatch, Done
from shoal.model.limits import Limits
from tests.contract.fleet import Fleet, paths


async def test_a_committed_batch_cannot_be_voided(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths(fleet.hosts(1)[0], 2))
    lease = (await ann.lease())[0]
    batch = ann.prepare([Done(lease=lease, outcomes=[visit.stored() for visit in lease.visits])])
    assert await ann.commit(batch) == []
    assert await bob.void_batch(AckBatch.unpack(batch.pack())) == []
    assert (await bob.crawls.count("c")).stored == 2


async def test_a_voided_batch_can_never_be_committed(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths(fleet.hosts(1)[0], 2))
    lease = (await ann.lease())[0]
    batch = ann.prepare([Done(lease=lease, outcomes=[visit.stored() for visit in lease.visits])])
    assert await bob.void_batch(AckBatch.unpack(batch.pack())) == [lease.token]
    assert await ann.commit(batch) == [lease.token]
    assert (await bob.crawls.count("c")).stored == 0
    await bob.reap("ann")
    assert [len(lease.visits) for lease in await bob.lease()] == [2]
    await fleet.check()


async def test_voiding_a_committed_batch_reports_the_same_lost_leases(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    first, second = fleet.hosts(2)
    await ann.add("c", [*paths(first, 1), *paths(second, 1)])
    leases = await ann.lease()
    gone = next(lease for lease in leases if lease.host == first)
    await ann.release([gone])
    batch = ann.prepare([Done(lease=lease, outcomes=[visit.stored() for visit in lease.visits]) for lease in leases])
    assert await ann.commit(batch) == [gone.token]
    assert await bob.void_batch(batch) == [gone.token]
    await fleet.check()


async def test_a_committed_batch_is_kept_after_its_worker_was_reaped(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths(fleet.hosts(1)[0], 2))
    lease = (await ann.lease())[0]
    batch = ann.prepare([Done(lease=lease, outcomes=[lease.visits[0].stored()])])
    await ann.commit(batch)
    await bob.reap("ann")
    assert await bob.void_batch(batch) == []


async def test_an_unpacked_batch_is_not_committed(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths(fleet.hosts(1)[0], 2))
    lease = (await ann.lease())[0]
    batch = ann.prepare([Done(lease=lease, outcomes=[visit.stored() for visit in lease.visits])])
    with pytest.raises(InvalidInput, match="can only be voided"):
        await ann.commit(AckBatch.unpack(batch.pack()))
    assert await ann.commit(batch) == []
    assert (await ann.crawls.count("c")).stored == 2


async def test_a_batch_of_version_0_1_is_voided(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths(fleet.hosts(1)[0], 1))
    lease = (await ann.lease())[0]
    outcome = [lease.visits[0].number, "s", "", 0.0, b""]
    report = [lease.token, lease.host, [outcome], 0.0, True, 0.1, None]
    packed = msgspec.msgpack.encode(["ann", [[lease.shard, "1", [report]]], 0.0])
    assert await bob.void_batch(AckBatch.unpack(packed)) == [lease.token]
