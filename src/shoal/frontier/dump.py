"""A whole frontier as JSON lines, and back: a backup, a move to another store, another number of shards.

    {"frontier": 1, "seed": ..., "now_ms": ...}                                first
    {"crawl": id, "key": ..., "state": ..., "spec": base64, ...}               then every crawl with its counts
    {"waiting" | "front" | "failed": [base64, ...], "crawl": key, ...}         entries as they stand in the queues
    {"later": base64, ...}  {"seen": [...], ...}  {"pages": n, ...}  {"host": name, "fields": {...}}
    {"validators": {field: base64, ...}, "crawl": key}  {"tally" | "facts": {name: total, ...}, "of": id}
    {"end": lines}                                                             last: without it the dump is cut off

While it is dumped every shard refuses writes, and workers wait; a dump that dies leaves them frozen for a minute at
most. What is leased is dumped as waiting, with its host closed until that lease is over. Copies of robots.txt are
not dumped: they are fetched again.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from typing import Any

from shoal.errors import InvalidInput, StoreRefused
from shoal.frontier.crawl_codec import copy_fields
from shoal.frontier.crawls import Crawls
from shoal.frontier.keys import store_meta
from shoal.frontier.scripts import Status, script
from shoal.frontier.shards import Shards
from shoal.model.crawl import STATES
from shoal.store import Argument
from shoal.urls.fingerprint import bits_of, shard_of

_FREEZE_MS = 60_000
_PART = 200
_SEEN_PART = 1000


async def dump(shards: Shards) -> AsyncIterator[str]:
    """The lines of a dump, one after the other."""
    try:
        # In here: who is interrupted while shards freeze thaws those that have.
        await _freeze(shards, _FREEZE_MS)
        lines = 0
        async for line in _Dump(shards).lines():
            lines += 1
            if lines % 500 == 0:
                await _freeze(shards, _FREEZE_MS)
            yield json.dumps(line, separators=(",", ":"))
        yield json.dumps({"end": lines})
    finally:
        await _freeze(shards, 0)


async def _freeze(shards: Shards, ms: int) -> None:
    await shards.call_all("freeze", dict.fromkeys(range(shards.count), (ms,)))


class _Dump:
    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._ask = shards.store.command
        self._ended: set[str] = set()
        self._leases: list[str] = []

    async def lines(self) -> AsyncIterator[dict[str, Any]]:
        now = (await self._shards.call("clock", 0, ()))[1]
        yield {"frontier": 1, "seed": self._shards.seed, "now_ms": now}
        for shard in range(self._shards.count):
            async for line in self._crawls(shard):
                yield line
        seen_servers = set()
        for p in self._shards.prefixes:
            # One scan for each server, however many shards it holds.
            server = self._shards.store.run_id(p + "meta")
            if server not in seen_servers:
                seen_servers.add(server)
                async for line in self._scan(p + "meta"):
                    yield line
        # After what waits, so that they can go in front of it.
        for name in self._leases:
            async for line in self._leased(name):
                yield line

    async def _crawls(self, shard: int) -> AsyncIterator[dict[str, Any]]:
        p = self._shards.prefixes[shard]
        for raw in await self._ask("ZRANGE", p + "crawls", 0, -1, key=p + "crawls"):
            fields = _pairs(await self._ask("HGETALL", f"{p}crawl:{raw.decode()}", key=p + "crawls"))
            key = fields["key"].decode()
            if fields["st"] not in (b"r", b"p", b"f"):
                self._ended.add(key)
            counts: dict[str, int] = defaultdict(int)
            reasons: dict[str, int] = defaultdict(int)
            for reply in (
                await self._shards.call_all("count", dict.fromkeys(range(self._shards.count), (key,)))
            ).values():
                if reply[0] == Status.OK:
                    for name, number in zip(("stored", "failed", "excluded"), reply[7:10], strict=True):
                        counts[name] += number
                    for name, number in zip(reply[10::2], reply[11::2], strict=True):
                        reasons[name.decode()] += int(number)
            yield {
                "crawl": raw.decode(), "key": key, "state": fields["st"].decode(), "created_ms": int(fields["created"]),
                "ended_ms": int(fields.get("ended", 0)), "why": fields.get("why", b"").decode(),
                "spec": _b64(fields.get("spec", b"")), "counts": counts, "reasons": reasons,
            }  # fmt: skip
            for kind in ("tally", "facts"):
                if totals := _pairs(await self._ask("HGETALL", f"{p}{kind}:{key}", key=p + "crawls")):
                    yield {kind: {name: int(total) for name, total in totals.items()}, "of": raw.decode()}

    async def _scan(self, at: str) -> AsyncIterator[dict[str, Any]]:
        cursor = b"0"
        while True:
            cursor, keys = await self._ask(
                "SCAN", cursor, "MATCH", self._shards.namespace + "{*", "COUNT", 1000, key=at
            )
            for key in keys:
                name = key.decode()
                if any(name.startswith(p) for p in self._shards.prefixes):
                    async for line in self._one(name, name.partition("}")[2]):
                        yield line
            if cursor == b"0":
                return

    async def _one(self, name: str, short: str) -> AsyncIterator[dict[str, Any]]:
        family, _, rest = short.partition(":")
        if family == "q":
            crawl, prio, host = rest.split(":", 2)
            if crawl not in self._ended:
                async for part in self._list(name):
                    yield {"waiting": part, "crawl": crawl, "host": host, "priority": int(prio)}
        elif family == "l":
            self._leases.append(name)
        elif short == "later":
            flat = await self._ask("ZRANGE", name, 0, -1, "WITHSCORES", key=name)
            for member, due in zip(flat[::2], flat[1::2], strict=True):
                head, _, entry = member.partition(b" ")
                crawl, prio, host = head.decode().split(":", 2)
                if crawl not in self._ended:
                    yield {
                        "later": _b64(entry),
                        "crawl": crawl,
                        "host": host,
                        "priority": int(prio),
                        "due_ms": _ms(due),
                    }
        elif family == "failed":
            for packed in await self._ask("LRANGE", name, 0, -1, key=name):
                head, _, entry = packed.partition(b"\n")
                yield {"failed": [_b64(entry)], "crawl": rest, **_where(head)}
        elif family == "fi":
            for number, head in _pairs(await self._ask("HGETALL", name, key=name)).items():
                if number.isdigit():
                    async for part in self._list(name.replace("}fi:", "}fq:") + ":" + number):
                        yield {"failed": part, "crawl": rest, **_where(head)}
        elif family == "s" and (crawl := rest.split(":")[0]) not in self._ended:
            marks = [int(mark) for mark in await self._ask("SMEMBERS", name, key=name)]
            for start in range(0, len(marks), _SEEN_PART):
                yield {"seen": marks[start : start + _SEEN_PART], "crawl": crawl}
        elif family == "v" and (crawl := rest.split(":")[0]) not in self._ended:
            pieces = list(_pairs(await self._ask("HGETALL", name, key=name)).items())
            for start in range(0, len(pieces), _PART):
                some = {field: _b64(value) for field, value in pieces[start : start + _PART]}
                yield {"validators": some, "crawl": crawl}
        elif family == "hp":
            for host, stored in _pairs(await self._ask("HGETALL", name, key=name)).items():
                if not host.startswith("!"):
                    yield {"pages": int(stored), "crawl": rest, "host": host}
        elif family == "h":
            fields = {k: v.decode() for k, v in _pairs(await self._ask("HGETALL", name, key=name)).items()}
            # Who held it holds it no longer; an epoch and a robots version mean nothing elsewhere.
            kept = {k: v for k, v in fields.items() if k[0] != "k" and k not in ("e", "ex", "rv")}
            if kept:
                yield {"host": rest, "fields": kept}

    async def _leased(self, name: str) -> AsyncIterator[dict[str, Any]]:
        lease = _pairs(await self._ask("HGETALL", name, key=name))
        host = lease["host"].decode()
        for number in sorted((int(field) for field in lease if field.isdigit()), reverse=True):
            crawl, prio, entry = lease[str(number)].split(b":", 2)
            if crawl.decode() not in self._ended:
                yield {"front": [_b64(entry)], "crawl": crawl.decode(), "host": host, "priority": int(prio)}
        p, _, token = name.partition("}l:")
        deadline = await self._ask("ZSCORE", p + "}leases", token, key=name)
        if deadline is not None and "place" in lease:
            gate = _ms(deadline) + _ms(lease["delay"])
            yield {"host": host, "fields": {"b": str(gate)}}

    async def _list(self, name: str) -> AsyncIterator[list[str]]:
        start = 0
        while part := await self._ask("LRANGE", name, start, start + _PART - 1, key=name):
            yield [_b64(entry) for entry in part]
            start += _PART


async def load(shards: Shards, lines: Iterable[str]) -> int:
    """Write a dump into an empty namespace, whatever its number of shards. Returns how many visits wait there now.

    Join no worker before it has returned: the seed of fingerprints is that of the dump.
    """
    loader = _Load(shards)
    await loader.check_empty()
    ended = False
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            ended = await loader.take(record, number)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidInput(
                f"Line {number} of the dump is not one of Shoal's ({error!r}): load a whole dump."
            ) from None
    if not ended:
        raise InvalidInput("The dump ends in the middle: nothing is missing up to there, but load a whole dump.")
    return loader.waiting


class _Load:
    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._keys: dict[str, str] = {}
        self._known: dict[str, Any] = {}
        self._introduced: set[tuple[str, int]] = set()
        self._lines = [0] * shards.count
        self.waiting = 0

    async def check_empty(self) -> None:
        for p in self._shards.prefixes:
            if await self._shards.store.command("EXISTS", p + "crawls", key=p + "crawls"):
                raise StoreRefused(f"Namespace {self._shards.namespace!r} has crawls already: load into an empty one.")

    async def take(self, record: dict[str, Any], number: int) -> bool:
        """One line; True when it is the last."""
        if number == 1 and record["frontier"] != 1:
            raise StoreRefused(f"The dump has version {record['frontier']}, this Shoal reads 1: use a newer Shoal.")
        if "frontier" in record:
            await self._seed(int(record["seed"]))
        elif "spec" in record:
            await self._crawl(record)
        elif "waiting" in record or "front" in record:
            kind = "waiting" if "waiting" in record else "front"
            entries = [base64.b64decode(entry) for entry in record[kind]]
            self.waiting += len(entries)
            await self._at_host(record, kind, record["priority"], *entries)
        elif "later" in record:
            await self._at_host(
                record, "later", record["priority"], record["due_ms"], base64.b64decode(record["later"])
            )
        elif "failed" in record:
            entries = [base64.b64decode(entry) for entry in record["failed"]]
            await self._at_host(record, "failed", record["priority"], record["why"], *entries)
        elif "pages" in record:
            await self._at_host(record, "pages", record["pages"])
        elif "seen" in record:
            by_shard: dict[int, list[Argument]] = defaultdict(list)
            for mark in record["seen"]:
                by_shard[shard_of(bits_of(int(mark)), self._shards.count)].append(int(mark))
            for shard, marks in by_shard.items():
                await self._of_crawl(record["crawl"], shard, "seen", *marks)
        elif "validators" in record:
            fields: dict[int, list[Argument]] = defaultdict(list)
            for field, value in record["validators"].items():
                shard = shard_of(bits_of(int(field.partition(".")[0])), self._shards.count)
                fields[shard] += [field, base64.b64decode(value)]
            for shard, flat in fields.items():
                await self._of_crawl(record["crawl"], shard, "valid", *flat)
        elif "tally" in record or "facts" in record:
            kind = "tally" if "tally" in record else "facts"
            totals: list[Argument] = [part for pair in record[kind].items() for part in pair]
            await self._write(self._shards.home(record["of"]), kind, record["of"], *totals)
        elif "host" in record:
            pairs: list[Argument] = [part for pair in record["fields"].items() for part in pair]
            await self._write(self._shards.of(record["host"]), "host", record["host"], *pairs)
        else:
            return int(record["end"]) == number - 1
        return False

    async def _seed(self, seed: int) -> None:
        for shard in range(self._shards.count):
            await self._write(shard, "seed", seed)
        store = self._shards.store
        key = store_meta(self._shards.namespace)
        await store.call(script("found"), key, (0, self._shards.count, seed, "s"), replicated=True)
        self._shards.seed = seed

    async def _crawl(self, record: dict[str, Any]) -> None:
        crawls = Crawls(self._shards)
        made = await crawls.restore(record["crawl"], base64.b64decode(record["spec"]))
        self._keys[record["key"]] = made.key
        counts = record["counts"]
        left = max(0, made.limits.max_pages - counts.get("stored", 0))
        home = self._shards.home(made.id)
        state = STATES[record["state"]].code
        await self._write(home, "crawl", made.id, state, record["created_ms"], record["ended_ms"], record["why"], left)
        made = await crawls.get(made.id)
        self._known[made.key] = made
        if state == "d":
            return
        reasons: list[Argument] = [part for pair in record["reasons"].items() for part in pair]
        ends = [counts.get(name, 0) for name in ("stored", "failed", "excluded")]
        await self._write(home, "copy", made.key, made.version, state, *ends, *copy_fields(made), "", *reasons)
        self._introduced.add((made.key, home))

    async def _at_host(self, record: dict[str, Any], kind: str, *args: Argument) -> None:
        await self._of_crawl(record["crawl"], self._shards.of(record["host"]), kind, record["host"], *args)

    async def _of_crawl(self, old_key: str, shard: int, kind: str, *args: Argument) -> None:
        key = self._keys[old_key]
        if (key, shard) not in self._introduced:
            crawl = self._known[key]
            await self._write(shard, "copy", key, crawl.version, crawl.state.code, 0, 0, 0, *copy_fields(crawl))
            self._introduced.add((key, shard))
        await self._write(shard, kind, key, *args)

    async def _write(self, shard: int, kind: str, *args: Argument) -> None:
        self._lines[shard] += 1
        reply = await self._shards.call("restore", shard, (self._lines[shard], kind, *args), replicated=True)
        if reply[0] != Status.OK:
            raise ValueError(f"the script restore answers {reply[0]} to {kind}")


def _pairs(flat: list[bytes]) -> dict[str, bytes]:
    return {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}


def _where(head: bytes) -> dict[str, Any]:
    where, _, why = head.decode().partition(" ")
    prio, _, host = where.partition(":")
    return {"host": host, "priority": int(prio), "why": why}


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _ms(number: bytes) -> int:
    return int(float(number))
