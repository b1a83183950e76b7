"""What a process tells the frontier: new requests, then how visits ended, in this order and in few calls.

A visit ends only after the requests its callback yielded are admitted: they were put in before it. Calls are repeated
until the store has taken them; nothing waits for them but the visits that depend on them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from scrapy import Request

from shoal.errors import CrawlEnded, InvalidInput, ShoalError
from shoal.frontier import Done, Frontier
from shoal.model.visit import Outcome, Visit
from shoal.scrapy.leased_slot import LeasedSlot

log = logging.getLogger("shoal.scrapy")
# Waiting this long puts what a few pages yield into one call.
LINGER_SECONDS = 0.004
_AGAIN_SECONDS = 1.0
FULL = 5000
_Reply = TypeVar("_Reply")


class _New(NamedTuple):
    visit: Visit
    force: bool
    request: Request


class Outbox:
    def __init__(
        self, frontier: Frontier, crawl_id: str, *, on_added: Callable[[Request, Visit, bool], None],
        on_change: Callable[[], None], on_ended: Callable[[], Awaitable[bool]],
    ) -> None:  # fmt: skip
        self._frontier = frontier
        self._crawl = crawl_id
        self._on_added = on_added
        self._on_change = on_change
        self._on_ended = on_ended
        self._new: list[_New] = []
        self._ended: list[tuple[LeasedSlot, Outcome]] = []
        self._wake = asyncio.Event()
        self._sending = False
        # Longer while nobody waits for what is added.
        self.linger_seconds = LINGER_SECONDS
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._new) + len(self._ended) + self._sending

    @property
    def full(self) -> bool:
        return len(self._new) >= FULL

    def add(self, visit: Visit, force: bool, request: Request) -> None:
        self._new.append(_New(visit, force, request))
        self._stir()

    def end(self, place: LeasedSlot, outcome: Outcome) -> None:
        self._ended.append((place, outcome))
        self._stir()

    def _stir(self) -> None:
        self._idle.clear()
        self._wake.set()

    async def empty(self) -> None:
        """Wait until everything put in so far is in the store."""
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
                if ended:
                    await self._acknowledge(ended)
            finally:
                self._sending = False
            if not self._new and not self._ended:
                self._idle.set()
            self._on_change()

    async def _add(self, new: list[_New]) -> None:
        for force in (False, True):
            some = [one for one in new if one.force is force]
            if not some:
                continue
            try:
                added = await self._frontier.add(self._crawl, [one.visit for one in some], force=force)
            except InvalidInput as error:
                # One that cannot be stored costs the others nothing.
                if len(some) == 1:
                    log.error("%s", error)
                else:
                    for one in some:
                        await self._add([one])
                continue
            for one, letter in zip(some, added.letters, strict=True):
                self._on_added(one.request, one.visit, letter == "n")

    async def _acknowledge(self, ended: list[tuple[LeasedSlot, Outcome]]) -> None:
        by_token: dict[str, tuple[LeasedSlot, list[Outcome]]] = {}
        for place, outcome in ended:
            by_token.setdefault(place.lease.token, (place, []))[1].append(outcome)
        done = [
            Done(
                lease=place.lease, outcomes=outcomes, finished_ago_seconds=place.finished_ago_seconds,
                success=place.success, response_seconds=place.response_seconds, delay_seconds=place.adaptive_seconds,
            )
            for place, outcomes in by_token.values()
        ]  # fmt: skip
        acks = self._frontier.prepare(done)
        lost = await self._persist(lambda: self._frontier.commit(acks))
        for token in lost or ():
            by_token[token][0].lost = True
        for place, outcomes in by_token.values():
            for outcome in outcomes:
                place.open.pop(outcome.number, None)

    async def _persist(self, call: Callable[[], Awaitable[_Reply]]) -> _Reply | None:
        """Repeat until the store has it. None when the crawl was ended by somebody, so that it takes nothing more."""
        while True:
            try:
                return await call()
            except CrawlEnded as error:
                if not await self._on_ended():
                    log.warning("%s", error)
                    return None
            except ShoalError as error:
                log.error("%s Trying again.", error)
                await asyncio.sleep(_AGAIN_SECONDS)
