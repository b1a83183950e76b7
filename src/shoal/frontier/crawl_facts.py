"""Facts of a crawl: what is known for certain, kept until the crawl is deleted, and used for decisions.

Statistics (`Crawls.tally`) are different: a repeated call may count twice there. A fact is a number that only
grows, so recording it again changes nothing. A count of bytes has a sequence number, so it counts once.
Reached as `frontier.crawls.facts`.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from shoal.errors import UnknownCrawl
from shoal.frontier.scripts import Status
from shoal.frontier.shards import Shards
from shoal.model import validation

_BRANCH, _SLOT, _EXPORT = "branch:", "slot:", "export:"


class Feed(StrEnum):
    """The sources that add URLs to a crawl while it runs."""

    SEEDS = "seeds"
    PASS = "pass"  # noqa: S105


class FeedState(msgspec.Struct, frozen=True):
    """The progress of one kind of feed. Feeds of a kind are numbered from 1."""

    started: int = 0
    finished: int = 0
    started_at: float = 0.0

    @property
    def under_way(self) -> bool:
        return self.started > self.finished


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one crawl."""

    # Spiders that a branch of the crawl was made for.
    branches: tuple[str, ...] = ()
    seeds: FeedState = FeedState()
    revisit: FeedState = FeedState()
    # Submitted to a fleet: no command owns the crawl, so none pauses it.
    submitted: bool = False
    # The notification of its end was sent, or given up.
    notified: bool = False
    # Hosts with a delay of DOWNLOAD_SLOTS.
    download_slots: tuple[str, ...] = ()
    # Files of Scrapy's feed exports that the crawl has begun to write.
    exports: tuple[str, ...] = ()
    bytes_received: int = 0

    @property
    def feeding(self) -> bool:
        """True while URLs are still to be added: the crawl is not finished, whatever its counts are."""
        return self.seeds.under_way or self.revisit.under_way

    def feed(self, feed: Feed) -> FeedState:
        return self.seeds if feed is Feed.SEEDS else self.revisit


@dataclass
class _Bytes:
    """Bytes of one crawl that the store has not confirmed: `sent` under `sequence`, `waiting` after it."""

    waiting: int = 0
    sent: int = 0
    sequence: int = 0


class CrawlFacts:
    """Reads and records facts. Every call may be repeated."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._source = secrets.token_hex(6)
        self._sequence = 0
        self._unconfirmed: dict[str, _Bytes] = {}
        self._counting = asyncio.Lock()

    async def read(self, crawl_id: str) -> Facts:
        return await self._record(crawl_id)

    async def add_branch(self, crawl_id: str, spider: str) -> None:
        await self._record(crawl_id, (_BRANCH + spider, 1))

    async def add_download_slot(self, crawl_id: str, host: str) -> None:
        await self._record(crawl_id, (_SLOT + host, 1))

    async def add_export(self, crawl_id: str, name: str) -> None:
        await self._record(crawl_id, (_EXPORT + name, 1))

    async def mark_submitted(self, crawl_id: str) -> None:
        await self._record(crawl_id, ("submitted", 1))

    async def mark_notified(self, crawl_id: str) -> None:
        await self._record(crawl_id, ("notified", 1))

    async def start_feed(self, crawl_id: str, feed: Feed) -> None:
        """Record that a feed has started. A feed that is under way continues."""
        state = (await self.read(crawl_id)).feed(feed)
        if not state.under_way:
            started = (f"{feed}_begun", state.finished + 1)
            await self._record(crawl_id, started, (f"{feed}_began_ms", int(time.time() * 1000)))

    async def finish_feed(self, crawl_id: str, feed: Feed) -> None:
        state = (await self.read(crawl_id)).feed(feed)
        if state.under_way:
            await self._record(crawl_id, (f"{feed}_done", state.started))

    async def add_bytes(self, crawl_id: str, count: int) -> int:
        """Count received bytes and return the crawl's total.

        If the call fails, the bytes are kept and sent with the next call for this crawl.
        """
        validation.whole("bytes", count, 0, validation.WIDEST)
        async with self._counting:
            unconfirmed = self._unconfirmed.setdefault(crawl_id, _Bytes())
            unconfirmed.waiting += count
            while True:
                if not unconfirmed.sequence:
                    self._sequence += 1
                    unconfirmed.sequence, unconfirmed.sent = self._sequence, unconfirmed.waiting
                    unconfirmed.waiting = 0
                args = (crawl_id, self._source, unconfirmed.sequence, unconfirmed.sent)
                reply = await self._call("add_bytes", crawl_id, args)
                unconfirmed.sequence = 0
                if not unconfirmed.waiting:
                    del self._unconfirmed[crawl_id]
                    return int(reply[1])

    async def _record(self, crawl_id: str, *facts: tuple[str, int]) -> Facts:
        args: list[str | int] = [crawl_id, *(part for fact in facts for part in fact)]
        reply = await self._call("facts", crawl_id, args)
        values = {name.decode(errors="replace"): value for name, value in zip(reply[1::2], reply[2::2], strict=True)}
        return Facts(
            branches=_named(values, _BRANCH), seeds=_feed(values, Feed.SEEDS), revisit=_feed(values, Feed.PASS),
            submitted=bool(values.get("submitted")), notified=bool(values.get("notified")),
            download_slots=_named(values, _SLOT), exports=_named(values, _EXPORT),
            bytes_received=values.get("bytes", 0),
        )  # fmt: skip

    async def _call(self, script: str, crawl_id: str, args: Any) -> list[Any]:
        home = self._shards.home(validation.crawl_id(crawl_id))
        reply = await self._shards.call(script, home, args, replicated=script == "facts" and len(args) > 1)
        if reply[0] == Status.UNKNOWN:
            self._unconfirmed.pop(crawl_id, None)
            raise UnknownCrawl(f"There is no crawl {crawl_id!r} in this store: create it first, or check its id.")
        return reply


def _named(values: dict[str, int], prefix: str) -> tuple[str, ...]:
    return tuple(sorted(name.removeprefix(prefix) for name in values if name.startswith(prefix)))


def _feed(values: dict[str, int], feed: Feed) -> FeedState:
    started, finished, started_ms = (values.get(f"{feed}_{part}", 0) for part in ("begun", "done", "began_ms"))
    return FeedState(started, finished, started_ms / 1000)
