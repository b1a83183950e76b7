"""Restore: write the lines of a dump (see dump.py) into an empty namespace with any number of shards."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from shoal.errors import InvalidInput, StoreRefused
from shoal.frontier import keys
from shoal.frontier.crawl_codec import copy_fields
from shoal.frontier.crawls import Crawls
from shoal.frontier.scripts import Status, script
from shoal.frontier.shards import Shards
from shoal.model.crawl import STATES, Crawl
from shoal.store import Argument
from shoal.urls.fingerprint import bits_of, shard_of

_Line = dict[str, Any]


async def load(shards: Shards, lines: Iterable[str]) -> int:
    """Write a dump into an empty namespace with any number of shards. Returns the number of waiting visits.

    Start no worker before it has returned: the fingerprint seed is replaced by that of the dump.
    """
    loader = _Loader(shards)
    await loader.check_empty()
    complete = False
    for number, text in enumerate(lines, 1):
        try:
            complete = await loader.load(json.loads(text), number)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidInput(f"Line {number} of the dump is invalid ({error!r}): load a complete dump.") from None
    if not complete:
        raise InvalidInput("The dump is truncated, and only a part of it was loaded; load a complete dump.")
    return loader.waiting


class _Loader:
    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        # Keys of crawls in the dump -> here.
        self._keys: dict[str, str] = {}
        self._crawls: dict[str, Crawl] = {}
        # Crawls and shards that have a copy.
        self._introduced: set[tuple[str, int]] = set()
        self._lines = [0] * shards.count
        self.waiting = 0
        # By the field that only lines of one kind have, in this order.
        self._by_field: dict[str, Callable[[_Line], Awaitable[None]]] = {
            "frontier": self._first,
            "spec": self._crawl,
            "waiting": self._waiting,
            "front": self._front,
            "later": self._later,
            "due": self._due,
            "failed": self._failed,
            "pages": self._pages,
            "seen": self._seen,
            "validators": self._validators,
            "cookies": self._cookies,
            "tally": self._tally,
            "facts": self._facts,
            "host": self._host,
        }

    async def check_empty(self) -> None:
        for prefix in self._shards.prefixes:
            key = keys.crawls(prefix)
            if await self._shards.command("EXISTS", key):
                raise StoreRefused(f"Namespace {self._shards.namespace!r} has crawls already: load into an empty one.")

    async def load(self, line: _Line, number: int) -> bool:
        """Load one line; True when it is the last one and none is missing."""
        if number == 1 and line["frontier"] != 1:
            raise StoreRefused(f"The dump has version {line['frontier']}, this Shoal reads 1: use a newer Shoal.")
        for field, load in self._by_field.items():
            if field in line:
                await load(line)
                return False
        return int(line["end"]) == number - 1

    async def _first(self, line: _Line) -> None:
        seed = int(line["seed"])
        for shard in range(self._shards.count):
            await self._write(shard, "seed", seed)
        key = keys.store_meta(self._shards.namespace)
        await self._shards.store.call(script("found"), key, (0, self._shards.count, seed, "s"), replicated=True)
        self._shards.seed = seed

    async def _crawl(self, line: _Line) -> None:
        crawls = Crawls(self._shards)
        crawl = await crawls.restore(line["crawl"], base64.b64decode(line["spec"]))
        self._keys[line["key"]] = crawl.key
        counts = line["counts"]
        left = max(0, crawl.limits.max_pages - counts.get("stored", 0))
        home = self._shards.home(crawl.id)
        state = STATES[line["state"]].code
        await self._write(home, "crawl", crawl.id, state, line["created_ms"], line["ended_ms"], line["why"], left)
        crawl = await crawls.get(crawl.id)
        self._crawls[crawl.key] = crawl
        if state == "d":
            return
        ends = [counts.get(name, 0) for name in ("stored", "failed", "excluded")]
        fields = (*copy_fields(crawl), "", *_flat(line["reasons"]))
        await self._write(home, "copy", crawl.key, crawl.version, state, *ends, *fields)
        self._introduced.add((crawl.key, home))

    async def _waiting(self, line: _Line) -> None:
        await self._queued(line, "waiting")

    async def _front(self, line: _Line) -> None:
        await self._queued(line, "front")

    async def _queued(self, line: _Line, kind: str) -> None:
        entries = _entries(line[kind])
        self.waiting += len(entries)
        await self._at_host(line, kind, line["priority"], *entries)

    async def _later(self, line: _Line) -> None:
        await self._at_host(line, "later", line["priority"], line["due_ms"], base64.b64decode(line["later"]))

    async def _due(self, line: _Line) -> None:
        await self._at_host(line, "due", line["priority"], line["due_ms"], *_entries(line["due"]))

    async def _failed(self, line: _Line) -> None:
        await self._at_host(line, "failed", line["priority"], line["why"], *_entries(line["failed"]))

    async def _pages(self, line: _Line) -> None:
        await self._at_host(line, "pages", line["pages"])

    async def _seen(self, line: _Line) -> None:
        by_shard: dict[int, list[Argument]] = defaultdict(list)
        for fingerprint in line["seen"]:
            by_shard[shard_of(bits_of(int(fingerprint)), self._shards.count)].append(int(fingerprint))
        for shard, fingerprints in by_shard.items():
            await self._of_crawl(line["crawl"], shard, "seen", *fingerprints)

    async def _validators(self, line: _Line) -> None:
        by_shard: dict[int, list[Argument]] = defaultdict(list)
        for field, value in line["validators"].items():
            shard = shard_of(bits_of(int(field.partition(".")[0])), self._shards.count)
            by_shard[shard] += [field, base64.b64decode(value)]
        for shard, flat in by_shard.items():
            await self._of_crawl(line["crawl"], shard, "valid", *flat)

    async def _cookies(self, line: _Line) -> None:
        jar = line["jar"]
        await self._of_crawl(line["crawl"], self._shards.of(jar), "jar", jar, base64.b64decode(line["cookies"]))

    async def _tally(self, line: _Line) -> None:
        await self._write(self._shards.home(line["of"]), "tally", line["of"], *_flat(line["tally"]))

    async def _facts(self, line: _Line) -> None:
        await self._write(self._shards.home(line["of"]), "facts", line["of"], *_flat(line["facts"]))

    async def _host(self, line: _Line) -> None:
        await self._write(self._shards.of(line["host"]), "host", line["host"], *_flat(line["fields"]))

    async def _at_host(self, line: _Line, kind: str, *args: Argument) -> None:
        await self._of_crawl(line["crawl"], self._shards.of(line["host"]), kind, line["host"], *args)

    async def _of_crawl(self, old_key: str, shard: int, kind: str, *args: Argument) -> None:
        key = self._keys[old_key]
        if (key, shard) not in self._introduced:
            crawl = self._crawls[key]
            await self._write(shard, "copy", key, crawl.version, crawl.state.code, 0, 0, 0, *copy_fields(crawl))
            self._introduced.add((key, shard))
        await self._write(shard, kind, key, *args)

    async def _write(self, shard: int, kind: str, *args: Argument) -> None:
        self._lines[shard] += 1
        reply = await self._shards.call("restore", shard, (self._lines[shard], kind, *args), replicated=True)
        if reply[0] != Status.OK:
            raise ValueError(f"the script restore replied {reply[0]} to {kind}")


def _entries(encoded: list[str]) -> list[bytes]:
    return [base64.b64decode(entry) for entry in encoded]


def _flat(pairs: dict[str, Any]) -> list[Argument]:
    return [part for pair in pairs.items() for part in pair]
