"""Statistics of a crawl: added up at its home shard by all workers."""

from __future__ import annotations

import asyncio
import string
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import InvalidInput, StoreCorrupt, UnknownCrawl
from shoal.frontier import Frontier, dump, load
from shoal.frontier.scripts import Status
from shoal.frontier.shards import Shards
from shoal.model import Limits
from shoal.store import Store
from tests.contract.fleet import Fleet, drain, paths
from tests.servers import server


async def test_counts_of_all_workers_are_added(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    for crawl in ("c", "d"):
        await ann.crawls.create(crawl)
    assert await ann.crawls.tally("c") == {}
    assert await ann.crawls.tally("c", pages=3, bytes_in=2**40) == {"bytes_in": 2**40, "pages": 3}
    await asyncio.gather(*(worker.crawls.tally("c", pages=1) for worker in (ann, bob) for _ in range(20)))
    assert await bob.crawls.tally("c", errors=0) == {"bytes_in": 2**40, "errors": 0, "pages": 43}
    assert await bob.crawls.tally("d") == {}


async def test_a_total_stops_at_the_largest_exact_number(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    await ann.crawls.tally("c", pages=2**53)
    assert await ann.crawls.tally("c", pages=2**53) == {"pages": 2**53}


async def test_an_invalid_tally_is_refused_completely(fleet: Fleet) -> None:
    ann: Any = fleet.worker()
    await ann.crawls.create("c")
    await ann.crawls.tally("c", pages=1)
    before = await fleet.state()
    for name in ("", "a b", "ä", "a@b", "x" * 81, "a\n"):
        with pytest.raises(InvalidInput, match="letters, digits"):
            await ann.crawls.tally("c", pages=1, **{name: 1})
    for count in (-1, 1.5, "1", None, True, 2**53 + 1):
        with pytest.raises(InvalidInput, match="errors"):
            await ann.crawls.tally("c", pages=1, errors=count)
    with pytest.raises(UnknownCrawl):
        await ann.crawls.tally("x", pages=1)
    assert await fleet.state() == before


async def test_a_crawl_has_at_most_64_totals(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    names = [a + b for a in string.ascii_lowercase[:8] for b in string.ascii_lowercase[:8]]
    await ann.crawls.tally("c", **dict.fromkeys(names, 1))
    before = await fleet.state()
    with pytest.raises(InvalidInput, match="more than 64 names"):
        await ann.crawls.tally("c", aa=1, more=1)
    assert await fleet.state() == before
    assert (await ann.crawls.tally("c", aa=1))["aa"] == 2


async def test_totals_are_deleted_with_the_crawl(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    await ann.crawls.tally("c", pages=1)
    await ann.crawls.stop("c")
    # A worker that ends its last visits after that still counts.
    assert await ann.crawls.tally("c", pages=1) == {"pages": 2}
    await ann.crawls.delete("c")
    assert await ann.crawls.tally("c", pages=1) == {}
    assert not [name for name in await fleet.keys() if name.startswith("tally:")]


async def test_a_dump_contains_them(store: Store, namespace: str) -> None:
    old = Frontier(await Shards.found(store, namespace, 4))
    await old.crawls.create("c")
    await old.crawls.create("none")
    await old.crawls.tally("c", pages=5, bytes_in=7)
    lines = [line async for line in dump(old.shards)]
    new = Frontier(await Shards.found(store, namespace[:12] + "-t", 3))
    await load(new.shards, lines)
    assert await new.crawls.tally("c", pages=1) == {"bytes_in": 7, "pages": 6}
    assert await new.crawls.tally("none") == {}


async def test_corrupt_totals_do_not_stop_the_crawl(fleet: Fleet) -> None:
    ann = fleet.worker()
    key = (await ann.crawls.create("c", Limits(delay_seconds=0))).key
    await ann.add("c", paths("a.example", 2))
    name = f"{fleet.shards.prefixes[fleet.shards.home('c')]}tally:{key}"
    await fleet.store.command("HSET", name, "pages", b"\xff", b"\xff\xfe", "inf", "bytes_in", "nan", key=name)
    totals = await ann.crawls.tally("c", pages=1)
    assert (totals["pages"], totals["bytes_in"]) == (1, 0)
    await fleet.store.command("DEL", name, key=name)
    await fleet.store.command("SET", name, b"\xff", key=name)
    with pytest.raises(StoreCorrupt):
        await ann.crawls.tally("c", pages=1)
    assert len(await drain(fleet, ann)) == 2
    await ann.crawls.finish("c")
    await ann.crawls.delete("c")


async def test_a_full_store_still_counts(tmp_path: Path) -> None:
    with server(tmp_path / "full") as full:
        async with await Frontier.open(full.url, shards=1) as frontier:
            await frontier.crawls.create("c")
            full.ask("CONFIG", "SET", "maxmemory", "1mb")
            assert await frontier.crawls.tally("c", pages=1) == {"pages": 1}


@pytest.mark.parametrize(
    "totals", [(), ("pages",), ("pag/es", 1), ("pages", -1), ("pages", 1, "x y", 1), ("a", 1) * 65]
)
async def test_an_invalid_line_of_a_dump_is_refused_completely(fleet: Fleet, totals: tuple[str | int, ...]) -> None:
    await fleet.worker().crawls.create("c")
    home = fleet.shards.home("c")
    before = await fleet.state()
    assert (await fleet.run("restore", home, 1, "tally", "c", *totals))[0] == Status.INVALID
    assert await fleet.state() == before
    assert (await fleet.run("restore", home, 1, "tally", "c", "pages", 1))[0] == Status.OK
