"""Sessions of the dashboard in the store: how long they last, and how many there are."""

from __future__ import annotations

from shoal.frontier import keys
from tests.contract.fleet import Fleet

HOUR = 3600.0


async def test_a_session_ends_after_twelve_hours_without_a_request(fleet: Fleet) -> None:
    table = fleet.worker().sessions
    await table.begin("ann", "mark")
    await table.begin("bob", "other")
    assert await table.owner("cyd") == ""
    fleet.clock.tick(11 * HOUR)
    assert await fleet.worker("second").sessions.owner("ann") == "mark"
    fleet.clock.tick(2 * HOUR)
    assert (await table.owner("ann"), await table.owner("bob")) == ("mark", "")
    await table.end("ann")
    assert await table.owner("ann") == ""


async def test_no_more_than_ten_thousand_sessions_are_kept(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.sessions.begin("first", "mark")
    fleet.clock.tick(1)
    await ann.sessions.begin("second", "mark")
    prefix = keys.prefix(fleet.shards.namespace, "store")
    now = fleet.clock.ms + 1000
    others = [part for number in range(9999) for part in (now, f"{number:x}")]
    await fleet.shards.store.command("ZADD", f"{prefix}sessions", *others, key=f"{prefix}sessions")
    await ann.sessions.begin("third", "mark")
    assert [await ann.sessions.owner(name) for name in ("first", "second", "third")] == ["", "", "mark"]
    assert await fleet.shards.store.command("ZCARD", f"{prefix}sessions", key=f"{prefix}sessions") == 10_000
    assert await fleet.shards.store.command("HLEN", f"{prefix}owners", key=f"{prefix}owners") == 1
