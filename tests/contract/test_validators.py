"""Validators of pages: stored compactly with the crawl, kept apart by URL, deleted with it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import InvalidInput, InvalidUrl, StoreCorrupt, StoreFull, UnknownCrawl
from shoal.frontier import Frontier, dump, load
from shoal.frontier.scripts import Status
from shoal.frontier.shards import Shards
from shoal.model import Limits
from shoal.store import Argument, Store
from tests.contract.fleet import Fleet, drain, paths
from tests.servers import server


async def test_stored_validators_are_recalled_by_any_worker(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c")
    await ann.crawls.create("d")
    urls = [url for host in fleet.hosts(6, shard=None) for url in paths(host, 100)]
    pairs = [(url, f'W/"{number:x}"') for number, url in enumerate(urls)]
    await ann.validators.remember("c", pairs)
    assert await bob.validators.recall("c", urls) == [validator for _, validator in pairs]
    backwards = [*reversed(urls), "http://elsewhere.example/", urls[0].upper().replace("HTTP", "http")]
    assert (await bob.validators.recall("c", backwards))[:600] == [validator for _, validator in reversed(pairs)]
    assert (await bob.validators.recall("c", ["http://elsewhere.example/"])) == [""]
    assert set(await bob.validators.recall("d", urls)) == {""}
    assert await bob.validators.recall("c", []) == []


async def test_validators_of_every_length_are_stored_and_replaced_completely(fleet: Fleet) -> None:
    """Validators longer than a small hash takes are cut: each length after each other one reads as it was written."""
    ann = fleet.worker()
    await ann.crawls.create("c")
    (url,) = paths("a.example", 1)
    lengths = [1, 63, 64, 65, 127, 128, 129, 192, 1023, 1024, 64, 0, 128, 1, 200, 64, 0]
    for number, length in enumerate(lengths):
        validator = chr(97 + number) * length
        await ann.validators.remember("c", [(url, validator)])
        assert await ann.validators.recall("c", [url]) == [validator]
    assert not [name for name in await fleet.keys() if name.startswith("v:")]


async def test_the_last_validator_of_a_url_in_a_call_is_kept(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    (url,) = paths("a.example", 1)
    await ann.validators.remember("c", [(url, "x" * 200), (url, "y" * 64)])
    assert await ann.validators.recall("c", [url]) == ["y" * 64]


async def test_many_validators_are_spread_over_small_hashes(fleet: Fleet) -> None:
    rng = random.Random(7)
    ann = fleet.worker()
    await ann.crawls.create("c")
    (host,) = fleet.hosts(1)
    kept: dict[str, str] = {}
    for _ in range(12):
        batch = {f"http://{host}/{rng.randrange(3000)}": "v" * rng.choice((0, 20, 64, 150)) for _ in range(400)}
        await ann.validators.remember("c", list(batch.items()))
        kept |= batch
    assert await ann.validators.recall("c", list(kept)) == list(kept.values())
    state = await fleet.state()
    hashes = {name: value for name, value in state.items() if "}v:" in name}
    fields = sum(len(value) for value in hashes.values())
    (copy,) = [value for name, value in state.items() if "}c:" in name]
    assert int(copy[b"vc"]) == fields > 1500
    assert len(hashes) == int(copy[b"vn"]) >= fields / 100
    for name in hashes:
        key = name.encode("latin-1").decode()
        assert await fleet.store.command("OBJECT", "ENCODING", key, key=key) == b"listpack"


async def test_a_validator_that_is_not_a_valid_header_value_is_dropped(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    urls = paths("a.example", 5)
    await ann.validators.remember("c", [(url, "old") for url in urls])
    bad = ["x" * 1025, "a\r\nHost: b", "a\0", "\ud800", "fine"]
    await ann.validators.remember("c", list(zip(urls, bad, strict=True)))
    assert await ann.validators.recall("c", urls) == ["old", "old", "old", "old", "fine"]


async def test_invalid_input_is_refused_before_anything_is_stored(fleet: Fleet) -> None:
    ann: Any = fleet.worker()
    await ann.crawls.create("c")
    before = await fleet.state()
    for pair, error in ((("no url", "x"), InvalidUrl), (("http://b.example/", None), InvalidInput)):
        with pytest.raises(error):
            await ann.validators.remember("c", [("http://a.example/", "x"), pair])
    with pytest.raises(InvalidUrl):
        await ann.validators.recall("c", ["no url"])
    for call in (ann.validators.remember("x", []), ann.validators.recall("x", [])):
        with pytest.raises(UnknownCrawl):
            await call
    assert await fleet.state() == before


async def test_an_ended_crawl_stores_and_recalls_no_validators(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    (known,) = paths("a.example", 1)
    await ann.add("c", [known])
    await ann.crawls.stop("c")
    before = await fleet.state()
    await ann.validators.remember("c", [(url, "x") for url in (known, *paths("b.example", 2), *paths("c.example", 2))])
    assert await fleet.state() == before
    assert await ann.validators.recall("c", [known]) == [""]


async def test_validators_are_deleted_with_their_crawl_and_no_other(fleet: Fleet) -> None:
    ann = fleet.worker()
    for crawl in ("c", "d"):
        await ann.crawls.create(crawl)
    urls = paths(fleet.hosts(1)[0], 1500)
    await ann.validators.remember("c", [(url, "x" * 1024) for url in urls])
    await ann.validators.remember("d", [(urls[0], "kept")])
    key = (await ann.crawls.get("c")).key

    async def left() -> int:
        return len([name for name in await fleet.keys() if name.startswith(f"v:{key}:")])

    assert await left() > 200
    await ann.crawls.stop("c")
    # A call unlinks a limited number.
    assert (await fleet.run("purge", 0, key, "valid", 0))[1:] == [b"valid", 200]
    assert await left() > 0
    await ann.crawls.delete("c")
    assert await left() == 0
    assert await ann.validators.recall("d", [urls[0]]) == ["kept"]


@pytest.mark.parametrize("shards", [1, 7])
async def test_a_dump_contains_them(store: Store, namespace: str, shards: int) -> None:
    now = [1_000_000]
    old = Frontier(await Shards.found(store, namespace, 4, lambda: now[0]), worker="ann")
    for crawl in ("c", "over"):
        await old.crawls.create(crawl)
    urls = [url for number in range(9) for url in paths(f"h{number}.example", 100)]
    validators = ["v" * (number % 140) + "ü" for number in range(900)]
    for crawl in ("c", "over"):
        await old.validators.remember(crawl, list(zip(urls, validators, strict=True)))
    await old.crawls.stop("over")
    lines = [line async for line in dump(old.shards)]
    new = Frontier(await Shards.found(store, namespace[:12] + "-v", shards, lambda: now[0]), worker="bob")
    await load(new.shards, lines)
    assert await new.validators.recall("c", urls) == validators
    assert set(await new.validators.recall("over", urls)) == {""}
    # They can be written to as before.
    await new.validators.remember("c", [(url, "new") for url in urls])
    assert set(await new.validators.recall("c", urls)) == {"new"}


SPOILT: dict[str, tuple[Argument, ...]] = {
    "text": ("SET", "{}", b"\xff"), "list": ("RPUSH", "{}", b"\xff"), "hash": ("HSET", "{}", b"\xff", b"\xfe"),
}  # fmt: skip


@pytest.mark.parametrize("kind", SPOILT)
async def test_corrupt_hashes_give_no_validators_and_do_not_stop_the_crawl(fleet: Fleet, kind: str) -> None:
    ann = fleet.worker()
    key = (await ann.crawls.create("c", Limits(delay_seconds=0))).key
    (host,) = fleet.hosts(1)
    urls = paths(host, 3)
    await ann.add("c", urls)
    await ann.validators.remember("c", [(urls[0], "x")])
    name = f"{fleet.shards.prefixes[0]}v:{key}:0"
    await fleet.store.command("DEL", name, key=name)
    await fleet.store.command(*(name if part == "{}" else part for part in SPOILT[kind]), key=name)
    assert await ann.validators.recall("c", urls) == ["", "", ""]
    if kind != "hash":
        with pytest.raises(StoreCorrupt):
            await ann.validators.remember("c", [(urls[0], "x")])
    assert len(await drain(fleet, ann)) == 3
    await ann.crawls.stop("c")
    await ann.crawls.delete("c")
    assert not [name for name in await fleet.keys() if name.startswith("v:")]


@pytest.mark.parametrize("value", [b"a\r\nHost: b", b"\xff\xfe", b"\0", b"x" * 64])
async def test_corrupt_data_never_becomes_a_header(fleet: Fleet, value: bytes) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    (url,) = paths("a.example", 1)
    await ann.validators.remember("c", [(url, "x")])
    ((name, fields),) = [(n, v) for n, v in (await fleet.state()).items() if "}v:" in n]
    await fleet.store.command("HSET", name, next(iter(fields)), value, key=name)
    assert await ann.validators.recall("c", [url]) == ([value.decode()] if value[:1] == b"x" else [""])


@pytest.mark.parametrize("hashes", [b"inf", b"nan", b"-3", b"1e300", b"x"])
async def test_an_invalid_number_of_hashes_does_not_hang_the_crawl(fleet: Fleet, hashes: bytes) -> None:
    ann = fleet.worker()
    key = (await ann.crawls.create("c")).key
    urls = paths(fleet.hosts(1)[0], 3)
    await ann.add("c", urls)
    name = f"{fleet.shards.prefixes[0]}c:{key}"
    await fleet.store.command("HSET", name, "vn", hashes, key=name)
    await ann.validators.recall("c", urls)
    await ann.validators.remember("c", [(urls[0], "x")])
    assert len(await drain(fleet, ann)) == 3


async def test_a_full_store_refuses_a_call_completely_deletes_on_request_and_drains(tmp_path: Path) -> None:
    with server(tmp_path / "full") as full:
        async with await Frontier.open(full.url, shards=1) as frontier:
            await frontier.crawls.create("c", Limits(delay_seconds=0))
            urls = paths("a.example", 300)
            await frontier.add("c", urls)
            await frontier.validators.remember("c", [(url, "x" * 100) for url in urls[:100]])
            full.ask("CONFIG", "SET", "maxmemory", "1mb")
            with pytest.raises(StoreFull):
                await frontier.validators.remember("c", [(urls[0], ""), (urls[200], "new"), (urls[1], "")])
            assert await frontier.validators.recall("c", [urls[0], urls[1], urls[200]]) == ["x" * 100, "x" * 100, ""]
            await frontier.validators.remember("c", [(url, "") for url in urls[:99]])
            assert await frontier.validators.recall("c", urls[98:100]) == ["", "x" * 100]
            made = 0
            while leases := await frontier.lease(visits=100):
                for lease in leases:
                    made += len(lease.visits)
                    await frontier.acknowledge(lease, [visit.stored() for visit in lease.visits])
            assert made == 300
            await frontier.crawls.finish("c")
            await frontier.crawls.delete("c")


@pytest.mark.parametrize(
    "fields", [("x", "v"), ("5",), ("5", "v" * 65), ("5.1.1", "v"), ("5 ", "v"), ("5", "v") * 251, ("5", "v", "", "v")]
)
async def test_an_invalid_line_of_a_dump_is_refused_completely(fleet: Fleet, fields: tuple[str, ...]) -> None:
    ann = fleet.worker()
    key = (await ann.crawls.create("c")).key
    await ann.add("c", paths(fleet.hosts(1)[0], 1))
    before = await fleet.state()
    assert (await fleet.run("restore", 0, 1, "valid", key, *fields))[0] == Status.INVALID
    assert await fleet.state() == before
    assert (await fleet.run("restore", 0, 1, "valid", key, "5", "v"))[0] == Status.OK
