"""Leasing: hosts of the shards are leased to one worker, and renewed for as long as it needs them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from shoal.errors import InvalidLimit, ShoalError, StoreCorrupt
from shoal.frontier.crawls import Crawls
from shoal.frontier.epochs import mono
from shoal.frontier.page_budget import PageBudget
from shoal.frontier.scripts import Status
from shoal.frontier.shards import Shards
from shoal.frontier.visit_codec import unpack
from shoal.frontier.wakeups import Wakeups
from shoal.model import validation
from shoal.model.lease import Lease
from shoal.model.visit import OutcomeCode, Visit
from shoal.store import Argument

# An idle worker polls again after this time even if no script wakes it.
LONGEST_SLEEP_SECONDS = 10.0


class LeaseTerms(msgspec.Struct, frozen=True):
    """What a worker's leases have in common."""

    worker: str
    lease_seconds: float
    batch_seconds: float
    expiries: int
    blames: int

    def check(self) -> None:
        validation.worker(self.worker)
        validation.number("lease_seconds", self.lease_seconds, 0.01, 86400)
        validation.number("batch_seconds", self.batch_seconds, 0, 3600)
        validation.whole("expiries", self.expiries, 1, 255)
        validation.whole("blames", self.blames, 1, 255)

    @property
    def lease_ms(self) -> int:
        return round(self.lease_seconds * 1000)

    @property
    def batch_ms(self) -> int:
        return round(self.batch_seconds * 1000)

    def trusted_until(self, called_mono: float) -> float:
        """The deadline, minus the time it takes to abort a transfer."""
        return called_mono + self.lease_seconds - min(self.lease_seconds / 10, 5.0)


class LeaseRequest(msgspec.Struct, frozen=True):
    """The arguments of one call of `lease`."""

    hosts: int
    visits: int
    spiders: tuple[str, ...]
    sleeps: bool


class LeaseReply(msgspec.Struct):
    """The replies of shards: leases, ms until more may be ready (-1 never), crawls that need page budget."""

    leases: list[Lease]
    soonest_ms: int
    dry: set[str]

    def join(self, other: LeaseReply) -> None:
        self.leases += other.leases
        self.dry |= other.dry
        known = [ms for ms in (self.soonest_ms, other.soonest_ms) if ms >= 0]
        self.soonest_ms = min(known, default=-1)


