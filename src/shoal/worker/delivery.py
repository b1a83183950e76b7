"""Delivery: what holders finished goes to its places, many pages at a time.

    add the links -> write the records -> acknowledge the visits -> settle the outputs

in this order, so that a crash at any point repeats work and loses none. While one batch is on its way the next one
gathers; holders wait when too much has gathered, so a slow output makes the worker lease less and never fills memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar

from shoal.errors import CrawlEnded, StoreError, StoreFull, StoreHeld, StoreUnavailable, UnknownCrawl
from shoal.frontier import Done, Frontier, mono
from shoal.model.crawl import OUTPUT_REFUSED
from shoal.model.visit import Visit
from shoal.model.worker_report import WorkerReport
from shoal.sinks import Sink
from shoal.sinks.contract import Key, Stored
from shoal.worker import receipt as receipts
from shoal.worker.crawl_context import CrawlContext, CrawlContexts
from shoal.worker.hold import Hold
from shoal.worker.outcome import VisitResult
from shoal.worker.output_health import OutputHealth
from shoal.worker.outputs import Output, OutputRefused, Outputs, OutputUnavailable

# A batch waits this long for company; a transaction for every page would cost more than the page.
_LINGER_SECONDS = 0.03
_BATCH = 500
_MOST_ITEMS = 1000
_MOST_WEIGHT = 50_000_000
# An output that takes longer than this holds up hosts: their places are given back while their records wait.
_SLOW_SECONDS = 1.0
_FULL_TRIES = 4
_COUNT_BYTES_SECONDS = 0.5

_T = TypeVar("_T")


class Delivery:
    def __init__(
        self, frontier: Frontier, conducts: CrawlContexts, report: WorkerReport, on_released: Callable[[Hold], None],
        *, shared: bool = False,
    ) -> None:  # fmt: skip
        """`shared`: for crawls of many people. One whose output cannot be used, or is away, is paused, and the others
        go on; alone, it ends the worker, or waits.
        """
        self._shared = shared
        self._aside: set[str] = set()
        self._frontier = frontier
        self._conducts = conducts
        self._report = report
        self._on_released = on_released
        self._queue: list[VisitResult] = []
        self._left: list[tuple[Hold, list[Visit]]] = []
        self._weight = 0
        self._more = asyncio.Event()
        self._hurry = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closing = self._stopping = False
        self._outputs = Outputs(frontier.worker, self._trouble)
        self.absent = OutputHealth(frontier, self._outputs, self.put)
        self._epochs = frontier.epochs
        self._received: dict[str, int] = {}
        self._bytes_counted_mono = mono()

    @property
    def backlog(self) -> int:
        return len(self._queue) + len(self.absent)

    @property
    def full(self) -> bool:
        return not self._room.is_set()

    async def room(self) -> None:
        """Wait until there is room for another page."""
        if not self._room.is_set():
            await self._room.wait()

    def put(self, finished: VisitResult) -> None:
        self._queue.append(finished)
        self._weight += finished.weight
        if (len(self._queue) >= _MOST_ITEMS or self._weight >= _MOST_WEIGHT) and not self._stopping:
            self._room.clear()
        if len(self._queue) >= _BATCH:
            self._hurry.set()
        self._more.set()

    def leave(self, hold: Hold, visits: list[Visit], *, release: bool = False) -> None:
        """The holder is through with its lease; these visits were not made and wait again.

        With `release` the lease may have visits that its holder does not know: they wait again, too.
        """
        hold.left = True
        if visits or release or self.absent:
            self._left.append((hold, visits))
        elif not hold.open:
            self._on_released(hold)
        if visits or hold.delay_seconds <= 0:
            # The host could be asked again at once: it should not wait for company.
            self._hurry.set()
        self._more.set()

    async def run(self) -> None:
        """Deliver until `close`, and then what is left."""
        while True:
            await self._more.wait()
            if not self._closing and not self._hurry.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LINGER_SECONDS):
                        await self._hurry.wait()
            self._more.clear()
            self._hurry.clear()
            batch, self._queue = self._queue, []
            left, self._left = self._left, []
            if batch:
                await self._deliver(batch)
                self._weight = sum(one.weight for one in self._queue)
                self._room.set()
            if left:
                await self._release(left)
            if self._closing and not self._queue and not self._left:
                await self._count_bytes(now=True)
                return

    def stop(self) -> None:
        """Whoever waits for room is about to stop: nobody waits any more."""
        self._stopping = True
        self._room.set()

    def close(self) -> None:
        """Nothing more comes; `run` ends when the last of it is delivered."""
        self._closing = True
        self._more.set()
        self._hurry.set()

    async def close_outputs(self) -> None:
        await self.absent.close()
        await self._outputs.close()

    async def _deliver(self, batch: list[VisitResult]) -> None:
        full = await self._add(batch)
        for number, one in enumerate(batch):
            if full and one.visits and one.conduct is not None and one.conduct.name in full:
                # Its links have no place in the store: the page is kept, and can be retried when there is one.
                batch[number] = one._replace(outcome=one.visit.failed("store full"))
        if self.absent:
            batch = await self._keep_back(batch)
        while batch:
            try:
                return await self._hand_over(batch)
            except OutputRefused as refused:
                if not self._shared:
                    raise refused.error from None
                batch = await self._set_aside(batch, refused)
            except OutputUnavailable as away:
                batch = await self._keep_back(batch, away)

    async def _keep_back(self, batch: list[VisitResult], away: OutputUnavailable | None = None) -> list[VisitResult]:
        """Take out what must wait for an output that is away; returns the rest, which goes on."""
        rest, kept = await self.absent.take_out(batch, away)
        await self._free_places(kept)
        return rest

    async def _set_aside(self, batch: list[VisitResult], refused: OutputRefused) -> list[VisitResult]:
        """Pause the crawls of an output that cannot be used, whose pages are made again; others are not held up."""
        kept = []
        for one in batch:
            conduct = one.conduct
            if conduct is not None and refused.uri in conduct.places:
                one = VisitResult(one.hold, one.visit, one.visit.retry(1.0))
                if conduct.name not in self._aside:
                    self._aside.add(conduct.name)
                    print(f"Crawl {conduct.name} is paused: {refused}", file=sys.stderr, flush=True)
                with contextlib.suppress(StoreError, CrawlEnded, UnknownCrawl):
                    await self._frontier.crawls.pause(conduct.name, OUTPUT_REFUSED)
            kept.append(one)
        return kept

    async def _hand_over(self, batch: list[VisitResult]) -> None:
        by_hold: dict[Hold, list[VisitResult]] = {}
        for one in batch:
            by_hold.setdefault(one.hold, []).append(one)
        done = [_done(hold, some) for hold, some in by_hold.items()]
        acks = self._frontier.prepare(done)
        by_hold = await self._keep_bodies(by_hold)
        keys: dict[str, list[Key]] = {}
        outputs: dict[Output, list[Stored]] = {}
        validators: dict[str, list[tuple[str, str]]] = {}
        for hold, some in by_hold.items():
            for one in some:
                record, conduct = one.record, one.conduct
                if conduct is None:
                    continue
                for stored in one.stored:
                    keys.setdefault(hold.lease.token, []).append(stored.key)
                    for output, kinds in conduct.outputs:
                        if isinstance(stored, kinds):
                            outputs.setdefault((output, bool(conduct.spider)), []).append(stored)
                if record is None:
                    continue
                # A row that says failed must not be confirmed by a later 304.
                validator = "" if record.error else record.etag or record.last_modified
                if validator or one.visit.found == "revisit":
                    validators.setdefault(one.visit.crawl, []).append((record.url, validator))
        written = await self._write(outputs, receipts.pack(acks, keys) if outputs else b"", by_hold)
        for crawl, pairs in validators.items():
            # They only save a transfer when the page is visited again: never a reason to fail.
            with contextlib.suppress(StoreError, UnknownCrawl):
                await self._frontier.validators.remember(crawl, pairs)
        started = mono()
        lost = await self._persist(lambda: self._frontier.commit(acks))
        if (waited := mono() - started) > _SLOW_SECONDS:
            self._report.store_seconds += waited
        refused = receipts.refused(lost, keys)
        for sink in written:
            await sink.settle(refused)
        self._trouble("")
        self._close_books(by_hold, set(lost))
        await self._count_bytes()

    def _close_books(self, by_hold: dict[Hold, list[VisitResult]], lost: set[str]) -> None:
        report = self._report
        for hold, some in by_hold.items():
            if hold.lease.token in lost:
                hold.lost = True
                hold.open.clear()
                report.leases_lost += 1
            else:
                for one in some:
                    hold.open.pop(one.visit.number, None)
                    self._count(one)
            if hold.left and not hold.open:
                self._on_released(hold)

    def _count(self, one: VisitResult) -> None:
        report, outcome = self._report, one.outcome
        if one.record is not None:
            crawl = one.visit.crawl
            self._received[crawl] = self._received.get(crawl, 0) + one.record.bytes_received
        if outcome.code == "s":
            report.pages += 1
        elif outcome.code == "f":
            report.failed[outcome.reason] = report.failed.get(outcome.reason, 0) + 1
        elif outcome.code == "x":
            report.excluded[outcome.reason] = report.excluded.get(outcome.reason, 0) + 1

    async def _add(self, batch: list[VisitResult]) -> set[str]:
        """Admit what the pages lead to. Returns the crawls for which the store has no room."""
        if self._epochs != self._frontier.epochs:
            self._epochs = self._frontier.epochs
            self._conducts.forget_links()
        by_crawl: dict[str, dict[tuple[str, str], Visit]] = {}
        for one in batch:
            if one.visits and one.conduct is not None:
                own = one.conduct.crawl.id
                for visit in one.visits:
                    found = by_crawl.setdefault(visit.crawl or own, {})
                    # Pages of one batch link to the same URLs; the shortest way there counts.
                    known = found.get((visit.url, visit.host))
                    if known is None or visit.depth < known.depth:
                        found[visit.url, visit.host] = visit
        full: set[str] = set()
        for crawl, found in by_crawl.items():
            conduct = await self._persist(partial(self._conducts.of, crawl))
            if not await self._admit(conduct, list(found.values())):
                full.add(conduct.name)
        return full

    async def _admit(self, conduct: CrawlContext, visits: list[Visit]) -> bool:
        crawl = conduct.crawl.id
        for attempt in range(_FULL_TRIES):
            try:
                added = await self._persist(lambda: self._frontier.add(crawl, visits, skip_invalid=True))
            except (CrawlEnded, UnknownCrawl):
                # Stopped or at its limit: its links are not wanted any more.
                return True
            except StoreFull as error:
                self._report.trouble = str(error)
                await asyncio.sleep(0.5 * 2**attempt)
                continue
            for visit, letter in zip(visits, added.letters, strict=True):
                if letter in "ns":
                    conduct.recent.add(visit.url)
            return True
        return False

    async def _keep_bodies(self, by_hold: dict[Hold, list[VisitResult]]) -> dict[Hold, list[VisitResult]]:
        """Put the bodies that crawls keep where they belong, before any record says that they are there."""
        if not any(one.capture for some in by_hold.values() for one in some):
            return by_hold
        keeping = [self._outputs.keep_body(one) for some in by_hold.values() for one in some]
        places = {one.conduct.policy.files for some in by_hold.values() for one in some if one.conduct is not None}
        kept = await self._patiently(asyncio.gather(*keeping), by_hold, places)
        rest = iter(kept)
        return {hold: [next(rest) for _ in some] for hold, some in by_hold.items()}

    async def _write(
        self, outputs: dict[Output, list[Stored]], receipt: bytes, by_hold: dict[Hold, list[VisitResult]]
    ) -> list[Sink]:
        """Every output has every record before anything is acknowledged."""
        written: list[Sink] = []
        try:
            for output, records in outputs.items():
                writing = asyncio.ensure_future(self._outputs.write(output, records, receipt))
                await self._patiently(writing, by_hold, (output[0],))
                written.append(await self._outputs.sink(output))
        except (OutputRefused, OutputUnavailable):
            # The others get what is theirs again, in another batch: this one is never handed in.
            every = [record.key for records in outputs.values() for record in records]
            for sink in written:
                await sink.settle(every)
            raise
        return written

    async def _patiently(
        self, writing: asyncio.Future[_T], by_hold: dict[Hold, list[VisitResult]], uris: Iterable[str]
    ) -> _T:
        """Wait for outputs that may take long; the hosts need not wait with them, nor what others have to deliver."""
        try:
            while not writing.done():
                await asyncio.wait((writing,), timeout=_SLOW_SECONDS)
                if not writing.done():
                    await self._free_places(by_hold)
                    for uri in uris if self._shared else ():
                        self._outputs.check(uri)
            return await writing
        finally:
            if not writing.done():
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)

    def _trouble(self, sentence: str) -> None:
        self._report.trouble = sentence or self.absent.sentence

    async def _free_places(self, holds: Iterable[Hold]) -> None:
        """Hosts need not wait for an output: only their visits stay leased."""
        for hold in holds:
            if hold.left and not hold.released and not hold.lost:
                hold.released = True
                with contextlib.suppress(StoreError):
                    await self._frontier.release(
                        [hold.claim], keep=list(hold.open.values()), finished_ago_seconds=hold.finished_ago_seconds
                    )

    async def _release(self, left: list[tuple[Hold, list[Visit]]]) -> None:
        """Give back what was not made. What is delivered but not acknowledged stays leased."""
        for hold, visits in left:
            claim = hold.claim
            for visit in visits:
                hold.open.pop(visit.number, None)
            if not hold.lost:
                with contextlib.suppress(StoreError):
                    await self._frontier.release(
                        [claim], keep=list(hold.open.values()), finished_ago_seconds=hold.finished_ago_seconds
                    )
                hold.released = True
            if not hold.open:
                self._on_released(hold)

    async def _persist(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """A store that is away comes back; until then nothing can be delivered, and nothing is dropped."""
        while True:
            try:
                return await call()
            except (StoreUnavailable, StoreHeld) as error:
                self._trouble(str(error))
                await asyncio.sleep(1.0)

    async def _count_bytes(self, *, now: bool = False) -> None:
        """Tell the store how much was fetched, and end a crawl that has its bytes."""
        if not self._received:
            return
        met = [await self._persist(partial(self._conducts.of, crawl)) for crawl in self._received]
        limited = [conduct for conduct in met if conduct.policy.max_bytes]
        if not (now or limited or mono() - self._bytes_counted_mono > _COUNT_BYTES_SECONDS):
            return
        self._bytes_counted_mono = mono()
        counts, self._received = self._received, {}
        for crawl, count in counts.items():
            with contextlib.suppress(StoreError, UnknownCrawl, CrawlEnded):
                received = await self._frontier.crawls.facts.add_bytes(crawl, count)
                conduct = await self._conducts.of(crawl)
                most = conduct.policy.max_bytes
                if most and received >= most:
                    await self._frontier.crawls.end(conduct.crawl, "bytes")


def _done(hold: Hold, some: list[VisitResult]) -> Done:
    return Done(
        lease=hold.lease, outcomes=[one.outcome for one in some], finished_ago_seconds=hold.finished_ago_seconds,
        success=hold.success, response_seconds=hold.response_seconds, delay_seconds=hold.adaptive_seconds,
    )  # fmt: skip
