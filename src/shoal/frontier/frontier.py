"""The frontier: every URL of every crawl, deduplicated, queued by host and leased to one worker at a time.

State      all of it is in the store. This object only caches, and any number of them work on one store.
Invariant  a visit is in exactly one place: waiting, leased, later, or counted as ended. A host has no more leases than
           slots, and a slot is leased again no sooner than the host's delay after its last request finished.
Clock      the store's, read once in each script. A worker's own clock measures durations only.
Failure    every call can be repeated: `add` is idempotent; `lease` and `acknowledge` carry a request number and get
           the lost reply. The visits of a worker that died are leased again when its leases expire.

A crawler calls, in this order: add, lease, (fetch), add the links, store the record, acknowledge.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from types import TracebackType
from typing import Self

from shoal.errors import InvalidLimit, LeaseLost
from shoal.frontier.acknowledgement import AckBatch, Acknowledgement, Done, passed_ms
from shoal.frontier.admission import Admission, Confirmed
from shoal.frontier.audit_trail import AuditTrail
from shoal.frontier.calendar import Calendar
from shoal.frontier.cookie_jars import CookieJars
from shoal.frontier.crawls import Crawls
from shoal.frontier.epochs import mono
from shoal.frontier.history import CountHistory
from shoal.frontier.hosts import Hosts
from shoal.frontier.journal import LinkJournal
from shoal.frontier.lease_calls import LeaseRequest, LeaseTerms
from shoal.frontier.leasing import Leasing
from shoal.frontier.robots_cache import RobotsCache
from shoal.frontier.session_table import SessionTable
from shoal.frontier.shards import Shards
from shoal.frontier.signals import Signals
from shoal.frontier.validators import Validators
from shoal.frontier.visit_codec import LARGEST_EXTENSION_BYTES, MAX_EXTENSION_BYTES
from shoal.frontier.wakeups import Wakeups
from shoal.frontier.workers import Workers
from shoal.model import validation
from shoal.model.lease import Lease
from shoal.model.visit import Added, Outcome, Visit
from shoal.politeness.backoff import DEFAULT_BACK_OFF, BackOff
from shoal.settings import Settings
from shoal.store import Argument, Store


class Frontier:
    """One worker's access to the frontier. `async with await Frontier.open(...) as frontier: ...`"""

    def __init__(
        self, shards: Shards, *, worker: str = "", lease_seconds: float = 60.0, batch_seconds: float = 2.0,
        expiries: int = 10, blames: int = 3, host_failures: int = 10, back_off: BackOff = DEFAULT_BACK_OFF,
    ) -> None:  # fmt: skip
        if worker == "":
            worker = f"{socket.gethostname().split('.')[0][:32]}-{os.getpid()}-{secrets.token_hex(3)}"
        self._terms = LeaseTerms(worker, lease_seconds, batch_seconds, expiries, blames)
        self._terms.check()
        self.worker = worker
        self.shards = shards
        self.crawls = Crawls(shards)
        self.calendar = Calendar(shards, self.crawls)
        self.signals = Signals(shards, self.crawls)
        self.hosts = Hosts(shards, host_failures, back_off)
        self.robots = RobotsCache(shards, self.hosts)
        self.validators = Validators(shards, self.crawls)
        self.cookie_jars = CookieJars(shards, self.crawls)
        self.workers = Workers(shards, worker)
        self.history = CountHistory(shards)
        self.audit_trail = AuditTrail(shards)
        self.sessions = SessionTable(shards)
        self._wakeups = Wakeups(shards, worker)
        self._admission = Admission(shards, self.crawls)
        self._leasing = Leasing(shards, self.crawls, self._wakeups, self._terms)
        self._journal = LinkJournal(shards, self.crawls, self._admission)
        self.crawls.counts.replay_links = self._journal.replay
        self._acknowledgement = Acknowledgement(shards, self._journal, worker)
        self._owned_store: Store | None = None

    @property
    def store_trouble(self) -> str:
        """Which server of the store does not respond now, and why; '' if all do."""
        return self.shards.store.trouble

    @property
    def store_name(self) -> str:
        """The store's URL with passwords masked, or its folder."""
        return self.shards.store.shown

    @property
    def on_cluster(self) -> bool:
        """Whether the shards are on several servers, so that some can be unavailable."""
        return self.shards.store.kind == "cluster"

    @property
    def shard_trouble(self) -> str:
        """How many shards do not respond, as a sentence; '' if all do."""
        count, missing = self.shards.count, len(self.shards.unavailable)
        if missing in (0, count):
            return f"The store at {self.store_name} does not respond." if missing else ""
        return f"{missing} of the {count} shards of the store at {self.store_name} do not respond; the others continue."

    @property
    def epochs(self) -> int:
        """How many new epochs this worker has seen: after each, the store may have lost its last writes."""
        return self.shards.epochs.count

    def on_epoch(self, callback: Callable[[], None]) -> None:
        """Call this at each new epoch, before `lease` returns the first visits of it.

        A program that remembers which URLs it has added must forget them then.
        """
        self.shards.epochs.on_turn.append(callback)

    def on_replaced(self, callback: Callable[[], None]) -> None:
        """Call this when the store was emptied and the frontier created again: none of the earlier crawls exists."""
        self.shards.on_replaced.append(callback)

    def share_clock(self, other: Frontier) -> None:
        """Use the readings of the store's clock of another frontier of this process."""
        self.shards.epochs.readings = other.shards.epochs.readings
        self.shards.epochs.lease_ms = self._terms.lease_ms

    @classmethod
    async def open(
        cls, url: str = "", *, folder: str = ".shoal", namespace: str = "shoal", shards: int | None = None,
        worker: str = "", lease_seconds: float = 60.0, batch_seconds: float = 2.0, expiries: int = 10, blames: int = 3,
        on_warning: Callable[[str], None] | None = None,
    ) -> Frontier:  # fmt: skip
        """Connect to a store (embedded in `folder` when `url` is empty) and join its frontier, or create one."""
        store = await Store.open(url, folder=folder, on_warning=on_warning)
        async with _closed_on_error(store):
            joined = await Shards.found(store, namespace, shards)
            frontier = cls(
                joined, worker=worker, lease_seconds=lease_seconds, batch_seconds=batch_seconds,
                expiries=expiries, blames=blames,
            )  # fmt: skip
            frontier._owned_store = store
            return frontier

    @classmethod
    async def from_settings(
        cls, settings: Settings, *, worker: str = "", on_warning: Callable[[str], None] | None = None
    ) -> Frontier:
        """As `open`, with loaded settings (`shoal.settings.load`)."""
        store_settings, terms = settings.store, settings.frontier
        store = await Store.open(
            store_settings.url, folder=store_settings.folder, server=store_settings.server,
            maxmemory=store_settings.maxmemory, timeout_seconds=store_settings.timeout_seconds, on_warning=on_warning,
        )  # fmt: skip
        async with _closed_on_error(store):
            joined = await Shards.found(store, store_settings.namespace, store_settings.shards, exact=False)
            frontier = cls(
                joined, worker=worker, lease_seconds=terms.lease_seconds, batch_seconds=terms.batch_seconds,
                expiries=terms.expiries, blames=terms.blames, host_failures=terms.host_failures,
                back_off=BackOff(terms.backoff_seconds, terms.longest_backoff_seconds),
            )  # fmt: skip
            frontier._owned_store = store
            return frontier

    async def add(
        self, crawl_id: str, visits: Iterable[Visit | str], *, force: bool = False, skip_invalid: bool = False,
        found_on: Sequence[tuple[Lease, Visit]] | None = None,
        max_bytes: int = MAX_EXTENSION_BYTES,
    ) -> Added:  # fmt: skip
        """Add URLs that the crawl has not seen; with `force`, also URLs that it has seen.

        All URLs are checked before the first is sent: an invalid one raises InvalidUrl, and nothing is added. With
        `skip_invalid`, e.g. for the links of a page, invalid URLs are left out and the others are added.

        `found_on`: for each visit the lease and the visit of the page that links to it. The next acknowledgement in the
        shard of that lease keeps the link in the journal. `max_bytes`: the maximum size of the method,
        headers, body and meta of a visit.
        """
        validation.whole("max_bytes", max_bytes, 1, LARGEST_EXTENSION_BYTES)
        confirmed: list[Confirmed] | None = [] if self._journal.active else None
        added = await self._admission.add(crawl_id, visits, force, skip_invalid, max_bytes, confirmed)
        if confirmed:
            await self._journal.keep(confirmed, found_on)
        return added

    def seconds_left(self, lease: Lease) -> float:
        """How long the holder may still use a lease; abort open requests when this reaches 0."""
        return lease.trusted_until_mono - mono()

    async def lease(
        self, *, hosts: int = 16, visits: int = 8, spiders: Sequence[str] = ("",), shards: Sequence[int] | None = None,
        wait_seconds: float = 0.0,
    ) -> list[Lease]:  # fmt: skip
        """Lease up to `hosts` hosts that are ready now, each with up to `visits` visits that fit into `batch_seconds`.

        An empty list means that every host is rate-limited or leased, or that no visit waits. It does not mean that a
        crawl is finished (see `crawls.finished`). With `wait_seconds` the call returns as soon as a host is ready, at
        the latest after that time.
        """
        if isinstance(spiders, str) or not isinstance(spiders, Sequence) or not spiders:
            raise InvalidLimit(f"spiders are {spiders!r}: pass a list of names, [''] for visits without a spider.")
        request = LeaseRequest(
            validation.whole("hosts", hosts, 1, 1000), validation.whole("visits", visits, 1, 1000),
            tuple(validation.spider(name) for name in spiders), bool(wait_seconds),
        )  # fmt: skip
        return await self._leasing.lease(request, shards, wait_seconds)

    def stop_waiting(self) -> None:
        """Make waiting calls of `lease` return now, and later ones not wait: this worker is about to stop."""
        self._leasing.hurry.set()

    async def renew(self, leases: Sequence[Lease], *, visits: int = 0) -> list[Lease | None]:
        """Renew leases for another full length; with `visits`, fill each up to that many open visits.

        Returns, in the order given, each lease with its new deadline and only its new visits; None for a lost lease.
        """
        return await self._leasing.renew(leases, visits)

    async def acknowledge(
        self, lease: Lease, outcomes: Sequence[Outcome], *, finished_ago_seconds: float | None = 0.0,
        success: bool | None = None, response_seconds: float | None = None, delay_seconds: float | None = None,
    ) -> None:  # fmt: skip
        """Acknowledge visits of one lease. The last one frees the host's slot.

        Raises LeaseLost when the lease has expired: nothing was counted, and another worker makes these visits.
        """
        await self.acknowledge_all(
            [Done(
                lease=lease, outcomes=outcomes, finished_ago_seconds=finished_ago_seconds, success=success,
                response_seconds=response_seconds, delay_seconds=delay_seconds,
            )]
        )  # fmt: skip

    async def acknowledge_all(self, done: Sequence[Done]) -> None:
        """Acknowledge many leases, one call a shard. LeaseLost is raised after the others were counted."""
        lost = await self.commit(self.prepare(done))
        if lost:
            raise LeaseLost(
                f"Worker {self.worker} lost leases: {len(lost)}, first {lost[0]}. Other workers make their visits."
            )

    def prepare(self, done: Sequence[Done]) -> AckBatch:
        """The batch for `commit`. Another process can find out by `void_batch` whether it was committed."""
        return self._acknowledgement.prepare(done)

    async def commit(self, batch: AckBatch, replies: dict[int, list[str]] | None = None) -> list[str]:
        """Acknowledge a batch; returns the tokens of lost leases.

        `replies` gets the tokens of each shard as soon as the shard has replied. Shards in it are not called again.
        """
        return await self._acknowledgement.commit(batch, replies)

    def abandon_batch(self) -> None:
        """Do not commit the last batch again: call `void_batch` to settle it when all of its shards respond."""
        self._acknowledgement.abandon()

    async def void_batch(self, batch: AckBatch) -> list[str]:
        """Void the last batch of a worker that died; returns the tokens of lost leases, all if it was not committed.

        A batch that was not committed before this call never takes effect, even if it is still on its way to the store.
        """
        return await self._acknowledgement.void(batch)

    async def release(
        self, leases: Sequence[Lease], *, keep: Iterable[Visit] = (), finished_ago_seconds: float | None = None
    ) -> None:
        """Release leases now. Visits not in `keep` return to the front of their queues; acknowledge the others later.

        `finished_ago_seconds`: time since the last request finished; None when no request was made.
        """
        ago = "" if finished_ago_seconds is None else passed_ms(finished_ago_seconds)
        kept = list(keep)
        args: dict[int, list[Argument]] = {}
        for lease in leases:
            numbers = [visit.number for visit in kept if visit in lease.visits]
            part = args.setdefault(lease.shard, [self._terms.blames])
            part += [lease.token, ago, 0, len(numbers), *numbers]
        await self.shards.call_all("release", args, replicated=True)

    async def reap(self, worker: str, *, token: str = "", number: int = 0) -> int:
        """Reclaim the leases of a dead worker at once, and blame the visit it was parsing, if known."""
        validation.worker(worker)
        validation.whole("number", number, 0, validation.WIDEST)
        reaped = 0
        for shard in range(self.shards.count):
            rank = 0
            while rank >= 0:
                args = (worker, rank, token, number, self._terms.blames, self._terms.expiries)
                _, _, taken, rank = await self.shards.call("reap", shard, args, replicated=True)
                reaped += taken
        return reaped

    async def close(self) -> None:
        await self._leasing.close()
        await self._journal.close()
        await self._wakeups.close()
        if self._owned_store is not None:
            await self._owned_store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


@contextlib.asynccontextmanager
async def _closed_on_error(store: Store) -> AsyncIterator[None]:
    try:
        yield
    except BaseException:
        await store.close()
        raise