class Leasing:
    def __init__(self, shards: Shards, crawls: Crawls, wakeups: Wakeups, terms: LeaseTerms) -> None:
        self._shards = shards
        self._crawls = crawls
        self._allowance = PageBudget(shards, crawls)
        self._epochs = shards.epochs
        self._wakeups = wakeups
        self._terms = terms
        self._locks: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.turn = 0
        self.hurry = asyncio.Event()

    async def lease(self, wanted: LeaseRequest, shards: Sequence[int] | None, wait_seconds: float) -> list[Lease]:
        self._epochs.lease_ms = max(self._epochs.lease_ms, self._terms.lease_ms)
        until = mono() + validation.number("wait_seconds", wait_seconds, 0, 10**9)
        order = self._order(shards)
        first = order
        while True:
            given = await self._round(first, wanted)
            if not given.leases and first is not order:
                given = await self._round(order, wanted)
            left = until - mono()
            if given.leases or left <= 0 or self.hurry.is_set():
                return given.leases
            sleep = left if given.soonest_ms < 0 else min(left, given.soonest_ms / 1000 + 0.0005)
            woken = await self._sleep(min(sleep, LONGEST_SLEEP_SECONDS))
            if not woken and sleep == left:
                # No shard woke us and nothing is due: another call would only be polling.
                return []
            # The shards that woke us have work: lease from them first.
            first = [shard for shard in order if shard in woken] or order

    async def _sleep(self, seconds: float) -> set[int]:
        sleeping = asyncio.ensure_future(self._wakeups.sleep(seconds))
        hurry = asyncio.ensure_future(self.hurry.wait())
        try:
            await asyncio.wait((sleeping, hurry), return_when=asyncio.FIRST_COMPLETED)
            return sleeping.result() if sleeping.done() else set()
        finally:
            sleeping.cancel()
            hurry.cancel()

    def _order(self, shards: Sequence[int] | None) -> list[int]:
        if shards is None:
            order = list(range(self._shards.count))
        else:
            order = [validation.whole("A shard's number", shard, 0, self._shards.count - 1) for shard in shards]
            if not order:
                raise InvalidLimit("shards is empty: name at least one, or leave it out for all.")
        self.turn = (self.turn + 1) % len(order)
        return order[self.turn :] + order[: self.turn]

    async def _round(self, order: list[int], wanted: LeaseRequest) -> LeaseReply:
        """First one shard for all hosts wanted, which is enough when much is ready; then the others together.

        What one shard gives is not dropped because another cannot answer.
        """
        errors: list[BaseException] = []
        given = LeaseReply([], -1, set())
        try:
            given = await self._ask(order[0], wanted)
        except ShoalError as error:
            errors.append(error)
        others = order[1:]
        while others and (left := wanted.hosts - len(given.leases)) > 0:
            # As many shards as hosts are requested, or all of them; together they return no more than that.
            asked, others = others[:left], others[left:]
            least, more = divmod(left, len(asked))
            calls = (
                self._ask(shard, msgspec.structs.replace(wanted, hosts=least + (place < more)))
                for place, shard in enumerate(asked)
            )
            for one in await asyncio.gather(*calls, return_exceptions=True):
                if isinstance(one, BaseException):
                    errors.append(one)
                else:
                    given.join(one)
        if errors and not given.leases:
            raise errors[0]
        for key in given.dry:
            await self._allowance.distribute(key)
        if given.dry and not given.leases:
            return await self._round(order, wanted)
        return given

    async def _ask(self, shard: int, wanted: LeaseRequest) -> LeaseReply:
        terms = self._terms
        async with self._locks[shard]:
            args: tuple[Argument, ...] = (
                terms.worker, self._shards.request(), wanted.hosts, wanted.visits, terms.lease_ms, terms.batch_ms,
                terms.expiries, int(wanted.sleeps), *wanted.spiders,
            )  # fmt: skip
            called = mono()
            reply = await self._shards.call("lease", shard, args, replicated=True, waits=False)
        if reply[0] == Status.HELD:
            return LeaseReply([], reply[1], set())
        self._epochs.note(shard, reply[4], reply[1], called)
        trusted = terms.trusted_until(called)
        leases = []
        for i in range(5, len(reply), 7):
            token, host_bytes, delay_ms, epoch, robots, ahead_ms, flat = reply[i : i + 7]
            self._epochs.answered(shard, token.partition(b".")[0])
            lease = Lease(
                token.decode(), shard, host_bytes.decode(), delay_ms / 1000, epoch, trusted, (), robots_version=robots,
                ahead_seconds=ahead_ms / 1000,
            )  # fmt: skip
            numbered = ((n // 3 + 1, *flat[n : n + 3]) for n in range(0, len(flat), 3))
            made = await self._visits(lease, numbered)
            if made:
                leases.append(msgspec.structs.replace(lease, visits=tuple(made)))
        return LeaseReply(leases, reply[2], {key.decode() for key in reply[3]})

    async def renew(self, leases: Sequence[Lease], visits: int) -> list[Lease | None]:
        validation.whole("visits", visits, 0, 1000)
        terms = self._terms
        by_shard: dict[int, list[int]] = {}
        for index, lease in enumerate(leases):
            by_shard.setdefault(lease.shard, []).append(index)
        args: dict[int, list[Argument]] = {}
        for shard, indexes in by_shard.items():
            args[shard] = [terms.lease_ms, terms.batch_ms]
            for index in indexes:
                args[shard] += [leases[index].token, _known(leases[index]), visits]
        called = mono()
        replies = await self._shards.call_all("renew", args, replicated=True)
        renewed: list[Lease | None] = [None] * len(leases)
        for shard, indexes in by_shard.items():
            for index, flat in zip(indexes, replies[shard][2:], strict=True):
                if flat != Status.LOST:
                    old = leases[index]
                    numbered = ((int(flat[i]), *flat[i + 1 : i + 4]) for i in range(2, len(flat), 4))
                    fresh = tuple(await self._visits(old, numbered))
                    known = max([_known(old), *(visit.number for visit in fresh)])
                    renewed[index] = msgspec.structs.replace(
                        old,
                        trusted_until_mono=terms.trusted_until(called),
                        visits=fresh,
                        known=known,
                        robots_version=int(flat[0]),
                        ahead_seconds=int(flat[1]) / 1000,
                    )
        return renewed

    async def _visits(self, lease: Lease, numbered: Any) -> list[Visit]:
        """The visits of a reply. A corrupt entry is acknowledged as failed and does not affect the others."""
        made = []
        for number, key, priority, entry in numbered:
            try:
                crawl = await self._crawls.by_key(key.decode())
                visit = unpack(entry, host=lease.host, crawl=crawl.id, priority=int(priority), number=number)
            except (StoreCorrupt, ValueError):
                corrupt: tuple[Argument, ...] = (number, OutcomeCode.FAILED.value, "corrupt entry", 0)
                block = (lease.token, lease.host, "", "", "", "", 1, *corrupt)
                args = (self._terms.worker + ".corrupt", self._shards.request(), 0, *block)
                await self._shards.call("acknowledge", lease.shard, args, replicated=True)
            else:
                made.append(visit)
        return made


def _known(lease: Lease) -> int:
    """The number of the newest visit the holder has seen."""
    return max([lease.known, *(visit.number for visit in lease.visits)])
