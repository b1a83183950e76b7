"""A frontier out and in: the same crawls, counts and visits in another store, also with another number of shards."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from shoal.errors import CrawlExists, InvalidInput, StoreRefused
from shoal.frontier import Done, Frontier, dump, load
from shoal.frontier.shards import Shards
from shoal.model import Limits, State, Visit
from shoal.store import Store

HOSTS = [f"h{number}.example" for number in range(12)]


async def busy(store: Store, namespace: str, now: list[int]) -> Frontier:
    """A frontier with something of everything."""
    frontier = Frontier(await Shards.found(store, namespace, 4, lambda: now[0]), worker="ann")
    await frontier.crawls.create("one", Limits(delay_seconds=1, max_pages=100), {"seeds": ["http://h0.example/"]})
    await frontier.crawls.create("two", Limits(delay_seconds=0, max_pages_per_host=3, order="lifo"))
    await frontier.crawls.create("gone", Limits(delay_seconds=0))
    await frontier.add("one", [Visit(url=f"http://{h}/{n}", priority=n % 3) for h in HOSTS for n in range(9)])
    posted = Visit(
        url="http://h1.example/post", method="POST", body=b"\xff\0", headers={"a": "b"}, meta={"k": [1, None]}
    )
    await frontier.add("two", [posted, *(f"http://{h}/{n}" for h in HOSTS for n in range(5))])
    await frontier.add("gone", ["http://h2.example/"])
    await frontier.crawls.stop("gone")
    await frontier.hosts.block("h3.example", "asked us to")
    await frontier.hosts.set_delay("h4.example", 7)
    leases = await frontier.lease(hosts=8, visits=3)
    outcomes = [
        lambda v: v.stored(),
        lambda v: v.failed("broken"),
        lambda v: v.retry(30),
        lambda v: v.excluded("robots"),
    ]
    done = [
        Done(lease=lease, outcomes=[outcomes[i % 4](v) for i, v in enumerate(lease.visits)], finished_ago_seconds=0.0)
        for lease in leases[:4]
    ]
    await frontier.acknowledge_all(done)
    return frontier


async def drain(frontier: Frontier, now: list[int]) -> Counter[str]:
    """Every visit that is left, made."""
    made: Counter[str] = Counter()
    for _ in range(600):
        if await frontier.crawls.finished("one") and await frontier.crawls.finished("two"):
            return made
        for lease in await frontier.lease(hosts=20, visits=8):
            made.update(f"{v.crawl} {v.method} {v.url}" for v in lease.visits)
            await frontier.acknowledge(lease, [v.stored() for v in lease.visits])
        now[0] += 1000
    raise AssertionError("it never ends")


def tally(made: Counter[str]) -> Counter[str]:
    """Which three pages of a host crawl `two` takes depends on when it is asked; how many does not."""
    counted: Counter[str] = Counter()
    for visit, times in made.items():
        counted[visit if visit.startswith("one") else "two " + visit.split("/")[2]] += times
    return counted


@pytest.mark.parametrize("shards", [1, 4, 7])
async def test_a_dump_can_be_loaded_into_any_number_of_shards(
    store: Store, namespace: str, tmp_path: Path, shards: int
) -> None:
    now = [1_000_000]
    old = await busy(store, namespace, now)
    lines = [line async for line in dump(old.shards)]
    assert all(json.loads(line) for line in lines)
    async with await Store.open(folder=tmp_path / "other") as other:
        new = Frontier(await Shards.found(other, "other", shards, lambda: now[0]), worker="bob")
        await load(new.shards, lines)
        for crawl in ("one", "two", "gone"):
            before, after = await old.crawls.count(crawl), await new.crawls.count(crawl)
            assert after.admitted == before.admitted
            assert (after.stored, after.failed, after.excluded) == (before.stored, before.failed, before.excluded)
            assert (after.waiting, after.later) == (before.waiting + before.leased, before.later)
            assert after.reasons == before.reasons
            assert (await new.crawls.get(crawl)).limits == (await old.crawls.get(crawl)).limits
        assert (await new.crawls.get("gone")).state is State.STOPPED
        assert (await new.crawls.get("one")).spec == {"seeds": ["http://h0.example/"]}
        with pytest.raises(CrawlExists):
            await new.crawls.create("gone")
        assert (await new.hosts.get("h3.example")).blocked == "asked us to"
        assert (await new.hosts.get("h4.example")).delay_seconds == 7
        # What was seen there is seen here; the failed are the same.
        assert (
            await new.add("one", [f"http://{h}/{n}" for h in HOSTS if h != "h3.example" for n in range(9)])
        ).new == 0
        assert {v.url for v, _ in await new.crawls.failed("one")} == {v.url for v, _ in await old.crawls.failed("one")}
        made = await drain(new, now)
        assert set(made.values()) <= {1}
        ended = await new.crawls.count("one")
        assert ended.open == 0
        # The old one goes on as if nothing had been: the same visits are left in it.
        now[0] += 200_000
        assert tally(await drain(old, now)) == tally(made)


async def test_a_host_that_was_leased_stays_closed_until_its_lease_has_expired(store: Store, namespace: str) -> None:
    now = [1_000_000]
    old = Frontier(await Shards.found(store, namespace, 4, lambda: now[0]), worker="ann", lease_seconds=10)
    await old.crawls.create("one", Limits(delay_seconds=2))
    await old.add("one", ["http://h0.example/"])
    assert await old.lease()
    lines = [line async for line in dump(old.shards)]
    new = Frontier(await Shards.found(store, namespace[:12] + "-b", 4, lambda: now[0]), worker="bob")
    await load(new.shards, lines)
    now[0] += 11_999
    assert await new.lease() == []
    now[0] += 1
    assert len(await new.lease()) == 1


async def test_a_truncated_or_foreign_dump_is_refused(store: Store, namespace: str) -> None:
    now = [1_000_000]
    old = await busy(store, namespace, now)
    lines = [line async for line in dump(old.shards)]
    names = (f"{namespace[:12]}-{letter}" for letter in "abcd")
    for bad in (
        lines[:-1],
        ["{}"],
        ["not json"],
        [*lines[:3], '{"waiting": ["!"], "crawl": "x", "host": "y", "priority": 0}'],
    ):
        with pytest.raises(InvalidInput):
            await load(await Shards.found(store, next(names), 4, lambda: now[0]), bad)
    with pytest.raises(StoreRefused, match="has crawls already"):
        await load(old.shards, lines)


async def test_after_a_dump_the_frontier_accepts_writes_again(store: Store, namespace: str) -> None:
    old = await busy(store, namespace, [1_000_000])
    async for _ in dump(old.shards):
        reply = await old.shards.call("lease", 0, ("ann", "r1", 1, 1, 1000, 0, 10, "0", ""), waits=False)
        assert reply[0] == 4, "a shard gives leases while it is dumped"
        break
    assert (await old.add("one", ["http://new.example/"])).new == 1
