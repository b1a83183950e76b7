"""The frontier: every URL of every crawl, seen once, queued by host, given to one worker at a time, kept until the end.

State      all of it is in the store; this object has caches only, and any number of them work on one store.
Invariant  a visit is in exactly one place: waiting, leased, later, or counted as ended. A host has no more leases than
           places, and a place is leased again no sooner than the host's delay after its last request finished.
Clock      the store's, read once in each script. A worker's own clock measures durations only.
Failure    every call can be repeated: `add` is idempotent, `lease` and `acknowledge` carry a request number and get
           the reply that was lost. A worker that dies gives its visits back when its leases run out.

The calls a crawler makes, in their order: add, lease, (fetch), add the links, store the record, acknowledge.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import socket
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec

from shoal.errors import InvalidLimit, LeaseLost
from shoal.frontier.admission import Admission
from shoal.frontier.allowance import Allowance
from shoal.frontier.crawls import Crawls
from shoal.frontier.entry import unpack
from shoal.frontier.hosts import Hosts
from shoal.frontier.scripts import Status
from shoal.frontier.shards import Shards, mono
from shoal.frontier.watch import Watch
from shoal.model.lease import Lease
from shoal.model.visit import Added, Outcome, Visit
from shoal.store import Argument, Store

# An idle worker asks again after this time even if nobody wakes it.
LONGEST_SLEEP_SECONDS = 10.0
_WORKER = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.@-")


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What a holder reports of a lease: how visits ended, and how its last request went.

    `finished_ago_seconds` counts from the end of the last request to this call; None when none was made.
    `success` and `response_seconds` describe that request; `delay_seconds` is the host's delay by its response times.
    """

    lease: Lease
    outcomes: Sequence[Outcome]
    finished_ago_seconds: float | None = 0.0
    success: bool | None = None
    response_seconds: float | None = None
    delay_seconds: float | None = None


