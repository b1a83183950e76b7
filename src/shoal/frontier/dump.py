"""Dump: a whole frontier as JSON lines, for a backup, another store or another number of shards. restore.py loads it.

    {"frontier": 1, "seed": ..., "now_ms": ...}                                first
    {"crawl": id, "key": ..., "state": ..., "spec": base64, ...}               then every crawl with its counts
    {"waiting" | "front" | "failed": [base64, ...], "crawl": key, ...}         entries as they are in the queues
    {"later": base64, ...}  {"due": [base64], ...}  {"seen": [...], ...}  {"pages": n, ...}
    {"host": name, "fields": {...}}
    {"validators": {field: base64, ...}, "crawl": key}  {"cookies": base64, "crawl": key, "jar": name}
    {"tally" | "facts": {name: total, ...}, "of": id}
    {"end": lines}                                                             last: without it the dump is cut off

During a dump every shard refuses writes and workers wait. If the dumping process dies, shards stay frozen for a minute
at most. A leased visit is dumped as waiting, and its host is closed until the lease would have expired. Copies of
robots.txt are not dumped: they are fetched again.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from typing import Any

from shoal.frontier import keys, visit_codec
from shoal.frontier.crawl_codec import reasons_now
from shoal.frontier.scripts import Status
from shoal.frontier.shards import Shards
from shoal.model.crawl import NOTHING_LEFT

_Line = dict[str, Any]
_FREEZE_MS = 60_000
_PART = 200
_SEEN_PART = 1000


async def dump(shards: Shards) -> AsyncIterator[str]:
    """The lines of a dump."""
    try:
        # Inside the try: an interruption while shards freeze must thaw those that are frozen.
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
        self._command = shards.store.command
        # Keys of crawls that have ended.
        self._ended: set[str] = set()
        # Crawls that reached a limit. The URLs that are kept for a higher one are not dumped.
        self._limited: set[str] = set()
        self._leases: list[str] = []
        # By the family of a key: the part of its name before the first colon. Other families are not dumped.
        self._by_family: dict[str, Callable[[str, str], AsyncIterator[_Line]]] = {
            "q": self._queue,
            "later": self._later,
            "due": self._due,
            "failed": self._failed,
            "fi": self._failed_lists,
            "s": self._seen,
            "v": self._validators,
            "jars": self._cookie_jars,
            "hp": self._pages_per_host,
            "h": self._host,
        }

    async def lines(self) -> AsyncIterator[_Line]:
        now = (await self._shards.call("clock", 0, ()))[1]
        yield {"frontier": 1, "seed": self._shards.seed, "now_ms": now}
        for prefix in self._shards.prefixes:
            async for line in self._crawls(prefix):
                yield line
        scanned = set()
        for prefix in self._shards.prefixes:
            # One scan for each server, however many shards it holds.
            server = self._shards.store.run_id(prefix + "meta")
            if server not in scanned:
                scanned.add(server)
                async for line in self._scan(prefix + "meta"):
                    yield line
        # After the queues, so that leased visits can be put in front of them.
        for name in self._leases:
            async for line in self._leased(name):
                yield line

    async def _crawls(self, prefix: str) -> AsyncIterator[_Line]:
        for raw in await self._command("ZRANGE", keys.crawls(prefix), 0, -1, key=keys.crawls(prefix)):
            crawl_id = raw.decode()
            fields = await self._hash(keys.crawl(prefix, crawl_id))
            key = fields["key"].decode()
            if fields["st"] not in (b"r", b"p", b"f"):
                self._ended.add(key)
            elif fields["st"] == b"f" and fields.get("why") != NOTHING_LEFT.encode():
                self._limited.add(key)
            counts, reasons = await self._counts(key)
            yield {
                "crawl": crawl_id, "key": key, "state": fields["st"].decode(), "created_ms": int(fields["created"]),
                "ended_ms": int(fields.get("ended", 0)), "why": fields.get("why", b"").decode(),
                "spec": _b64(fields.get("spec", b"")), "counts": counts, "reasons": reasons,
            }  # fmt: skip
            for kind, name in (("tally", keys.tally(prefix, key)), ("facts", keys.facts(prefix, key))):
                if totals := await self._hash(name):
                    yield {kind: {total: int(value) for total, value in totals.items()}, "of": crawl_id}

    async def _counts(self, key: str) -> tuple[dict[str, int], dict[str, int]]:
        """The ended visits of a crawl, by final state and by reason."""
        counts: dict[str, int] = defaultdict(int)
        reasons: dict[str, int] = defaultdict(int)
        replies = await self._shards.call_all("count", dict.fromkeys(range(self._shards.count), (key,)))
        for reply in replies.values():
            if reply[0] == Status.OK:
                # Without visits that were admitted again.
                readmitted = (reply[13], *reply[11:13])
                for name, number, again in zip(("stored", "failed", "excluded"), reply[7:10], readmitted, strict=True):
                    counts[name] += number - again
                for name, number in zip(reply[14::2], reply[15::2], strict=True):
                    reasons[name.decode()] += int(number)
        return counts, reasons_now(reasons)

    async def _scan(self, at: str) -> AsyncIterator[_Line]:
        cursor = b"0"
        while True:
            cursor, names = await self._command(
                "SCAN", cursor, "MATCH", self._shards.namespace + "{*", "COUNT", 1000, key=at
            )
            for raw in names:
                name = raw.decode()
                if any(name.startswith(prefix) for prefix in self._shards.prefixes):
                    family, _, rest = name.partition("}")[2].partition(":")
                    if family == "l":
                        self._leases.append(name)
                    elif lines := self._by_family.get(family):
                        async for line in lines(name, rest):
                            yield line
            if cursor == b"0":
                return

    async def _queue(self, name: str, rest: str) -> AsyncIterator[_Line]:
        crawl, priority, host = rest.split(":", 2)
        if crawl not in self._ended | self._limited:
            async for entries in self._entries(name):
                yield {"waiting": entries, "crawl": crawl, "host": host, "priority": int(priority)}

    async def _later(self, name: str, rest: str) -> AsyncIterator[_Line]:
        flat = await self._command("ZRANGE", name, 0, -1, "WITHSCORES", key=name)
        for member, due in zip(flat[::2], flat[1::2], strict=True):
            head, _, entry = member.partition(b" ")
            crawl, priority, host = head.decode().split(":", 2)
            if crawl not in self._ended | self._limited:
                where = {"crawl": crawl, "host": host, "priority": int(priority)}
                yield {"later": _b64(entry), **where, "due_ms": _ms(due)}

    async def _due(self, name: str, rest: str) -> AsyncIterator[_Line]:
        crawl, bucket = rest.split(":", 1)
        if crawl in self._ended | self._limited:
            return
        exponent, _, number = bucket.rstrip("r").partition(".")
        due_ms = int(number) * 2 ** int(exponent)
        names = keys.names(name.partition("}")[0] + "}", crawl)
        hosts = {number.encode(): host for number, host in (await self._hash(names)).items()}
        start = 0
        while members := await self._command("LRANGE", name, start, start + _PART - 1, key=name):
            for member in members:
                head, priority, entry = visit_codec.scheduled(member)
                host = hosts[head[1:]] if head.startswith(b"#") else head
                where = {"crawl": crawl, "host": host.decode(), "priority": priority}
                yield {"due": [_b64(entry)], **where, "due_ms": due_ms}
            start += _PART

    async def _failed(self, name: str, crawl: str) -> AsyncIterator[_Line]:
        for packed in await self._command("LRANGE", name, 0, -1, key=name):
            head, _, entry = packed.partition(b"\n")
            yield {"failed": [_b64(entry)], "crawl": crawl, **_where(head)}

    async def _failed_lists(self, name: str, crawl: str) -> AsyncIterator[_Line]:
        for number, head in (await self._hash(name)).items():
            if number.isdigit():
                async for entries in self._entries(name.replace("}fi:", "}fq:") + ":" + number):
                    yield {"failed": entries, "crawl": crawl, **_where(head)}

    async def _seen(self, name: str, rest: str) -> AsyncIterator[_Line]:
        crawl = rest.split(":")[0]
        if crawl not in self._ended:
            fingerprints = [int(member) for member in await self._command("SMEMBERS", name, key=name)]
            for start in range(0, len(fingerprints), _SEEN_PART):
                yield {"seen": fingerprints[start : start + _SEEN_PART], "crawl": crawl}

    async def _validators(self, name: str, rest: str) -> AsyncIterator[_Line]:
        crawl = rest.split(":")[0]
        if crawl not in self._ended:
            fields = list((await self._hash(name)).items())
            for start in range(0, len(fields), _PART):
                part = {field: _b64(value) for field, value in fields[start : start + _PART]}
                yield {"validators": part, "crawl": crawl}

    async def _cookie_jars(self, name: str, crawl: str) -> AsyncIterator[_Line]:
        if crawl not in self._ended:
            for jar, value in (await self._hash(name)).items():
                yield {"cookies": _b64(value), "crawl": crawl, "jar": jar}

    async def _pages_per_host(self, name: str, crawl: str) -> AsyncIterator[_Line]:
        for host, stored in (await self._hash(name)).items():
            if not host.startswith("!"):
                yield {"pages": int(stored), "crawl": crawl, "host": host}

    async def _host(self, name: str, host: str) -> AsyncIterator[_Line]:
        fields = {field: value.decode() for field, value in (await self._hash(name)).items()}
        # Without its holders, and without its epoch and robots version, which mean nothing in another store.
        kept = {field: value for field, value in fields.items() if field[0] != "k" and field not in ("e", "ex", "rv")}
        if kept:
            yield {"host": host, "fields": kept}

    async def _leased(self, name: str) -> AsyncIterator[_Line]:
        lease = await self._hash(name)
        host = lease["host"].decode()
        for number in sorted((int(field) for field in lease if field.isdigit()), reverse=True):
            crawl, priority, entry = lease[str(number)].split(b":", 2)
            if crawl.decode() not in self._ended:
                yield {"front": [_b64(entry)], "crawl": crawl.decode(), "host": host, "priority": int(priority)}
        prefix, _, token = name.partition("}l:")
        deadline = await self._command("ZSCORE", keys.leases(prefix + "}"), token, key=name)
        if deadline is not None and "place" in lease:
            gate = _ms(deadline) + _ms(lease["delay"])
            yield {"host": host, "fields": {"b": str(gate)}}

    async def _entries(self, name: str) -> AsyncIterator[list[str]]:
        """The entries of a list, `_PART` at a time."""
        start = 0
        while entries := await self._command("LRANGE", name, start, start + _PART - 1, key=name):
            yield [_b64(entry) for entry in entries]
            start += _PART

    async def _hash(self, name: str) -> dict[str, bytes]:
        flat = await self._command("HGETALL", name, key=name)
        return {field.decode(): value for field, value in zip(flat[::2], flat[1::2], strict=True)}


def _where(head: bytes) -> dict[str, Any]:
    where, _, reason = head.decode().partition(" ")
    priority, _, host = where.partition(":")
    return {"host": host, "priority": int(priority), "why": reason}


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _ms(number: bytes) -> int:
    return int(float(number))
