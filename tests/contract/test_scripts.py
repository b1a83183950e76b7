"""Each script with random and wrong-typed arguments: it refuses and changes nothing, or does the whole of what it does.

Calls are made past the frontier, with arguments that are right but for one or two. The seed is fixed, so a failure can
be repeated.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from shoal.errors import ShoalError
from shoal.frontier.scripts import Status, names, script
from shoal.model import Limits, Visit
from shoal.store import Argument
from tests.contract.fleet import Fleet, paths
from tests.model import snapshot

CALLS = 80
# These write nothing, or one thing that is always right.
READERS = {"alive", "clock", "count", "home", "read_cookies", "read_robots", "recall", "schedule"}

JUNK: list[Argument] = [
    "", "0", "1", "2", "-1", "007", "+1", " 1", "1 ", "1.5", "1e3", "0x10", "nan", "inf", "9" * 16, "9" * 30, "x",
    "a b", "a\nb", "a\0b", "\0", "é\u2028", "x" * 300, "y" * 70000, 2**53, -(2**53), 2**31, "%s%d%%", "../..", "*",
    "return 1", "r", "s", "c", "d", "f", "*3\r\n$3\r\nDEL\r\n", "ü", "{", "}", ":", "1:2:3", "ready", "failed", "later",
]  # fmt: skip


class Bench:
    """One shard with something in every place, and the right arguments for every script."""

    def __init__(self, fleet: Fleet, key: str, crawl: str, tokens: list[bytes], hosts: list[str]) -> None:
        self.fleet = fleet
        self.prefix = fleet.shards.prefixes[0]
        token, host = tokens[0], hosts[0]
        entry = b"\x00\x00/new"
        now = fleet.clock.ms
        right: dict[str, tuple[Argument, ...]] = {
            "acknowledge": (
                "ann",
                "q1",
                1,
                "0123456789abcdef",
                "2,3",
                b"links",
                token,
                host,
                5,
                1,
                20,
                100,
                2,
                1,
                "s",
                "",
                0,
                b"h" * 23,
                2,
                "r",
                "",
                50,
                "",
            ),
            "add": (key, 2, "", hosts[1], 3, 1, "0", 1, "77", entry, hosts[3], 0, 0, "1", 1, "-78", entry),
            "add_bytes": (crawl, "ann", 1, 700),
            "alive": (),
            "allow": (key, 50, "1"),
            "audit": (b'{"who":"ann"}',),
            "beat": ("ann", 1, b"\x80"),
            "change": (crawl, "p", "why", "", "", 0),
            "clock": (),
            "count": (key,),
            "create": ("other", "nonce", 10, b"spec"),
            "schedule": (key, host),
            "read_cookies": (key, "a.example", 0),
            "write_cookies": (key, "a.example", 0, 10, b"jar"),
            "draw": (crawl, 0, 5, 0, 10),
            "erase": (crawl,),
            "epoch": ("1", 1000, 500, 1, 1, 0),
            "facts": (crawl, "seeds_begun", 1, "seeds_began_ms", now),
            "find": (key, hosts[0], "77"),
            "forget": (key, "77", "-78"),
            "freeze": (0,),
            "history": (key, 28333333, 472222, b"\x97\xce\x01\xb0\x55\x55\1\2\3\4\5\6", b"\x97\1\1\2\3\4\5\6"),
            "hasten": (key, f"{key}:0:{host} x"),
            "home": (crawl, ""),
            "host": (host, "d", 500, "n", 2, "rk", 1, "x", "blocked"),
            "host_bytes": (key, hosts[1], 700),
            "lease": ("bob", "q2", 2, 3, 5000, 2000, 10, "0", ""),
            "leave": ("ann",),
            "links": ("w", "0123456789abcdef", "2,3", b"links", "q1"),
            "note": (crawl, '{"stored":2}'),
            "pauses": (key, ""),
            "postpone": (host, 100, "1", 3, "down", "0"),
            "purge": (key, "ready", 0),
            "read_robots": (host, f"https://{host} shoal"),
            "recall": (key, "77", "-78"),
            "reap": ("ann", 0, token, 1, 3, 10),
            "release": (3, token, 5, 0, 1, 1),
            "remember": (key, "77", "x" * 150, "-78", "", "79", 'W/"abc"'),
            "renew": (5000, 2000, token, 2, 5),
            "restore": (1, "waiting", key, hosts[1], 0, entry, entry + b"2"),
            "retry": (key, "", "f"),
            "sample": (crawl, "robots.txt", "http://a.example/x"),
            "session": ("b", "ab12", "mark"),
            "sweep": (),
            "tally": (crawl, "pages", 5, "bytes_in", 700),
            "write_robots": (host, f"https://{host} shoal", "1", 2500, b"\x93rules"),
            "void": ("ann", "q9", token),
            "waiting": ("",),
            "touch": (key, "t", host, "77", "0/new", 0, hosts[1], "-78", "1/other", 1700000000),
            "sync": (key, 9, "p", "why", "u", "d", 100, "n", 1, "pr", 0),
        }
        self.right = right
        self.junk = [*JUNK, key, crawl, host, *tokens, "ann", entry]

    async def state(self) -> Any:
        flat = await self.fleet.store.command(
            "EVAL", snapshot.READ, 0, self.prefix + "*", key=self.prefix + "meta"
        )  # fmt: skip
        return {
            k: sorted(v) if isinstance(v, list) else v
            for k, v in sorted(zip(flat[::2], flat[1::2], strict=True))
        }  # fmt: skip

    async def check(self, *, one_place: bool = True) -> None:
        flat = await self.fleet.store.command("EVAL", snapshot.READ, 0, self.prefix + "*", key=self.prefix + "meta")
        shard = snapshot.Shard()
        for key, value in zip(flat[::2], flat[1::2], strict=True):
            snapshot._file(shard, key.decode("latin-1").partition("}")[2], value)
        snapshot.check_counts(self.prefix, shard)
        snapshot.check_nothing_stranded(self.prefix, shard)
        if one_place:
            snapshot.check_one_place(self.prefix, shard)


@pytest.fixture
async def bench(fleet: Fleet) -> Bench:
    ann = fleet.worker()
    crawl = next(f"c{i}" for i in range(999) if fleet.shards.home(f"c{i}") == 0)
    made = await ann.crawls.create(crawl, Limits(delay_seconds=0.1, max_depth=9, max_pages_per_host=50))
    hosts = fleet.hosts(8)
    for host in hosts[:6]:
        await ann.add(crawl, [Visit(url=url, priority=n % 2, meta={"n": n}) for n, url in enumerate(paths(host, 6))])
    leases = await ann.lease(hosts=3, visits=4, shards=[0])
    v = leases[2].visits
    await ann.acknowledge(leases[2], [v[0].stored(), v[1].failed("a"), v[2].retry(1)])
    await ann.hosts.postpone(hosts[5], 0, failed=True, host_failures=1)
    return Bench(fleet, made.key, crawl, [lease.token.encode() for lease in leases], hosts)


def _bent(rng: random.Random, right: tuple[Argument, ...], junk: list[Argument]) -> list[Argument]:
    args = list(right)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        how = rng.random()
        if how < 0.7 and args:
            args[rng.randrange(len(args))] = rng.choice(junk)
        elif how < 0.8 and args:
            del args[rng.randrange(len(args)) :]
        elif how < 0.9:
            args.insert(rng.randint(0, len(args)), rng.choice(junk))
        elif args:
            del args[rng.randrange(len(args))]
    return args


@pytest.mark.parametrize("name", [name for name in names() if name != "found"])
async def test_malformed_arguments_change_all_or_nothing(bench: Bench, name: str) -> None:
    rng = random.Random(f"14 {name}")
    fleet = bench.fleet
    # A forced add may put a visit beside itself, and so may a line of a dump that is loaded twice.
    one_place = name not in ("add", "restore")
    before = await bench.state()
    for _ in range(CALLS):
        args = _bent(rng, bench.right[name], bench.junk)
        shown = f"{name} {[str(arg)[:30] for arg in args]}"
        try:
            reply = await fleet.run(name, 0, *args)
        except ShoalError as error:
            raise AssertionError(f"{shown} fails in its middle: {error}") from error
        after = await bench.state()
        if reply[0] != Status.OK or name in READERS:
            assert after == before, f"{shown} answers {reply} and changes the shard"
        elif after != before:
            await bench.check(one_place=one_place)
        before = after
        if name == "freeze":
            await fleet.run("freeze", 0, 0)
            before = await bench.state()
    reply = await fleet.run(name, 0, *bench.right[name])
    assert reply[0] != Status.INVALID, "the arguments that were bent are right"
    await bench.check(one_place=one_place)


@pytest.mark.parametrize("name", [name for name in names() if name != "found"])
async def test_an_invalid_time_is_refused(bench: Bench, name: str) -> None:
    before = await bench.state()
    for now in ("x", "nan", "-nan", "inf", "-inf", "1e400", "a b", "\0", "0x", "y" * 1000):
        reply = await bench.fleet.raw(name, 0, now, *bench.right[name])
        assert reply == [Status.INVALID, b"now"], f"now = {now[:9]!r} is taken by {name}: {reply}"
        assert await bench.state() == before


@pytest.mark.parametrize("name", [name for name in names() if name != "found"])
async def test_missing_arguments_change_nothing(bench: Bench, name: str) -> None:
    before = await bench.state()
    right = bench.right[name]
    assert await bench.fleet.raw(name, 0) == [Status.INVALID, b"now"]
    for length in range(len(right)):
        reply = await bench.fleet.run(name, 0, *right[:length])
        if reply[0] != Status.OK:
            assert await bench.state() == before, f"{name} with {length} arguments"
        else:
            # What is left is a whole call with fewer groups; its effect is whole too.
            await bench.check()
            before = await bench.state()


async def test_a_shard_without_metadata_stays_empty(bench: Bench) -> None:
    fleet = bench.fleet
    nowhere = f"{fleet.shards.namespace}{{nowhere}}"
    for name in names():
        if name == "found":
            reply = await fleet.store.call(script(name), nowhere + "meta", (0, 4, 1, ""))
        else:
            reply = await fleet.store.call(script(name), nowhere + "meta", (fleet.clock.ms, *bench.right[name]))
        assert reply == [Status.ABSENT], name
        there = await fleet.store.command("EVAL", snapshot.READ, 0, nowhere + "*", key=nowhere + "meta")
        assert there == [], name


async def test_a_complete_store_is_not_created_again(bench: Bench) -> None:
    before = await bench.state()
    for args in ((5, 99, 123, "m"), ("x", "y", "z", ""), ("", "", "", "?")):
        reply = await bench.fleet.store.call(script("found"), bench.prefix + "meta", args)
        assert reply[0] == Status.OK
        assert await bench.state() == before


@pytest.mark.parametrize(
    "field", [("d", "x"), ("n", "-1"), ("pr", "nan"), ("ord", "z"), ("a", "5"), ("w", "9"), ("gn", "0")]
)
async def test_the_copy_of_a_crawl_refuses_invalid_fields(bench: Bench, field: tuple[str, str]) -> None:
    before = await bench.state()
    key = bench.right["count"][0]
    reply = await bench.fleet.run("sync", 0, key, 9, "r", "why", "u", *field)
    assert reply[0] == Status.INVALID
    assert await bench.state() == before


async def test_minus_zero_is_not_a_valid_number(bench: Bench) -> None:
    before = await bench.state()
    assert (await bench.fleet.run("reap", 0, "ann", "-0", "", 0, 3, 10))[0] == Status.INVALID
    assert await bench.state() == before
