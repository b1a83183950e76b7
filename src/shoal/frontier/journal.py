"""The link journal: links between shards survive a loss of writes in one of them.

In a cluster every shard can lose its last writes alone, by a failover or a stale copy. A link that was confirmed there
is lost then, while its page stays acknowledged in another shard. So the shard of the page keeps the new links of its
pages to other shards for a while, written with their acknowledgement; if that is lost too, the page is visited again.
When a shard starts a new epoch, the links that earlier server processes confirmed are added to it again, and
deduplication makes that harmless. On a single server all shards lose the same writes, and no journal is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from shoal.errors import CrawlEnded, ShoalError, UnknownCrawl
from shoal.frontier.admission import Admission, Confirmed, Link
from shoal.frontier.crawls import Crawls
from shoal.frontier.shards import Shards
from shoal.model.lease import Lease
from shoal.model.visit import Visit

# Several shards start new epochs together: one replay for all of them.
_LINGER_SECONDS = 1.0
# How long a journal keeps links (lua/include/journal.lua), and a little more.
_HORIZON_SECONDS = 150.0

# An entry that exceeds this size, before compression, gets no more links.
_ENTRY_BYTES = 1_000_000

_ByTarget = dict[int, list[Link]]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_ByTarget).decode


class JournalEntry(msgspec.Struct, frozen=True, array_like=True):
    """Links that one server process has confirmed for several shards."""

    run: bytes
    shards: str
    links: bytes

    def __iter__(self) -> Iterator[bytes | str]:
        """The fields in the order of the arguments of scripts."""
        return iter((self.run, self.shards, self.links))


class LinkJournal:
    def __init__(self, shards: Shards, crawls: Crawls, admission: Admission) -> None:
        self._shards = shards
        self._crawls = crawls
        self._admission = admission
        # Shard of the page -> server process that confirmed the links -> shard of the links -> links.
        self._noted: dict[int, dict[bytes, _ByTarget]] = {}
        self._replaying: asyncio.Task[None] | None = None
        if self.active:
            shards.epochs.on_turn.append(self._replay_soon)

    @property
    def active(self) -> bool:
        return self._shards.store.kind == "cluster"

    async def keep(self, confirmed: Sequence[Confirmed], found_on: Sequence[tuple[Lease, Visit]] | None) -> None:
        """Keep links for the acknowledgements of their pages. Links that no page led to are written now."""
        if found_on is None:
            seeds: dict[tuple[int, bytes], list[Link]] = defaultdict(list)
            for call in confirmed:
                seeds[call.shard, call.run] += [link for _, new, link in call.links() if new]
            for (shard, run), new_links in seeds.items():
                if new_links:
                    await self._write(shard, run, new_links)
            return
        for call in confirmed:
            # Shard of the page -> links of this call.
            kept: dict[int, list[Link]] = {}
            for position, new, link in call.links():
                lease, page = found_on[position]
                if lease.shard != call.shard and (new or self._again(lease, page)):
                    links = kept.get(lease.shard)
                    if links is None:
                        by_process = self._noted.setdefault(lease.shard, {})
                        links = kept[lease.shard] = by_process.setdefault(call.run, {}).setdefault(call.shard, [])
                    links.append(link)

    def _again(self, lease: Lease, page: Visit) -> bool:
        """Whether this page may have added its links before, and no acknowledgement may have kept them.

        Its worker died, or the shard has lost the acknowledgement.
        """
        return page.abandoned or self._shards.epochs.lately(lease.epoch, _HORIZON_SECONDS)

    def take(self, shard: int) -> list[JournalEntry]:
        """The entries that go with the next acknowledgement in this shard."""
        return [entry for run, links in self._noted.pop(shard, {}).items() for entry in _entries(run, links)]

    async def _write(self, target: int, run: bytes, links: list[Link]) -> None:
        """Keep links that no page led to: in a shard that is on another server than theirs."""
        shard = (target + self._shards.count // 2) % self._shards.count
        if shard != target:
            await self._write_to(shard, run, {target: links})

    async def _write_to(self, shard: int, run: bytes, by_target: _ByTarget) -> None:
        for entry in _entries(run, by_target):
            await self._shards.call("links", shard, ("w", *entry, self._shards.request()), replicated=True)

    async def replay(self) -> int:
        """Add links again that earlier server processes of their shards have confirmed. Returns how many there were."""
        if not self.active:
            return 0
        lists = await self._shards.call_all("links", dict.fromkeys(range(self._shards.count), ("l", "")))
        current = {shard: reply[1] for shard, reply in lists.items()}
        replayed = 0
        for shard, reply in lists.items():
            # Earlier process -> shards that it served, with the last call that wrote links of them.
            earlier: dict[bytes, dict[int, bytes]] = {}
            for name, mark in zip(reply[2::2], reply[3::2], strict=True):
                target, _, run = name.partition(b":")
                if current.get(int(target), run) != run:
                    earlier.setdefault(run, {})[int(target)] = mark
            for run, marks in earlier.items():
                replayed += await self._replay(shard, run, marks, current)
        return replayed

    async def _replay(self, shard: int, run: bytes, marks: dict[int, bytes], current: dict[int, bytes]) -> int:
        replayed = offset = 0
        while entries := (await self._shards.call("links", shard, ("r", run, offset)))[2:]:
            offset += len(entries)
            by_process: dict[bytes, _ByTarget] = {}
            for target, links in _decoded(entries):
                if target in marks:
                    by_process.setdefault(current[target], {}).setdefault(target, []).extend(links)
            for process, by_target in by_process.items():
                for target, links in by_target.items():
                    replayed += len(links)
                    await self._add_again(target, links)
                # The shards may lose these links again.
                await self._write_to(shard, process, by_target)
        for target, mark in marks.items():
            await self._shards.call("links", shard, ("d", run, target, mark), replicated=True)
        return replayed

    async def _add_again(self, target: int, links: list[Link]) -> None:
        by_crawl: dict[str, list[Link]] = defaultdict(list)
        for link in links:
            by_crawl[link[0]].append(link)
        for key, part in by_crawl.items():
            # A crawl that has ended needs no links.
            with contextlib.suppress(CrawlEnded, UnknownCrawl):
                await self._admission.add_again((await self._crawls.by_key(key)).id, target, part)

    def _replay_soon(self) -> None:
        if self._replaying is None or self._replaying.done():
            with contextlib.suppress(RuntimeError):
                self._replaying = asyncio.get_running_loop().create_task(self._replay_later())

    async def _replay_later(self) -> None:
        await asyncio.sleep(_LINGER_SECONDS)
        # If the store fails again, the check whether a crawl is finished replays what is left.
        with contextlib.suppress(ShoalError):
            await self.replay()

    async def close(self) -> None:
        if self._replaying is not None:
            self._replaying.cancel()
            await asyncio.gather(self._replaying, return_exceptions=True)


def _entries(run: bytes, by_target: _ByTarget) -> Iterator[JournalEntry]:
    """Entries of a few megabytes: a replay reads 20 at once."""
    packed = _encode(by_target)
    if len(packed) <= _ENTRY_BYTES:
        yield _entry(run, by_target, packed)
        return
    part: _ByTarget = {}
    size = 0
    for target, links in by_target.items():
        for link in links:
            if size > _ENTRY_BYTES:
                yield _entry(run, part, _encode(part))
                part, size = {}, 0
            part.setdefault(target, []).append(link)
            size += len(_encode(link))
    yield _entry(run, part, _encode(part))


def _entry(run: bytes, by_target: _ByTarget, packed: bytes) -> JournalEntry:
    return JournalEntry(run, ",".join(map(str, by_target)), zlib.compress(packed, 1))


def _decoded(entries: list[bytes]) -> Iterator[tuple[int, list[Link]]]:
    for entry in entries:
        yield from _decode(zlib.decompress(entry.partition(b" ")[2])).items()
