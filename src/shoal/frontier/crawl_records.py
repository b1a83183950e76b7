"""Records of crawls, read from their home shards and cached. Knows which branches a crawl has. Changes nothing."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import msgspec

from shoal.errors import StoreCorrupt, UnknownCrawl
from shoal.frontier import keys
from shoal.frontier.crawl_codec import crawl_of
from shoal.frontier.crawl_facts import CrawlFacts
from shoal.frontier.scripts import Status
from shoal.frontier.shards import Shards
from shoal.model import validation
from shoal.model.crawl import Crawl, State

# Crawls in the cache. Beyond this number the oldest is dropped, and read from the store again when it is needed.
_MOST_CACHED = 2000


class CrawlRecords:
    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self.facts = CrawlFacts(shards)
        self._by_id: dict[str, Crawl] = {}
        self._by_key: dict[str, Crawl] = {}
        shards.on_replaced += [self._by_id.clear, self._by_key.clear]

    async def get(self, crawl_id: str) -> Crawl:
        """The current record of the crawl, from its home shard."""
        return self._keep(await self._record(self._shards.home(validation.crawl_id(crawl_id)), crawl_id, ""))

    async def by_key(self, key: str) -> Crawl:
        """The crawl with this key, cached."""
        crawl = self._by_key.get(key)
        return crawl or self._keep(await self._record(keys.home_of(key), "", key))

    def cached(self, key: str) -> bool:
        """Whether `by_key` returns this crawl without a call."""
        return key in self._by_key

    async def known(self, crawl_id: str) -> Crawl:
        """As `get`, but cached: key and limits are used until a shard reports another version."""
        return self._by_id.get(validation.crawl_id(crawl_id)) or await self.get(crawl_id)

    async def all(self) -> AsyncIterator[Crawl]:
        """Every crawl that was not deleted, newest first in each shard."""
        for shard in range(self._shards.count):
            key = keys.crawls(self._shards.prefixes[shard])
            for crawl_id in await self._shards.command("ZREVRANGE", key, 0, -1):
                crawl = await self.get(crawl_id.decode())
                if crawl.state is not State.DELETED:
                    yield crawl

    async def branches(self, crawl_id: str) -> list[str]:
        """The ids of a crawl's branches."""
        if not (await self.known(crawl_id)).limits.spider:
            return []
        ids = []
        for spider in (await self.facts.read(crawl_id)).branches:
            # A branch that is about to be created has nothing in it yet.
            with contextlib.suppress(UnknownCrawl):
                branch = await self.known(f"{crawl_id}:{spider}")
                # A deleted crawl no longer has a specification.
                ids += [branch.id] if branch.parent == crawl_id else []
        return ids

    def drop_cache(self, crawl_id: str) -> None:
        if crawl := self._by_id.get(crawl_id):
            self._forget(crawl)

    async def _record(self, shard: int, crawl_id: str, key: str) -> Crawl:
        if shard >= self._shards.count:
            raise unknown_crawl(crawl_id or key)
        reply = await self._shards.call("home", shard, (crawl_id, key))
        if reply[0] != Status.OK:
            raise unknown_crawl(crawl_id or key)
        try:
            fields = {name.decode(): value for name, value in zip(reply[2::2], reply[3::2], strict=True)}
            return crawl_of(fields, reply[1])
        except (KeyError, ValueError, msgspec.MsgspecError) as error:
            raise StoreCorrupt(f"Invalid record of crawl {crawl_id or key} in the store: {error}.") from None

    def _keep(self, crawl: Crawl) -> Crawl:
        if len(self._by_id) >= _MOST_CACHED and crawl.id not in self._by_id:
            self._forget(next(iter(self._by_id.values())))
        self._by_id[crawl.id] = crawl
        self._by_key[crawl.key] = crawl
        return crawl

    def _forget(self, crawl: Crawl) -> None:
        self._by_id.pop(crawl.id, None)
        self._by_key.pop(crawl.key, None)


async def family(records: CrawlRecords, crawl_id: str) -> list[str]:
    """The ids of a crawl and its branches."""
    return [crawl_id, *await records.branches(crawl_id)]


def unknown_crawl(crawl_id: str) -> UnknownCrawl:
    return UnknownCrawl(f"There is no crawl {crawl_id!r} in this store: create it first, or check its id.")
