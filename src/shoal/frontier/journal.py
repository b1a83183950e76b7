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
from shoal.frontier.admission import Admission, Confirmed, NewLink
from shoal.frontier.crawls import Crawls
from shoal.frontier.shards import Shards
from shoal.model.lease import Lease
from shoal.model.visit import Visit

# Several shards start new epochs together: one replay for all of them.
_LINGER_SECONDS = 1.0

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[NewLink]).decode


class LinkJournal:
    def __init__(self, shards: Shards, crawls: Crawls, admission: Admission) -> None:
        self._shards = shards
        self._crawls = crawls
        self._admission = admission
        # Shard of the page -> shard and server process that confirmed the links -> links.
        self._noted: dict[int, dict[tuple[int, bytes], list[NewLink]]] = {}
        self._replaying: asyncio.Task[None] | None = None
        if self.active:
            shards.epochs.on_turn.append(self._replay_soon)

    @property
    def active(self) -> bool:
        return self._shards.store.kind == "cluster"

    async def keep(self, confirmed: Sequence[Confirmed], found_on: Sequence[tuple[Lease, Visit]] | None) -> None:
        """Note links for the acknowledgements of their pages; write those that no page led to."""
        if found_on is None:
            by_process: dict[tuple[int, bytes], list[NewLink]] = defaultdict(list)
            for _, shard, run, new, link in confirmed:
                if new:
                    by_process[shard, run].append(link)
            for (shard, run), links in by_process.items():
                await self._write(shard, run, links)
            return
        for position, shard, run, new, link in confirmed:
            lease, page = found_on[position]
            # An abandoned page may have added its links before, without an acknowledgement that kept them.
            if lease.shard != shard and (new or page.abandoned):
                self._noted.setdefault(lease.shard, {}).setdefault((shard, run), []).append(link)

    def take(self, shard: int) -> list[tuple[str, bytes]]:
        """The names and contents of the entries that go with the next acknowledgement in this shard."""
        return [_entry(target, run, links) for (target, run), links in self._noted.pop(shard, {}).items()]

    async def _write(self, target: int, run: bytes, links: list[NewLink]) -> None:
        """Keep links that no page led to: in a shard that is on another server than theirs."""
        shard = (target + self._shards.count // 2) % self._shards.count
        if shard != target:
            await self._shards.call("links", shard, ("w", *_entry(target, run, links)), replicated=True)

    async def replay(self) -> int:
        """Add links again that earlier server processes of their shards have confirmed. Returns how many there were."""
        if not self.active:
            return 0
        lists = await self._shards.call_all("links", dict.fromkeys(range(self._shards.count), ("l", "")))
        replayed = 0
        for shard, reply in lists.items():
            for raw in reply[2:]:
                target, _, run = raw.decode().partition(":")
                current = lists[int(target)][1] if int(target) in lists else b""
                if current and run != current.decode():
                    replayed += await self._replay(shard, int(target), raw.decode(), current)
        return replayed

    async def _replay(self, shard: int, target: int, name: str, run: bytes) -> int:
        replayed = 0
        # Moved entries leave the front of the list.
        while entries := (await self._shards.call("links", shard, ("r", name, 0)))[2:]:
            for key, links in _by_crawl(entries):
                replayed += len(links)
                # A crawl that has ended needs no links.
                with contextlib.suppress(CrawlEnded, UnknownCrawl):
                    await self._admission.add_again((await self._crawls.by_key(key)).id, target, links)
            await self._shards.call("links", shard, ("m", name, run, *entries), replicated=True)
        return replayed

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


def _entry(target: int, run: bytes, links: list[NewLink]) -> tuple[str, bytes]:
    """The name of the list for a server process of a shard, and links in their stored form."""
    return f"{target}:{run.decode()}", zlib.compress(_encode(links), 1)


def _by_crawl(entries: list[bytes]) -> Iterator[tuple[str, list[NewLink]]]:
    by_crawl: dict[str, list[NewLink]] = defaultdict(list)
    for entry in entries:
        for link in _decode(zlib.decompress(entry.partition(b" ")[2])):
            by_crawl[link.crawl].append(link)
    yield from by_crawl.items()
