"""Leasing: hosts of the shards are leased to one worker, and renewed for as long as it needs them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import msgspec

from shoal.errors import InvalidLimit, StoreCorrupt, StoreNotReady, StoreUnavailable, UnknownCrawl
from shoal.frontier.crawls import Crawls
from shoal.frontier.epochs import mono
from shoal.frontier.lease_calls import LeaseReply, LeaseRequest, LeaseTerms
from shoal.frontier.page_budget import PageBudget
from shoal.frontier.scripts import Status
from shoal.frontier.shards import SLOW_SECONDS, Shards
from shoal.frontier.visit_codec import unpack
from shoal.frontier.wakeups import Wakeups
from shoal.model import validation
from shoal.model.crawl import Crawl
from shoal.model.lease import Lease
from shoal.model.visit import OutcomeCode, Visit
from shoal.store import Argument

# An idle worker polls again after this time even if no script wakes it.
LONGEST_SLEEP_SECONDS = 10.0


def _when(soonest_ms: int) -> float:
    """The local time at which a shard that has just replied this may have work."""
    return mono() + soonest_ms / 1000 + 0.0005 if soonest_ms >= 0 else float("inf")


class Leasing:
    def __init__(self, shards: Shards, crawls: Crawls, wakeups: Wakeups, terms: LeaseTerms) -> None:
        self._shards = shards
        self._crawls = crawls
        self._page_budget = PageBudget(shards, crawls)
        self._epochs = shards.epochs
        self._wakeups = wakeups
        self._terms = terms
        self._locks: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        # Calls without a reply so far, with their shards and requests. The other shards are called meanwhile.
        self._late: dict[asyncio.Future[LeaseReply], tuple[int, LeaseRequest]] = {}
        # Shards of such calls that woke this worker: the wake-up may be newer than the reply.
        self._woken_late: set[int] = set()
        # Leases of such calls, for the next caller that has their spiders.
        self._spare: list[tuple[tuple[str, ...], Lease]] = []
        self._distributing: dict[str, asyncio.Future[None]] = {}
        # Crawls whose records are being read, by key, and until when callers wait for that.
        self._reading: dict[str, tuple[asyncio.Future[Crawl], float]] = {}
        # Until when no host is leased from a shard: this worker could not visit the hosts that it leased there.
        self._resting: dict[int, float] = {}
        self.turn = 0
        self.hurry = asyncio.Event()

    async def lease(self, request: LeaseRequest, shards: Sequence[int] | None, wait_seconds: float) -> list[Lease]:
        self._epochs.lease_ms = max(self._epochs.lease_ms, self._terms.lease_ms)
        wait_seconds = validation.number("wait_seconds", wait_seconds, 0, 10**9)
        until = mono() + min(wait_seconds, LONGEST_SLEEP_SECONDS)
        # When each shard may have work. It is not called earlier: idle workers must not keep a store busy.
        due = dict.fromkeys(self._order(shards), 0.0)
        while True:
            leases = await self._round(due, request)
            if leases or mono() >= until or self.hurry.is_set():
                return leases
            await self._sleep(until, due)
            if min(due.values()) > mono():
                # No shard woke this worker, and none is due: another call would only be polling.
                return []

    async def _sleep(self, until: float, due: dict[int, float]) -> None:
        """Sleep until a shard is due. A shard that wakes this worker is due, too."""
        hurry = asyncio.ensure_future(self.hurry.wait())
        sleeping = self._fall_asleep(until)
        try:
            while not hurry.done() and (next_due := min(due.values())) > mono():
                events: list[asyncio.Future[Any]] = [sleeping, hurry, *self._late]
                timeout = next_due - mono() if next_due < until else None
                await asyncio.wait(events, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                woken: set[int] = set()
                if sleeping.done():
                    woken = sleeping.result()
                    if not woken:
                        return
                    sleeping = self._fall_asleep(until)
                late = {shard for shard, _ in self._late.values()}
                for shard in due:
                    if not woken.isdisjoint((shard, -1)):
                        if shard in late:
                            self._woken_late.add(shard)
                        else:
                            due[shard] = 0.0
                self._note_late(due)
        finally:
            sleeping.cancel()
            hurry.cancel()

    def _fall_asleep(self, until: float) -> asyncio.Future[set[int]]:
        return asyncio.ensure_future(self._wakeups.sleep(max(0.0, until - mono())))

    def _note_late(self, due: dict[int, float]) -> None:
        """Note late replies that have arrived. A shard that has nothing to lease is not called again now."""
        for call, (shard, _) in list(self._late.items()):
            if call.done():
                reply = call.exception() or call.result()
                if isinstance(reply, BaseException) or reply.leases or reply.dry or shard in self._woken_late:
                    due[shard] = 0.0
                else:
                    del self._late[call]
                    due[shard] = _when(reply.soonest_ms)

    def _order(self, shards: Sequence[int] | None) -> list[int]:
        if shards is None:
            order = list(range(self._shards.count))
        else:
            order = [validation.whole("A shard's number", shard, 0, self._shards.count - 1) for shard in shards]
            if not order:
                raise InvalidLimit("shards is empty: name at least one, or leave it out for all.")
        self.turn = (self.turn + 1) % len(order)
        return order[self.turn :] + order[: self.turn]

    async def _round(self, due: dict[int, float], request: LeaseRequest) -> list[Lease]:
        """First one shard for all requested hosts, which is enough when many are ready; then the others together.

        Only shards that are due are called, and then it is known when they are due again. A shard that does not
        respond delays the others once, by SLOW_SECONDS. If no shard responds, its error is raised.
        """
        dry: set[str] = set()
        errors = self._take_late(due, dry)
        leases = self._take_spare(request)
        self._resting = {shard: until for shard, until in self._resting.items() if until > mono()}
        due.update((shard, until) for shard, until in self._resting.items() if shard in due)
        due.update((shard, float("inf")) for shard, _ in self._late.values() if shard in due)
        called = others = [shard for shard, due_mono in due.items() if due_mono <= mono()]
        self._woken_late.difference_update(others)
        answered = 0
        first = True
        while others and (left := request.hosts - len(leases)) > 0:
            # As many shards as hosts are requested, or all of them; together they return no more than that.
            count = 1 if first else left
            first = False
            chosen, others = others[:count], others[count:]
            least, more = divmod(left, len(chosen))
            requests = {
                shard: msgspec.structs.replace(request, hosts=least + (index < more))
                for index, shard in enumerate(chosen)
            }
            for shard, reply in (await self._lease_from_many(requests)).items():
                if reply is None:
                    due[shard] = float("inf")
                elif isinstance(reply, LeaseReply):
                    answered += 1
                    leases += reply.leases
                    dry |= reply.dry
                    due[shard] = _when(reply.soonest_ms)
                else:
                    errors.append(reply)
                    due[shard] = mono() + SLOW_SECONDS
        if not leases:
            all_unavailable = not answered and len(self._shards.unavailable) == self._shards.count
            for error in errors:
                if all_unavailable or not isinstance(error, StoreUnavailable):
                    raise error
            if all_unavailable and self._late:
                # There is no other shard to lease from.
                await asyncio.wait(self._late, return_when=asyncio.FIRST_COMPLETED)
                self._note_late(due)
                errors = self._take_late(due, dry)
                leases += self._take_spare(request)
                if errors and not leases:
                    raise errors[0]
        if await self._distribute(dry) and not leases:
            due.update(dict.fromkeys(called, 0.0))
            return await self._round(due, request)
        return leases

    async def _lease_from_many(self, requests: dict[int, LeaseRequest]) -> dict[int, LeaseReply | BaseException | None]:
        """The replies of shards that respond within SLOW_SECONDS; None for others, whose calls continue."""
        calls = {shard: asyncio.ensure_future(self._lease_from(shard, request)) for shard, request in requests.items()}
        try:
            await asyncio.wait(calls.values(), timeout=SLOW_SECONDS)
        except asyncio.CancelledError:
            for call in calls.values():
                call.cancel()
            await asyncio.gather(*calls.values(), return_exceptions=True)
            raise
        self._late |= {call: (shard, requests[shard]) for shard, call in calls.items() if not call.done()}
        return {shard: call.exception() or call.result() if call.done() else None for shard, call in calls.items()}

    def _take_late(self, due: dict[int, float], dry: set[str]) -> list[BaseException]:
        """Take the replies of late calls that have arrived: their shards are called again. Returns the errors."""
        errors = []
        for call, (shard, request) in list(self._late.items()):
            if call.done():
                del self._late[call]
                if shard in due:
                    due[shard] = 0.0
                if (error := call.exception()) is not None:
                    errors.append(error)
                else:
                    reply = call.result()
                    dry |= reply.dry
                    self._spare += [(request.spiders, lease) for lease in reply.leases]
        return errors

    def _take_spare(self, request: LeaseRequest) -> list[Lease]:
        """Late leases that fit the request, from any shard. A lease that is not used expires."""
        self._spare = [(spiders, lease) for spiders, lease in self._spare if lease.trusted_until_mono > mono()]
        fitting = [spare for spare in self._spare if spare[0] == request.spiders]
        taken = fitting[: request.hosts]
        self._spare = [spare for spare in self._spare if spare not in taken]
        return [lease for _, lease in taken]

    async def _distribute(self, keys: set[str]) -> bool:
        """Give pages to shards that need some; returns whether that was done.

        A crawl whose home shard does not respond is skipped: its shards report once a second that they need pages.
        """
        self._distributing = {key: call for key, call in self._distributing.items() if not call.done()}
        for key in keys - self._distributing.keys():
            self._distributing[key] = asyncio.ensure_future(self._page_budget.distribute(key))
        calls = [self._distributing[key] for key in keys]
        if calls:
            await asyncio.wait(calls, timeout=SLOW_SECONDS)
        errors = [call.exception() for call in calls if call.done()]
        for error in errors:
            if error is not None and not isinstance(error, StoreNotReady):
                raise error
        return None in errors

    async def close(self) -> None:
        """Cancel the calls without a reply. Their leases expire."""
        calls: list[asyncio.Future[Any]] = [*self._late, *self._distributing.values()]
        calls += [call for call, _ in self._reading.values()]
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    async def _lease_from(self, shard: int, request: LeaseRequest) -> LeaseReply:
        terms = self._terms
        async with self._locks[shard]:
            args: tuple[Argument, ...] = (
                terms.worker, self._shards.request(), request.hosts, request.visits, terms.lease_ms, terms.batch_ms,
                terms.expiries, int(request.sleeps), *request.spiders,
            )  # fmt: skip
            called = mono()
            reply = await self._shards.call("lease", shard, args, replicated=True, waits=False)
        if reply[0] == Status.HELD:
            return LeaseReply([], reply[1], set())
        self._epochs.note(shard, reply[4], reply[1], called)
        trusted = terms.trusted_until(called)
        leases = []
        unread = await self._unread({key for i in range(11, len(reply), 7) for key in reply[i][::3]})
        if unread:
            reply = await self._give_back(shard, reply, unread)
        for i in range(5, len(reply), 7):
            token, host_bytes, delay_ms, epoch, robots, ahead_ms, flat = reply[i : i + 7]
            self._epochs.answered(shard, token.partition(b".")[0])
            lease = Lease(
                token.decode(), shard, host_bytes.decode(), delay_ms / 1000, epoch, trusted, (), robots_version=robots,
                ahead_seconds=ahead_ms / 1000,
            )  # fmt: skip
            numbered = ((n // 3 + 1, *flat[n : n + 3]) for n in range(0, len(flat), 3))
            visits = await self._visits(lease, numbered)
            if visits:
                leases.append(msgspec.structs.replace(lease, visits=tuple(visits)))
        return LeaseReply(leases, reply[2], {key.decode() for key in reply[3]})

    async def _unread(self, keys: Collection[bytes]) -> set[bytes]:
        """The crawls whose records cannot be read now: their home shards do not respond.

        Callers that need a record at the same time wait for it together, up to SLOW_SECONDS. Then its call continues.
        """
        # A corrupt key belongs to no crawl: `_visits` handles it.
        unknown = {raw: key for raw in keys if not self._crawls.cached(key := raw.decode(errors="replace"))}
        if not unknown:
            return set()
        now = mono()
        for key in unknown.values():
            if key not in self._reading:
                self._reading[key] = (asyncio.ensure_future(self._crawls.by_key(key)), now + SLOW_SECONDS)
        calls = {raw: self._reading[key] for raw, key in unknown.items()}
        if (left := max(until for _, until in calls.values()) - now) > 0:
            await asyncio.wait([call for call, _ in calls.values()], timeout=left)
        unread = set()
        for raw, (call, _) in calls.items():
            if call.done():
                self._reading.pop(unknown[raw], None)
            if not call.done() or isinstance(call.exception(), StoreNotReady):
                unread.add(raw)
        return unread

    async def _give_back(self, shard: int, reply: list[Any], unread: set[bytes]) -> list[Any]:
        """Release the leases with visits of crawls that cannot be read: another worker may know these crawls.

        Returns the reply without them. The shard is skipped for SLOW_SECONDS, or the same hosts would be leased again.
        """
        kept = reply[:5]
        tokens: list[Argument] = [self._terms.blames]
        for i in range(5, len(reply), 7):
            if unread.isdisjoint(reply[i + 6][::3]):
                kept += reply[i : i + 7]
            else:
                tokens += [reply[i], "", 0, 0]
        self._resting[shard] = mono() + SLOW_SECONDS
        await self._shards.call("release", shard, tokens, replicated=True)
        return kept

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
        if visits and await self._unread(set(_crawl_keys(replies))):
            raise StoreUnavailable("The home shard of a crawl does not respond, so its record cannot be read; retry.")
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
        visits = []
        for number, key, priority, entry in numbered:
            try:
                crawl = await self._crawls.by_key(key.decode())
                visit = unpack(entry, host=lease.host, crawl=crawl.id, priority=int(priority), number=number)
            except (StoreCorrupt, UnknownCrawl, ValueError):
                # Also a crawl whose home shard has lost its creation: it is unknown how to visit its pages.
                corrupt: tuple[Argument, ...] = (number, OutcomeCode.FAILED.value, "corrupt entry", 0, "")
                block = (lease.token, lease.host, "", "", "", "", 1, *corrupt)
                args = (self._terms.worker + ".corrupt", self._shards.request(), 0, *block)
                await self._shards.call("acknowledge", lease.shard, args, replicated=True)
            else:
                visits.append(visit)
        return visits


def _crawl_keys(replies: dict[int, list[Any]]) -> Iterator[bytes]:
    """The crawls of the visits that renewals have added."""
    for reply in replies.values():
        for flat in reply[2:]:
            if flat != Status.LOST:
                yield from flat[3::4]


def _known(lease: Lease) -> int:
    """The number of the newest visit the holder has seen."""
    return max([lease.known, *(visit.number for visit in lease.visits)])
