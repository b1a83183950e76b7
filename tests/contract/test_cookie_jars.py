"""Cookie jars of a crawl: shared by all workers, replaced by who has read the last version, gone with the crawl."""

from __future__ import annotations

import asyncio

import pytest

from shoal.errors import InvalidInput, UnknownCrawl
from shoal.frontier import Frontier, cookie_jars, dump, load
from shoal.frontier.shards import Shards
from shoal.store import Store
from tests.contract.fleet import Fleet


async def test_a_jar_is_replaced_only_by_a_writer_that_read_its_last_version(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c")
    await ann.crawls.create("d")
    for jar in ("a.example", "127.0.0.1:8080", "[::1]"):
        assert await ann.cookie_jars.read("c", jar) == (0, b"")
        first = await ann.cookie_jars.write("c", jar, 0, b"\0one\n")
        assert first > 0
        assert await bob.cookie_jars.read("c", jar) == (first, b"\0one\n")
        assert await bob.cookie_jars.read("c", jar, first) == (first, b"")
        assert await bob.cookie_jars.read("d", jar) == (0, b"")
        assert await bob.cookie_jars.write("c", jar, 0, b"two") == 0
        second = await bob.cookie_jars.write("c", jar, first, b"two")
        assert second > first
        assert await ann.cookie_jars.write("c", jar, first, b"three") == 0
        assert await ann.cookie_jars.read("c", jar, first) == (second, b"two")


async def test_each_of_many_writers_adds_its_own_cookie(fleet: Fleet) -> None:
    workers = [fleet.worker(f"w{number}") for number in range(5)]
    await workers[0].crawls.create("c")

    async def add(number: int) -> None:
        while True:
            version, jar = await workers[number].cookie_jars.read("c", "a.example")
            if await workers[number].cookie_jars.write("c", "a.example", version, jar + b"%d" % number):
                return

    await asyncio.gather(*(add(number) for number in range(5) for _ in range(4)))
    assert sorted((await workers[0].cookie_jars.read("c", "a.example"))[1]) == sorted(b"01234" * 4)


async def test_jars_are_bounded_and_deleted_with_their_crawl(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    ann = fleet.worker()
    monkeypatch.setattr(cookie_jars, "MOST_JARS", 3)
    await ann.crawls.create("c")
    hosts = fleet.hosts(5)
    kept = [await ann.cookie_jars.write("c", host, 0, b"jar") for host in hosts]
    assert [bool(version) for version in kept] == [True, True, True, False, False]
    assert await ann.cookie_jars.write("c", hosts[0], kept[0], b"new") > 0
    with pytest.raises(InvalidInput):
        await ann.cookie_jars.write("c", hosts[0], 0, b"x" * 70_000)
    with pytest.raises(UnknownCrawl):
        await ann.cookie_jars.read("other", hosts[0])
    await ann.crawls.stop("c")
    version, _ = await ann.cookie_jars.read("c", hosts[0])
    assert await ann.cookie_jars.write("c", hosts[0], version, b"late") == 0
    await ann.crawls.delete("c")
    for prefix in ann.shards.prefixes:
        assert await ann.shards.store.command("KEYS", f"{prefix}jars:*", key=f"{prefix}meta") == []


@pytest.mark.parametrize("shards", [1, 7])
async def test_a_dump_contains_the_jars(store: Store, namespace: str, shards: int) -> None:
    old = Frontier(await Shards.found(store, namespace, 4), worker="ann")
    hosts = [f"h{number}.example" for number in range(9)]
    for crawl in ("c", "over"):
        await old.crawls.create(crawl)
        for host in hosts:
            assert await old.cookie_jars.write(crawl, host, 0, host.encode())
    await old.crawls.stop("over")
    lines = [line async for line in dump(old.shards)]
    new = Frontier(await Shards.found(store, namespace[:12] + "-k", shards), worker="bob")
    await load(new.shards, lines)
    for host in hosts:
        version, jar = await new.cookie_jars.read("c", host)
        assert jar == host.encode()
        assert await new.cookie_jars.write("c", host, version, b"new") > version
        assert await new.cookie_jars.read("over", host) == (0, b"")
