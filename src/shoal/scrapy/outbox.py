"""The outbox of a Scrapy process: new requests to add, then visits to acknowledge, in this order and in few calls.

A visit is acknowledged only after the requests that its callback yielded are added: they were put in before it. Calls
are retried until the store accepts them; only the visits that depend on them wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from scrapy import Request

from shoal.errors import CrawlEnded, InvalidInput, ShoalError
from shoal.frontier import Done, Frontier
from shoal.model.record import RecordKey
from shoal.model.visit import AddResult, Outcome, Visit
from shoal.scrapy.feeds import Feeds
from shoal.scrapy.leased_slot import LeasedSlot

log = logging.getLogger("shoal.scrapy")
# After this time, the requests of a few pages go out in one call.
LINGER_SECONDS = 0.004
_RETRY_SECONDS = 1.0
FULL = 5000
_Reply = TypeVar("_Reply")


class _NewVisit(NamedTuple):
    visit: Visit
    force: bool
    request: Request


class Outbox:
    def __init__(
        self, frontier: Frontier, crawl_id: str, max_bytes: int, *,
        on_added: Callable[[Request, Visit, bool, bool], None], on_change: Callable[[], None],
        on_ended: Callable[[], Awaitable[bool]],
    ) -> None:  # fmt: skip
        self._frontier = frontier
        self._crawl = crawl_id
        self._max_bytes = max_bytes
        self._on_added = on_added
        self._on_change = on_change
        self._on_ended = on_ended
        self._new: list[_NewVisit] = []
        self._ended: list[tuple[LeasedSlot, Outcome]] = []
        self._wake = asyncio.Event()
        self._sending = False
        # Longer while nothing waits for the new visits.
        self.linger_seconds = LINGER_SECONDS
        self._idle = asyncio.Event()
        self._idle.set()
        self.feeds: Feeds | None = None

    def __len__(self) -> int:
        return len(self._new) + len(self._ended) + self._sending

    @property
    def full(self) -> bool:
        return len(self._new) >= FULL

    def add(self, visit: Visit, force: bool, request: Request) -> None:
        self._new.append(_NewVisit(visit, force, request))
        self._stir()

    def end(self, slot: LeasedSlot, outcome: Outcome) -> None:
        self._ended.append((slot, outcome))
        self._stir()

    def _stir(self) -> None:
        self._idle.clear()
        self._wake.set()

    async def empty(self) -> None:
        """Wait until everything put in so far is in the store."""
        if self.feeds is not None and self.feeds.pending:
            self._stir()
        await self._idle.wait()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(self.linger_seconds)
            self._wake.clear()
            new, self._new = self._new, []
            ended, self._ended = self._ended, []
            self._sending = True
            try:
                if new:
                    await self._persist(lambda: self._add(new))  # noqa: B023 - awaited in this turn
                if ended or (self.feeds is not None and self.feeds.pending):
                    await self._acknowledge(ended)
            finally:
                self._sending = False
            if not self._new and not self._ended:
                self._idle.set()
            self._on_change()

    async def _add(self, new: list[_NewVisit]) -> None:
        for force in (False, True):
            entries = [entry for entry in new if entry.force is force]
            if not entries:
                continue
            epochs = self._frontier.epochs
            try:
                visits = [entry.visit for entry in entries]
                added = await self._frontier.add(self._crawl, visits, force=force, max_bytes=self._max_bytes)
            except InvalidInput as error:
                # A visit that cannot be stored does not affect the others.
                if len(entries) == 1:
                    log.error("%s", error)
                else:
                    for entry in entries:
                        await self._add([entry])
                continue
            # What was confirmed before a change of epoch may be lost: it does not count as known.
            known = epochs == self._frontier.epochs
            for entry, result in zip(entries, added.results, strict=True):
                self._on_added(entry.request, entry.visit, result is AddResult.NEW, known)

    async def _acknowledge(self, ended: list[tuple[LeasedSlot, Outcome]]) -> None:
        by_token: dict[str, tuple[LeasedSlot, list[Outcome]]] = {}
        for slot, outcome in ended:
            by_token.setdefault(slot.lease.token, (slot, []))[1].append(outcome)
        done = [
            Done(
                lease=slot.lease, outcomes=outcomes, finished_ago_seconds=slot.finished_ago_seconds,
                success=slot.success, response_seconds=slot.response_seconds, delay_seconds=slot.adaptive_seconds,
            )
            for slot, outcomes in by_token.values()
        ]  # fmt: skip
        acks = self._frontier.prepare(done)
        keys: dict[str, list[RecordKey]] = {}
        if self.feeds is not None:
            visits = [(slot.lease.token, outcome.number) for slot, outcome in ended]
            keys = await self.feeds.write(acks, visits)
        lost = await self._persist(lambda: self._frontier.commit(acks))
        if self.feeds is not None:
            # The crawl accepts nothing more: its visits count as lost.
            await self.feeds.commit(list(by_token) if lost is None else lost, keys)
        for token in lost or ():
            by_token[token][0].lost = True
        for slot, outcomes in by_token.values():
            for outcome in outcomes:
                slot.open.pop(outcome.number, None)

    async def _persist(self, call: Callable[[], Awaitable[_Reply]]) -> _Reply | None:
        """Retry until the store accepts a call. None if the crawl was stopped and accepts nothing more."""
        while True:
            try:
                return await call()
            except CrawlEnded as error:
                if not await self._on_ended():
                    log.warning("%s", error)
                    return None
            except ShoalError as error:
                log.error("%s Retrying.", error)
                await asyncio.sleep(_RETRY_SECONDS)
