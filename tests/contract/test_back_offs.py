"""The history of a host's back-offs: what is stored, and how much of it."""

from __future__ import annotations

from shoal.frontier import keys
from tests.contract.fleet import Fleet


async def test_a_back_off_is_stored_with_its_reason_and_its_end(fleet: Fleet) -> None:
    hosts, start = fleet.worker().hosts, fleet.clock.seconds
    assert await hosts.back_offs("a.example") == []
    await hosts.postpone("a.example", 5, failed=True, reason="status 503")
    # Neither a pause that nothing went wrong for nor a failure without a pause is a back-off.
    await hosts.postpone("a.example", 1)
    await hosts.postpone("a.example", 0, failed=True)
    fleet.clock.tick(1)
    await hosts.unblock("a.example")
    fleet.clock.tick(1)
    await hosts.postpone("a.example", 0, failed=True, host_failures=1, reason="refused")
    noted = [
        (each.at - start, each.seconds, each.failures, each.given_up, each.reason)
        for each in await fleet.worker("bob").hosts.back_offs("a.example")
    ]
    assert noted == [
        (2, 0, 1, True, "refused"),
        (1, 0, 0, False, "cleared by an operator"),
        (0, 5, 1, False, "status 503"),
    ]


async def test_the_number_of_stored_back_offs_is_bounded_per_host_and_per_shard(fleet: Fleet) -> None:
    ann = fleet.worker()
    (host, other) = fleet.hosts(2)
    for number in range(25):
        await ann.hosts.postpone(other, 1, failed=True, reason=f"failure {number}")
    past = await ann.hosts.back_offs(other)
    assert [each.reason for each in past] == [f"failure {number}" for number in range(24, 4, -1)]
    shard = fleet.shards.of(other)
    prefix = fleet.shards.prefixes[shard]
    store, rested = fleet.shards.store, f"{prefix}rested"
    listed = keys.back_offs(prefix, other)
    assert 0 < await store.command("PTTL", listed, key=listed) <= 7 * 86400 * 1000
    assert await store.command("MEMORY", "USAGE", listed, key=listed) < 1500
    fleet.clock.tick(1)
    later = [part for number in range(1000) for part in (fleet.clock.ms, f"later{number}.example")]
    await store.command("ZADD", rested, *later, key=rested)
    fleet.clock.tick(1)
    assert fleet.shards.of(host) == shard
    await ann.hosts.postpone(host, 1, failed=True)
    await ann.hosts.postpone(host, 1, failed=True)
    # Of each call that adds a host, the oldest leaves.
    assert await store.command("ZCARD", rested, key=rested) == 1000
    assert await ann.hosts.back_offs(other) == []
    assert len(await ann.hosts.back_offs(host)) == 2
