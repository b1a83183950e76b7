"""Facts of a crawl: decisions depend on them, so a repeated call must not change them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import InvalidInput, StoreUnavailable, UnknownCrawl
from shoal.frontier import Frontier, dump, load
from shoal.frontier.crawl_facts import Facts, Feed
from shoal.frontier.scripts import Status
from shoal.frontier.shards import Shards
from shoal.model import Limits
from shoal.store import Store
from tests.contract.fleet import Fleet
from tests.servers import server


async def record_all(frontier: Frontier, crawl: str) -> None:
    facts = frontier.crawls.facts
    await facts.add_branch(crawl, "reader")
    await facts.add_download_slot(crawl, "[::1]:8080")
    await facts.mark_submitted(crawl)
    await facts.mark_notified(crawl)
    await facts.start_feed(crawl, Feed.SEEDS)
    await facts.start_feed(crawl, Feed.PASS)
    await facts.finish_feed(crawl, Feed.PASS)


async def test_facts_are_read_as_they_were_recorded(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    assert await ann.crawls.facts.read("c") == Facts()
    await record_all(ann, "c")
    await ann.crawls.facts.add_bytes("c", 700)
    facts = await fleet.worker("bob").crawls.facts.read("c")
    assert (facts.branches, facts.download_slots) == (("reader",), ("[::1]:8080",))
    assert facts.submitted
    assert facts.notified
    assert facts.seeds.under_way
    assert not facts.revisit.under_way
    assert facts.feeding
    assert facts.revisit.started == 1
    assert facts.bytes_received == 700


async def test_a_fact_that_is_recorded_again_stays_the_same(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    await record_all(ann, "c")
    before = await fleet.state()
    await record_all(fleet.worker("bob"), "c")
    after = await fleet.state()
    # The second pass is a new one; nothing else changed.
    facts = await ann.crawls.facts.read("c")
    assert facts.revisit.started == facts.revisit.finished == 2
    changed = {name for name in after if after[name] != before.get(name)}
    assert {name.partition("}")[2].partition(":")[0] for name in changed} == {"facts"}
    home = fleet.shards.home("c")
    before = await fleet.state()
    # A client repeats the call if the reply was lost.
    for _ in range(2):
        assert (await fleet.run("facts", home, "c", "pass_begun", 2, "pass_began_ms", 2**40))[0] == Status.OK
    assert await fleet.state() == before


async def test_two_workers_that_start_a_feed_at_once_start_the_same_feed(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c")
    await asyncio.gather(*(worker.crawls.facts.start_feed("c", Feed.SEEDS) for worker in (ann, bob, ann, bob)))
    first = (await ann.crawls.facts.read("c")).seeds
    assert first.started == 1
    await bob.crawls.facts.start_feed("c", Feed.SEEDS)
    assert (await bob.crawls.facts.read("c")).seeds == first


async def test_a_count_of_bytes_that_is_repeated_counts_once(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c")
    assert await ann.crawls.facts.add_bytes("c", 5) == 5
    assert await bob.crawls.facts.add_bytes("c", 7) == 12
    home = fleet.shards.home("c")
    for _ in range(3):
        assert (await fleet.run("add_bytes", home, "c", "cyd", 4, 100))[1] == 112
    # One that comes late, after its successor, was counted or given up: it changes nothing.
    assert (await fleet.run("add_bytes", home, "c", "cyd", 3, 1000))[1] == 112
    assert (await fleet.run("add_bytes", home, "c", "cyd", 5, 1))[1] == 113


async def test_bytes_whose_count_failed_are_sent_with_the_next(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    call = fleet.shards.call

    async def counted_and_lost(*args: Any, **options: Any) -> Any:
        await call(*args, **options)
        raise StoreUnavailable("the reply was lost")

    async def never_sent(*args: Any, **options: Any) -> Any:
        raise StoreUnavailable("the store is down")

    for trouble, count in ((counted_and_lost, 10), (never_sent, 200)):
        monkeypatch.setattr(fleet.shards, "call", trouble)
        with pytest.raises(StoreUnavailable):
            await ann.crawls.facts.add_bytes("c", count)
    monkeypatch.setattr(fleet.shards, "call", call)
    assert await ann.crawls.facts.add_bytes("c", 3000) == 3210
    assert await ann.crawls.facts.add_bytes("c", 0) == 3210


async def test_sources_without_a_report_for_an_hour_are_dropped(fleet: Fleet) -> None:
    await fleet.worker().crawls.create("c")
    home = fleet.shards.home("c")
    for number in range(255):
        await fleet.run("add_bytes", home, "c", f"w{number}", 1, 1)
    fleet.clock.tick(3601)
    assert (await fleet.run("add_bytes", home, "c", "w255", 1, 1))[1] == 256
    (sources,) = [value for name, value in (await fleet.state()).items() if "}counted:" in name]
    assert list(sources) == [b"w255"]


async def test_a_crawl_that_shoal_0_1_wrote_has_its_facts(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(spider="lister"))
    await ann.crawls.create("c:reader", Limits(spider="reader"), {"parent": "c"})
    old = {"branch:reader": 1, "slot:a.example": 1, "submitted": 1, "notified": 1, "pages": 9, "bytes": 1000}
    old |= {"seeds_begun": 1, "seeds_began_ms": 1_700_000_000_000, "pass_begun": 2, "pass_done": 2}
    await ann.crawls.tally("c", **old)
    facts = await ann.crawls.facts.read("c")
    assert (facts.branches, facts.download_slots, facts.submitted) == (("reader",), ("a.example",), True)
    assert (facts.notified, facts.bytes_received) == (True, 1000)
    assert facts.seeds.under_way
    assert facts.seeds.started_at == 1_700_000_000
    assert not facts.revisit.under_way
    assert await ann.crawls.branches("c") == ["c:reader"]
    # From here on this version writes.
    await ann.crawls.facts.finish_feed("c", Feed.SEEDS)
    await ann.crawls.facts.start_feed("c", Feed.PASS)
    assert await ann.crawls.facts.add_bytes("c", 24) == 1024
    facts = await ann.crawls.facts.read("c")
    assert not facts.seeds.under_way
    assert facts.revisit.under_way
    assert facts.revisit.started == 3
    assert facts.bytes_received == 1024
    # A worker of the old version beside it still counts.
    await ann.crawls.tally("c", bytes=1)
    assert (await ann.crawls.facts.read("c")).bytes_received == 1025


async def test_facts_are_deleted_with_the_crawl(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    await record_all(ann, "c")
    await ann.crawls.facts.add_bytes("c", 1)
    await ann.crawls.stop("c")
    assert await ann.crawls.facts.add_bytes("c", 1) == 2
    await ann.crawls.delete("c")
    assert not [name for name in await fleet.keys() if name.startswith(("facts:", "counted:"))]
    await ann.crawls.facts.mark_notified("c")
    assert await ann.crawls.facts.add_bytes("c", 1) == 0
    assert await ann.crawls.facts.read("c") == Facts()
    assert not [name for name in await fleet.keys() if name.startswith(("facts:", "counted:"))]


async def test_a_dump_contains_them(store: Store, namespace: str) -> None:
    old = Frontier(await Shards.found(store, namespace, 4))
    await old.crawls.create("c")
    await record_all(old, "c")
    await old.crawls.tally("c", bytes=5)
    await old.crawls.facts.add_bytes("c", 7)
    facts = await old.crawls.facts.read("c")
    assert facts.bytes_received == 12
    lines = [line async for line in dump(old.shards)]
    new = Frontier(await Shards.found(store, namespace[:12] + "-f", 3))
    await load(new.shards, lines)
    assert await new.crawls.facts.read("c") == facts


async def test_an_invalid_fact_is_refused_completely(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    with pytest.raises(UnknownCrawl):
        await ann.crawls.facts.mark_notified("x")
    with pytest.raises(UnknownCrawl):
        await ann.crawls.facts.add_bytes("x", 1)
    for host in ("a b", "a\n", "x" * 300):
        with pytest.raises(InvalidInput):
            await ann.crawls.facts.add_download_slot("c", host)
    home = fleet.shards.home("c")
    names = [part for number in range(1000) for part in (f"slot:{number}", 1)]
    assert (await fleet.run("facts", home, "c", *names))[0] == Status.OK
    before = await fleet.state()
    assert (await fleet.run("facts", home, "c", "more", 1))[0] == Status.INVALID
    assert (await fleet.run("restore", home, 1, "facts", "c", "a b", 1))[0] == Status.INVALID
    assert await fleet.state() == before


async def test_a_full_store_still_records_facts(tmp_path: Path) -> None:
    with server(tmp_path / "full") as full:
        async with await Frontier.open(full.url, shards=1) as frontier:
            await frontier.crawls.create("c")
            full.ask("CONFIG", "SET", "maxmemory", "1mb")
            await frontier.crawls.facts.mark_notified("c")
            assert await frontier.crawls.facts.add_bytes("c", 1) == 1