class Frontier:
    """One worker's door to the frontier. `async with await Frontier.open(...) as frontier: ...`"""

    def __init__(
        self, shards: Shards, *, worker: str = "", lease_seconds: float = 60.0, batch_seconds: float = 2.0,
        expiries: int = 10, blames: int = 3,
    ) -> None:  # fmt: skip
        worker = worker or f"{socket.gethostname().split('.')[0]}-{os.getpid()}-{secrets.token_hex(3)}"
        if not 1 <= len(worker) <= 64 or not _WORKER.issuperset(worker):
            raise InvalidLimit(f"A worker's name is {worker!r}: use 1 to 64 letters, digits and . _ @ -")
        if not 0.01 <= lease_seconds <= 86400:
            raise InvalidLimit(f"lease_seconds is {lease_seconds!r}: it must be a number from 0.01 to 86400.")
        self.worker = worker
        self.shards = shards
        self.crawls = Crawls(shards)
        self.hosts = Hosts(shards)
        self.epochs = 0
        self._admission = Admission(shards, self.crawls)
        self._allowance = Allowance(shards, self.crawls)
        self._watch = Watch(shards, worker)
        self._lease_ms = round(lease_seconds * 1000)
        # What a holder must be able to do after it stops trusting its lease: abort a transfer.
        self._margin_seconds = min(lease_seconds / 10, 5.0)
        self._batch_ms = round(batch_seconds * 1000)
        self._expiries = expiries
        self._blames = blames
        self._request_prefix = secrets.token_hex(6)
        self._requests = 0
        self._locks = [(asyncio.Lock(), asyncio.Lock()) for _ in range(shards.count)]
        self._turn = secrets.randbelow(shards.count)
        self._owned_store: Store | None = None

    @classmethod
    async def open(
        cls, url: str = "", *, folder: str = ".shoal", namespace: str = "shoal", shards: int | None = None,
        worker: str = "", lease_seconds: float = 60.0, batch_seconds: float = 2.0, expiries: int = 10, blames: int = 3,
        on_warning: Callable[[str], None] | None = None,
    ) -> Frontier:  # fmt: skip
        """Connect to a store (embedded in `folder` when `url` is empty) and join its frontier, or found one."""
        store = await Store.open(url, folder=folder, on_warning=on_warning)
        try:
            joined = await Shards.found(store, namespace, shards)
            frontier = cls(
                joined, worker=worker, lease_seconds=lease_seconds, batch_seconds=batch_seconds,
                expiries=expiries, blames=blames,
            )  # fmt: skip
        except BaseException:
            await store.close()
            raise
        frontier._owned_store = store
        return frontier

    async def add(self, crawl_id: str, visits: Iterable[Visit | str], *, force: bool = False) -> Added:
        """Admit URLs the crawl has not seen; with `force` also those it has.

        Every URL is checked before the first is sent: one that is not a URL raises and nothing is added.
        """
        return await self._admission.add(crawl_id, visits, force)

    async def lease(
        self, *, hosts: int = 16, visits: int = 8, spiders: Sequence[str] = ("",), shards: Sequence[int] | None = None,
        wait_seconds: float = 0.0,
    ) -> list[Lease]:  # fmt: skip
        """Take up to `hosts` hosts that may be asked now, each with up to `visits` visits that fit in a batch's time.

        An empty list means that every host is cooling down, busy, or that nothing waits: not that a crawl is over
        (`crawls.finished` says that). With `wait_seconds` it comes back as soon as there is something, at the latest
        after that time.
        """
        until = mono() + wait_seconds
        order = list(range(self.shards.count)) if shards is None else list(shards)
        self._turn = (self._turn + 1) % len(order)
        order = order[self._turn :] + order[: self._turn]
        waits = wait_seconds > 0
        woken: set[int] = set()
        while True:
            if woken:
                # Whoever called has something: it is taken before the others are asked.
                called = sorted(woken.intersection(order))
                leases, soonest_ms = await self._lease_round(called or order, hosts, visits, spiders, waits)
                if not leases and called:
                    leases, soonest_ms = await self._lease_round(order, hosts, visits, spiders, waits)
            else:
                leases, soonest_ms = await self._lease_round(order, hosts, visits, spiders, waits)
            left = until - mono()
            if leases or left <= 0:
                return leases
            sleep = left if soonest_ms < 0 else min(left, soonest_ms / 1000 + 0.0005)
            woken = await self._watch.sleep(min(sleep, LONGEST_SLEEP_SECONDS))
            if not woken and sleep == left:
                # Nobody called and nothing is due: to ask once more would only be polling.
                return []

    async def renew(self, leases: Sequence[Lease], *, visits: int = 0) -> list[Lease | None]:
        """Hold leases for another full length; with `visits`, top each up to that many unacknowledged ones.

        In the order given: the lease with its new deadline and, as its visits, only those that are new; None for
        one that is lost.
        """
        by_shard: dict[int, list[int]] = {}
        for index, lease in enumerate(leases):
            by_shard.setdefault(lease.shard, []).append(index)
        args: dict[int, list[Argument]] = {}
        for shard, indexes in by_shard.items():
            args[shard] = [self._lease_ms, self._batch_ms]
            for index in indexes:
                known = _known(leases[index])
                args[shard] += [leases[index].token, known, visits]
        called = mono()
        replies = await self.shards.call_all("renew", args, replicated=True)
        while behind := {shard: args[shard] for shard, reply in replies.items() if reply[0] != Status.OK}:
            for shard in behind:
                await self._turn_epoch(shard, replies[shard])
            replies |= await self.shards.call_all("renew", behind, replicated=True)
        renewed: list[Lease | None] = [None] * len(leases)
        for shard, indexes in by_shard.items():
            for index, flat in zip(indexes, replies[shard][2:], strict=True):
                if flat != Status.LOST:
                    old = leases[index]
                    fresh = [
                        await self._visit(int(flat[i]), old.host, *flat[i + 1 : i + 4]) for i in range(0, len(flat), 4)
                    ]
                    known = max([_known(old), *(visit.number for visit in fresh)])
                    renewed[index] = msgspec.structs.replace(
                        old, trusted_until_mono=self._trusted_until(called), visits=tuple(fresh), known=known
                    )
        return renewed

    async def acknowledge(
        self, lease: Lease, outcomes: Sequence[Outcome], *, finished_ago_seconds: float | None = 0.0,
        success: bool | None = None, response_seconds: float | None = None, delay_seconds: float | None = None,
    ) -> None:  # fmt: skip
        """Say how visits of one lease ended. With the last of them the host's place is free again.

        Raises LeaseLost when the lease is over: nothing was counted, somebody else makes these visits again.
        """
        await self.acknowledge_all(
            [Done(
                lease=lease, outcomes=outcomes, finished_ago_seconds=finished_ago_seconds, success=success,
                response_seconds=response_seconds, delay_seconds=delay_seconds,
            )]
        )  # fmt: skip

    async def acknowledge_all(self, done: Sequence[Done]) -> None:
        """The same for many leases, in one call a shard. LeaseLost comes after all others were counted."""
        called = mono()
        by_shard: dict[int, list[Done]] = {}
        for one in done:
            by_shard.setdefault(one.lease.shard, []).append(one)
        replies = await asyncio.gather(*(self._acknowledge(shard, part, called) for shard, part in by_shard.items()))
        lost = [token for reply in replies for token in reply]
        if lost:
            raise LeaseLost(
                f"{len(lost)} leases of worker {self.worker} are over, first {lost[0]}: their visits are made again."
            )

    async def release(
        self, leases: Sequence[Lease], *, keep: Iterable[Visit] = (), finished_ago_seconds: float | None = None
    ) -> None:
        """Give places back now: visits not in `keep` wait again at the front, those in `keep` stay to be acknowledged.

        Say in `finished_ago_seconds` when the last request finished, None when none was made.
        """
        ago = "" if finished_ago_seconds is None else math.floor(finished_ago_seconds * 1000)
        kept = list(keep)
        args: dict[int, list[Argument]] = {}
        for lease in leases:
            numbers = [visit.number for visit in kept if visit in lease.visits]
            part = args.setdefault(lease.shard, [self._blames])
            part += [lease.token, ago, 0, len(numbers), *numbers]
        await self.shards.call_all("release", args, replicated=True)

    async def reap(self, worker: str, *, token: str = "", number: int = 0) -> int:
        """Take back at once what a dead worker held; blame the visit it was parsing, if that is known."""
        reaped = 0
        for shard in range(self.shards.count):
            rank = 0
            while rank >= 0:
                args = (worker, rank, token, number, self._blames, self._expiries)
                _, _, taken, rank = await self.shards.call("reap", shard, args, replicated=True)
                reaped += taken
        return reaped

    async def close(self) -> None:
        await self._watch.close()
        if self._owned_store is not None:
            await self._owned_store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _lease_round(
        self, order: list[int], hosts: int, visits: int, spiders: Sequence[str], waits: bool
    ) -> tuple[list[Lease], int]:
        """First one shard for all hosts wanted, which is enough when much is ready; then all the others at once."""
        leases, soonest, dry = await self._lease(order[0], hosts, visits, spiders, waits)
        left = hosts - len(leases)
        if left > 0 and len(order) > 1:
            share = -(-left // (len(order) - 1))
            rounds = await asyncio.gather(
                *(self._lease(s, share, visits, spiders, waits) for s in order[1:]), return_exceptions=True
            )
            # What one shard gave is not dropped because another cannot answer.
            errors = [one for one in rounds if isinstance(one, BaseException)]
            if errors and not leases and all(isinstance(one, BaseException) or not one[0] for one in rounds):
                raise errors[0]
            for more, sooner, thirsty in (one for one in rounds if not isinstance(one, BaseException)):
                leases += more
                dry |= thirsty
                soonest = sooner if soonest < 0 else min(soonest, sooner) if sooner >= 0 else soonest
        for key in dry:
            await self._allowance.settle(key)
        if dry and not leases:
            return await self._lease_round(order, hosts, visits, spiders, waits)
        return leases, soonest

    async def _lease(
        self, shard: int, hosts: int, visits: int, spiders: Sequence[str], waits: bool
    ) -> tuple[list[Lease], int, set[str]]:
        async with self._locks[shard][0]:
            request = self._request()
            while True:
                args = (
                    self.worker, request, hosts, visits, self._lease_ms, self._batch_ms, self._expiries,
                    int(waits), self._watch.expected_ms(shard), *spiders,
                )  # fmt: skip
                called = mono()
                reply = await self.shards.call("lease", shard, args, replicated=True)
                if reply[0] == Status.OK:
                    break
                await self._turn_epoch(shard, reply)
        self._watch.note(shard, reply[1], called)
        trusted = self._trusted_until(called)
        leases = []
        for i in range(4, len(reply), 5):
            token, host_bytes, delay_ms, epoch, flat = reply[i : i + 5]
            host = host_bytes.decode()
            made = [await self._visit(n // 3 + 1, host, *flat[n : n + 3]) for n in range(0, len(flat), 3)]
            leases.append(Lease(token.decode(), shard, host, delay_ms / 1000, epoch, trusted, tuple(made)))
        return leases, reply[2], {key.decode() for key in reply[3]}

    async def _visit(self, number: int, host: str, key: bytes, priority: bytes, entry: bytes) -> Visit:
        crawl = await self.crawls.by_key(key.decode())
        return unpack(entry, host=host, crawl=crawl.id, priority=int(priority), number=number)

    async def _acknowledge(self, shard: int, done: list[Done], called: float) -> list[str]:
        async with self._locks[shard][1]:
            waited = mono() - called
            args: list[Argument] = [self.worker, self._request()]
            for one in done:
                ago = one.finished_ago_seconds
                args += [
                    one.lease.token, one.lease.host, "" if ago is None else math.floor((ago + waited) * 1000),
                    "" if one.success is None else int(one.success),
                    "" if one.response_seconds is None else _ms(one.response_seconds),
                    "" if one.delay_seconds is None else _ms(one.delay_seconds), len(one.outcomes),
                ]  # fmt: skip
                for outcome in one.outcomes:
                    args += [outcome.number, outcome.code, outcome.reason[:64], _ms(outcome.seconds)]
            while (reply := await self.shards.call("acknowledge", shard, args, replicated=True))[0] != Status.OK:
                await self._turn_epoch(shard, reply)
        return [token.decode() for token in reply[2:]]

    async def _turn_epoch(self, shard: int, reply: list[Any]) -> None:
        if await self._watch.turn_epoch(shard, reply, self._lease_ms):
            self.epochs += 1

    def _request(self) -> str:
        """A name for one call: the same when it is repeated, never that of another call."""
        self._requests += 1
        return f"{self._request_prefix}{self._requests:x}"

    def _trusted_until(self, called: float) -> float:
        return called + self._lease_ms / 1000 - self._margin_seconds


def _known(lease: Lease) -> int:
    """The number of the newest visit the holder has seen."""
    return max([lease.known, *(visit.number for visit in lease.visits)])


def _ms(seconds: float) -> int:
    if not 0 <= seconds < 10**10:
        raise InvalidLimit(f"A time of {seconds!r} seconds cannot be meant: it must be from 0 to 10**10.")
    return round(seconds * 1000)
