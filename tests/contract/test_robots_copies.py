"""Copies of robots.txt: kept once for the fleet, told apart by version, and what they say of their host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal.errors import InvalidInput
from shoal.frontier import Frontier, dump, load
from shoal.frontier.robots_cache import MAX_COPY_BYTES
from shoal.frontier.shards import Shards
from shoal.model import Lease, Limits
from shoal.store import Argument, Store
from tests.contract.fleet import Fleet, end, paths
from tests.servers import server

HOST = "a.example"
HTTP, HTTPS = f"http://{HOST} shoal", f"https://{HOST} shoal"


async def leased(worker: Frontier, **options: Any) -> Lease:
    (lease,) = await worker.lease(hosts=1, visits=1, **options)
    return lease


def host_key(fleet: Fleet, family: str, rest: str = HOST) -> str:
    return f"{fleet.shards.prefixes[fleet.shards.of(HOST)]}{family}:{rest}"


async def test_a_copy_is_stored_unchanged_for_all_workers(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    assert await ann.robots.read(HOST, HTTPS) == (None, fleet.clock.seconds)
    kept = bytes(range(256)) * 4
    await ann.robots.write(HOST, HTTPS, kept, known=True)
    fleet.clock.tick(1.5)
    assert await bob.robots.read("A.example", HTTPS) == (kept, fleet.clock.seconds)
    for other in (HTTP, f"https://{HOST} other"):
        assert (await bob.robots.read(HOST, other))[0] is None
    key = host_key(fleet, "robots", f"{HOST}:{HTTPS}")
    month = 30 * 86_400_000
    assert month - 60_000 < await fleet.store.command("PTTL", key, key=key) <= month


async def test_a_copy_of_maximum_size_is_stored_and_one_byte_more_is_refused(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.robots.write(HOST, HTTPS, b"\n" * MAX_COPY_BYTES, known=True)
    assert (await ann.robots.read(HOST, HTTPS))[0] == b"\n" * MAX_COPY_BYTES
    before = await fleet.state()
    with pytest.raises(InvalidInput, match="3000001 bytes"):
        await ann.robots.write(HOST, HTTPS, b"\n" * (MAX_COPY_BYTES + 1), known=True)
    assert await fleet.state() == before


async def test_invalid_input_is_refused(fleet: Fleet) -> None:
    ann: Any = fleet.worker()
    before = await fleet.state()
    for name in ("", HOST, f"https://{HOST}", f"ftp://{HOST} a", f"https://{HOST} a\nb", HTTPS + "x" * 400, None, b"x"):
        with pytest.raises(InvalidInput, match="does not name a robots"):
            await ann.robots.write(HOST, name, b"x", known=True)
        with pytest.raises(InvalidInput, match="does not name a robots"):
            await ann.robots.read(HOST, name)
    for kept in (b"", "text", None):
        with pytest.raises(InvalidInput, match="must be 1 to"):
            await ann.robots.write(HOST, HTTPS, kept, known=True)
    for host in ("", "a/b", None):
        with pytest.raises(InvalidInput):
            await ann.robots.write(host, HTTPS, b"x", known=True)
    for delay in (-1, 86401, "1", float("nan")):
        with pytest.raises(InvalidInput):
            await ann.robots.write(HOST, HTTPS, b"x", known=True, crawl_delay_seconds=delay)
    assert await fleet.state() == before


async def test_a_lease_has_the_current_version_of_the_rules(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths(HOST, 9))
    first = await leased(ann)
    assert first.robots_version > 0
    await end(ann, [first])
    again = await leased(ann)
    assert again.robots_version == first.robots_version
    await ann.robots.write(HOST, HTTPS, b"one", known=True)
    await end(ann, [again])
    second = await leased(ann)
    assert second.robots_version > first.robots_version
    # Also within one millisecond, and also for a copy whose rules are not known.
    await ann.robots.write(HOST, HTTPS, b"two", known=False)
    await end(ann, [second])
    assert (await leased(ann)).robots_version > second.robots_version


async def test_a_version_is_never_reused_after_the_host_was_forgotten(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths(HOST, 9))
    seen = []
    for round_ in range(4):
        fleet.clock.tick(86_400)
        lease = await leased(ann)
        seen.append(lease.robots_version)
        await end(ann, [lease])
        if round_ % 2:
            await ann.robots.write(HOST, HTTPS, b"%d" % round_, known=True)
            seen.append((await fleet.run("write_robots", fleet.shards.of(HOST), HOST, HTTPS, 1, 0, b""))[1])
        # What a host fades to after a day without visits.
        await fleet.store.command("DEL", host_key(fleet, "h"), key=host_key(fleet, "h"))
    assert sorted(set(seen)) == seen


async def test_known_rules_allow_several_slots_and_unknown_rules_one(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0, places=2))
    await ann.add("c", paths(HOST, 9))
    held = await leased(ann)
    await ann.robots.write(HOST, HTTPS, b"unreachable", known=False)
    assert await bob.lease(visits=1) == []
    assert (await ann.hosts.get(HOST)).robots_known is False
    await ann.robots.write(HOST, HTTPS, b"rules", known=True)
    assert (await leased(bob)).host == held.host
    await fleet.check()


async def test_the_larger_crawl_delay_of_http_and_https_applies(fleet: Fleet) -> None:
    ann = fleet.worker()

    async def delay() -> float:
        return (await ann.hosts.get(HOST)).crawl_delay_seconds

    await ann.robots.write(HOST, HTTP, b"a", known=True, crawl_delay_seconds=7)
    await ann.robots.write(HOST, HTTPS, b"b", known=True, crawl_delay_seconds=2.5)
    assert await delay() == 7
    await ann.robots.write(HOST, HTTP, b"c", known=True)
    assert await delay() == 2.5
    # Of another token, and of rules that are not known, nothing is taken.
    await ann.robots.write(HOST, f"http://{HOST} other", b"d", known=False, crawl_delay_seconds=9)
    assert await delay() == 2.5
    await ann.robots.write(HOST, HTTPS, b"e", known=True)
    assert await delay() == 0


async def test_a_crawl_delay_closes_the_host_and_a_smaller_one_does_not_reopen_it_early(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths(HOST, 9))
    await ann.robots.write(HOST, HTTPS, b"a", known=True, crawl_delay_seconds=10)
    lease = await leased(ann)
    assert lease.delay_seconds == 10
    await end(ann, [lease])
    await ann.robots.write(HOST, HTTPS, b"b", known=True)
    fleet.clock.tick(9.9)
    assert await ann.lease() == []
    await ann.robots.write(HOST, HTTPS, b"c", known=True, crawl_delay_seconds=12)
    fleet.clock.tick(1)
    assert await ann.lease() == []
    fleet.clock.tick(1.1)
    assert len(await ann.lease()) == 1
    await fleet.check()


async def test_a_host_without_waiting_visits_expires_although_its_copies_are_kept(fleet: Fleet) -> None:
    ann = fleet.worker()
    for known in (True, False):
        await ann.robots.write(HOST, HTTPS, b"rules", known=known)
        assert 0 < await fleet.store.command("PTTL", host_key(fleet, "h"), key=host_key(fleet, "h")) <= 86_400_000


SPOILT: dict[str, tuple[Argument, ...]] = {
    "text": ("SET", "{}", b"\xff\xfegarbage"), "empty": ("SET", "{}", b""), "list": ("RPUSH", "{}", b"\xff"),
    "hash": ("HSET", "{}", "b", b"\xfe"), "number": ("SET", "{}", b"999999999999999999999"),
}  # fmt: skip


@pytest.mark.parametrize("kind", SPOILT)
async def test_a_corrupt_copy_is_ignored_and_replaced(fleet: Fleet, kind: str) -> None:
    ann = fleet.worker()
    for name in (HTTP, HTTPS):
        key = host_key(fleet, "robots", f"{HOST}:{name}")
        await fleet.store.command(*(key if part == "{}" else part for part in SPOILT[kind]), key=key)
    assert (await ann.robots.read(HOST, HTTPS))[0] is None
    await ann.robots.write(HOST, HTTPS, b"rules", known=True, crawl_delay_seconds=3)
    assert (await ann.robots.read(HOST, HTTPS))[0] == b"rules"
    assert (await ann.hosts.get(HOST)).crawl_delay_seconds == 3


@pytest.mark.parametrize("version", [b"nan", b"inf", b"-5", b"1e9", b"9" * 30, b"\xff", b""])
async def test_an_invalid_version_is_replaced(fleet: Fleet, version: bytes) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths(HOST, 2))
    key = host_key(fleet, "h")
    await fleet.store.command("HSET", key, "rv", version, key=key)
    lease = await leased(ann)
    assert lease.robots_version == fleet.clock.ms
    await end(ann, [lease])
    await fleet.store.command("HSET", key, "rv", version, key=key)
    await ann.robots.write(HOST, HTTPS, b"x", known=True)
    assert (await leased(ann)).robots_version == fleet.clock.ms


async def test_a_full_store_refuses_a_copy_but_stores_its_crawl_delay(tmp_path: Path) -> None:
    with server(tmp_path / "full") as full:
        async with await Frontier.open(full.url, shards=1) as frontier:
            await frontier.robots.write(HOST, HTTPS, b"old", known=False)
            full.ask("CONFIG", "SET", "maxmemory", "1mb")
            await frontier.robots.write(HOST, HTTPS, b"new", known=True, crawl_delay_seconds=4)
            assert (await frontier.robots.read(HOST, HTTPS))[0] == b"old"
            host = await frontier.hosts.get(HOST)
            assert (host.robots_known, host.crawl_delay_seconds) == (True, 4)


async def test_a_dump_omits_copies_and_versions(store: Store, namespace: str) -> None:
    now = [1_000_000]
    old = Frontier(await Shards.found(store, namespace, 4, lambda: now[0]), worker="ann")
    await old.crawls.create("c", Limits(delay_seconds=0))
    await old.add("c", paths(HOST, 2))
    await old.robots.write(HOST, HTTPS, b"rules", known=True, crawl_delay_seconds=2)
    version = (await leased(old)).robots_version
    lines = [line async for line in dump(old.shards)]
    new = Frontier(await Shards.found(store, namespace[:12] + "-r", 3, lambda: now[0]), worker="bob")
    await load(new.shards, lines)
    assert (await new.robots.read(HOST, HTTPS))[0] is None
    assert (await new.hosts.get(HOST)).crawl_delay_seconds == 2
    now[0] += 100_000
    assert (await leased(new)).robots_version > version
