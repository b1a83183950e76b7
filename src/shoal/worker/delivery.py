"""Delivery: finished visits go to the store and the outputs, many pages at a time.

    add the links -> write the records -> acknowledge the visits -> commit the outputs

in this order, so that a crash at any point repeats work and loses none. While one batch is being delivered, the next
one accumulates. Sessions wait when too much has accumulated, so a slow output makes the worker lease less and never
fills its memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar

from shoal.errors import CrawlEnded, StoreError, StoreFull, UnknownCrawl
from shoal.frontier import Frontier, mono
from shoal.frontier.acknowledgement import pack_written, rejected_keys
from shoal.frontier.retry import until_ready
from shoal.leases.held_lease import HeldLease
from shoal.model.crawl import State
from shoal.model.visit import Visit
from shoal.model.worker_report import LatestPage, WorkerReport
from shoal.sinks import Sink
from shoal.sinks.contract import Stored
from shoal.worker.batch import ByLease, done_of, sort_by_lease, sort_for_delivery
from shoal.worker.crawl_context import CrawlContext, CrawlContexts
from shoal.worker.host_release import HostRelease
from shoal.worker.outcome import LinksRefused, VisitResult, count_result
from shoal.worker.outputs import Output, OutputHealth, OutputRefused, Outputs, OutputUnavailable
from shoal.worker.received_bytes import ReceivedBytes
from shoal.worker.shard_backlog import ShardBacklog

# How long a batch waits for more pages; a transaction for every page would cost more than the page.
_LINGER_SECONDS = 0.03
_BATCH = 500
_MOST_ITEMS = 1000
_MOST_WEIGHT = 50_000_000
_BACKLOG_SECONDS = 1.0
# When an output takes longer than this, the hosts whose records wait for it are released.
_SLOW_SECONDS = 1.0
_FULL_TRIES = 4
# The latest pages are part of a heartbeat, which is small.
_LATEST_PAGES, _LATEST_URL, _LATEST_TITLE = 6, 200, 40
_FULL_SECONDS = 60.0

_T = TypeVar("_T")


class Delivery:
    def __init__(
        self, frontier: Frontier, contexts: CrawlContexts, report: WorkerReport,
        on_released: Callable[[HeldLease], None], *, shared: bool = False,
    ) -> None:  # fmt: skip
        """`on_released` is called with each lease that has no open visit left.

        `shared`: this worker serves crawls of many users. If an output rejects records or is unavailable, the crawls
        that use it are paused. Otherwise a rejection stops the worker, and it waits for an unavailable output.
        """
        self._shared = shared
        self._frontier = frontier
        self._contexts = contexts
        self._report = report
        self._on_released = on_released
        self._queue: list[VisitResult] = []
        # Leases whose sessions have ended, each with the visits that were not made.
        self._closed: list[tuple[HeldLease, list[Visit]]] = []
        self._weight = 0
        self._more = asyncio.Event()
        self._hurry = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closing = self._stopping = False
        self.latest: deque[LatestPage] = deque(maxlen=_LATEST_PAGES)
        self.health = OutputHealth(frontier, self.put, self._trouble)
        self._shards = ShardBacklog(frontier)
        self._outputs = Outputs(frontier.worker, self.health.listener, self._trouble)
        self._received = ReceivedBytes(frontier, contexts, self._shards)
        self._hosts = HostRelease(frontier, self._shards, on_released)

    @property
    def backlog(self) -> int:
        return len(self._queue) + len(self.health) + len(self._shards)

    @property
    def full(self) -> bool:
        return not self._room.is_set()

    async def room(self) -> None:
        """Wait until there is room for another page."""
        if not self._room.is_set():
            await self._room.wait()

    def put(self, result: VisitResult) -> None:
        self._queue.append(result)
        self._weight += result.weight
        if (len(self._queue) + len(self._shards) >= _MOST_ITEMS or self._weight >= _MOST_WEIGHT) and not self._stopping:
            self._room.clear()
        if len(self._queue) >= _BATCH:
            self._hurry.set()
        self._more.set()

    def leave(self, lease: HeldLease, visits: list[Visit], *, release: bool = False) -> None:
        """A session has ended. `visits` were not made and go back to the queue.

        `release`: the lease may have visits that its session does not know. They go back to the queue too.
        """
        lease.closed = True
        if visits or release or self.health:
            self._closed.append((lease, visits))
        elif not lease.open:
            self._on_released(lease)
        if visits or lease.delay_seconds <= 0:
            # The host may be requested again at once: do not wait for more pages.
            self._hurry.set()
        self._more.set()

    async def run(self) -> None:
        """Deliver until `close`, and then what is left."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BACKLOG_SECONDS if self._shards else None):
                    await self._more.wait()
            if not self._closing and not self._hurry.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LINGER_SECONDS):
                        await self._hurry.wait()
            self._more.clear()
            self._hurry.clear()
            batch, self._queue = [*self._shards.give_back(), *self._queue], []
            closed, self._closed = self._closed, []
            if batch:
                await self._deliver(batch)
                self._weight = sum(result.weight for result in self._queue)
                if len(self._shards) < _MOST_ITEMS:
                    self._room.set()
            if closed:
                await self._hosts.release(closed)
            if self._closing and not self._queue and not self._closed:
                await self._received.report(now=True)
                return

    def stop(self) -> None:
        """The worker stops: sessions that wait for room continue at once."""
        self._stopping = True
        self._room.set()

    def close(self) -> None:
        """Nothing more is put in; `run` returns when the rest is delivered."""
        self._closing = True
        self._more.set()
        self._hurry.set()

    async def close_outputs(self) -> None:
        await self.health.close()
        await self._outputs.close()

    async def _deliver(self, batch: list[VisitResult]) -> None:
        while True:
            batch, kept = self._shards.take_out(batch)
            await self._hosts.free({result.lease for result in kept})
            # If some shards do not respond, only the pages that do not need them are delivered.
            if (refusals := await self._shards.unless_stuck(self._add(batch))) is not None:
                break
        for index, result in enumerate(batch if refusals else ()):
            refusal = refusals.get(result.context.name) if result.visits and result.context is not None else None
            if refusal is LinksRefused.FULL:
                # The store has no room for its links. The page is stored, and can be retried when there is room.
                batch[index] = result._replace(outcome=result.visit.failed("store full"))
                if result.visit.history is not None:
                    # A page of a perpetual crawl must not leave its calendar: it is visited again soon.
                    batch[index] = VisitResult(result.lease, result.visit, result.visit.retry(_FULL_SECONDS))
            elif refusal is LinksRefused.LIMIT:
                # Its links are needed if the limit is raised: the page is kept as one that was not fetched.
                batch[index] = VisitResult(result.lease, result.visit, result.visit.retry(0.0))
        if self.health:
            batch = await self._keep_back(batch)
        while batch:
            try:
                return await self._write_and_acknowledge(batch)
            except OutputRefused as refused:
                if not self._shared:
                    raise refused.error from None
                batch = await self.health.refuse(batch, refused)
            except OutputUnavailable as unavailable:
                batch = await self._keep_back(batch, unavailable)

    async def _keep_back(
        self, batch: list[VisitResult], unavailable: OutputUnavailable | None = None
    ) -> list[VisitResult]:
        """Take out the pages that must wait for an unavailable output; returns the rest."""
        rest, leases = await self.health.take_out(batch, unavailable)
        await self._hosts.free(leases)
        return rest

    async def _write_and_acknowledge(self, batch: list[VisitResult]) -> None:
        by_lease = sort_by_lease(batch)
        acks = self._frontier.prepare([done_of(lease, results) for lease, results in by_lease.items()])
        by_lease = await self._store_bodies(by_lease)
        keys, outputs, tagged, plain, signalled = sort_for_delivery(by_lease)
        # A validator that names its text is not used while the page's history in the calendar has another text, so it
        # is stored before the record: if the visit is made again, the whole page is requested, and the record replaced.
        await self._remember(tagged)
        written = await self._write(outputs, pack_written(acks, keys) if outputs else b"", by_lease)
        await self._remember(plain)
        for crawl, signals in signalled:
            with contextlib.suppress(StoreError, UnknownCrawl, CrawlEnded):
                await self._shards.unless_stuck(self._frontier.signals.note(crawl, *signals))
        started_mono = mono()
        replies: dict[int, list[str]] = {}
        lost = await self._shards.unless_stuck(self._persist(lambda: self._frontier.commit(acks, replies)))
        if (waited := mono() - started_mono) > _SLOW_SECONDS:
            self._report.store_seconds += waited
        if lost is None:
            # Whether these visits are acknowledged is unknown until their shards respond: then a merge asks them.
            self._frontier.abandon_batch()
            lost = [token for tokens in replies.values() for token in tokens]
            lost += [lease.lease.token for lease in by_lease if lease.lease.shard not in replies]
            for sink in written:
                await sink.hand_over()
        else:
            rejected = rejected_keys(lost, keys)
            for sink in written:
                await sink.commit(rejected)
        self._trouble("")
        self._close_visits(by_lease, set(lost))
        await self._received.report()

    async def _remember(self, validators: dict[str, list[tuple[str, str]]]) -> None:
        for crawl, pairs in validators.items():
            # Validators only save a transfer at the next visit of a page: never a reason to fail.
            with contextlib.suppress(StoreError, UnknownCrawl):
                await self._shards.unless_stuck(self._frontier.validators.remember(crawl, pairs))

    def _close_visits(self, by_lease: ByLease, lost: set[str]) -> None:
        """Take acknowledged visits off their leases and count them."""
        for lease, results in by_lease.items():
            if lease.lease.token in lost:
                lease.lost = True
                lease.open.clear()
                self._report.leases_lost += 1
            else:
                for result in results:
                    lease.open.pop(result.visit.number, None)
                    self._count(result)
            if lease.closed and not lease.open:
                self._on_released(lease)

    def _count(self, result: VisitResult) -> None:
        count_result(self._report, result)
        record = result.record
        if record is not None:
            self._received.add(result.visit.crawl, record.bytes_received, len(result.items))
            if not record.error and len(record.url) <= _LATEST_URL:
                title = record.title[:_LATEST_TITLE]
                self.latest.append(LatestPage(record.crawl, record.url, record.status, title, record.fetched_at))

    async def _add(self, batch: list[VisitResult]) -> dict[str, LinksRefused]:
        """Add the links of the pages. Returns the crawls whose links were refused."""
        by_crawl: dict[str, dict[tuple[str, str], tuple[Visit, VisitResult]]] = {}
        for result in batch:
            if result.visits and result.context is not None:
                own = result.context.crawl.id
                for visit in result.visits:
                    visits = by_crawl.setdefault(visit.crawl or own, {})
                    # Pages of one batch link to the same URLs: keep the shortest path.
                    identity = (visit.identity, visit.host)
                    known = visits.get(identity)
                    if known is None or visit.depth < known[0].depth:
                        visits[identity] = (visit, result)
        refused: dict[str, LinksRefused] = {}
        for crawl, visits in by_crawl.items():
            context = await self._persist(partial(self._contexts.of, crawl))
            if refusal := await self._add_visits(context, list(visits.values())):
                refused[context.name] = refusal
        return refused

    async def _add_visits(self, context: CrawlContext, links: list[tuple[Visit, VisitResult]]) -> LinksRefused | None:
        """Add visits, each with the result of the page that links to it."""
        crawl = context.crawl.id
        visits = [visit for visit, _ in links]
        found_on = [(page.lease.lease, page.visit) for _, page in links]
        for attempt in range(_FULL_TRIES):
            epochs = self._frontier.epochs
            try:
                added = await self._persist(
                    lambda: self._frontier.add(crawl, visits, skip_invalid=True, found_on=found_on)
                )
            except UnknownCrawl:
                return None
            except CrawlEnded:
                # A crawl that was stopped needs no more links.
                state = (await self._persist(partial(self._frontier.crawls.get, crawl))).state
                return LinksRefused.LIMIT if state is State.FINISHED else None
            except StoreFull as error:
                self._report.trouble = str(error)
                await asyncio.sleep(0.5 * 2**attempt)
                continue
            if epochs != self._frontier.epochs:
                # The links were confirmed before a change of epoch, and may be lost: they do not count as known.
                return None
            for visit, result in zip(visits, added.results, strict=True):
                if result.in_crawl and visit.is_plain:
                    context.recent.add(visit.url)
            return None
        return LinksRefused.FULL

    async def _store_bodies(self, by_lease: ByLease) -> ByLease:
        """Store the bodies that crawls keep, before any record names their files."""
        if not any(result.capture for results in by_lease.values() for result in results):
            return by_lease
        batch = [result for results in by_lease.values() for result in results]
        storing = asyncio.gather(*(self._outputs.store_body(result) for result in batch))
        uris = {result.context.policy.files for result in batch if result.context is not None}
        stored = await self._wait_for_output(storing, by_lease, uris)
        rest = iter(stored)
        return {lease: [next(rest) for _ in results] for lease, results in by_lease.items()}

    async def _write(self, outputs: dict[Output, list[Stored]], receipt: bytes, by_lease: ByLease) -> list[Sink]:
        """Write every record to every output, before anything is acknowledged."""
        written: list[Sink] = []
        try:
            for output, records in outputs.items():
                writing = asyncio.ensure_future(self._outputs.write(output, records, receipt))
                await self._wait_for_output(writing, by_lease, (output[0],))
                written.append(await self._outputs.sink(output))
        except (OutputRefused, OutputUnavailable):
            # This batch is never acknowledged. The other outputs get their records again with another one.
            keys = [record.key for records in outputs.values() for record in records]
            for sink in written:
                await sink.commit(keys)
            raise
        return written

    async def _wait_for_output(self, writing: asyncio.Future[_T], by_lease: ByLease, uris: Iterable[str]) -> _T:
        """Wait for an output, and release the hosts of its pages if it is slow."""
        try:
            while not writing.done():
                await asyncio.wait((writing,), timeout=_SLOW_SECONDS)
                if not writing.done():
                    await self._hosts.free(by_lease)
                    for uri in uris if self._shared else ():
                        self.health.check(uri)
            return await writing
        finally:
            if not writing.done():
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)

    def _trouble(self, message: str) -> None:
        self._report.trouble = message or self.health.message

    async def _persist(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Repeat a call until the store is available; until then nothing is delivered and nothing is dropped."""
        return await until_ready(call, self._trouble)
