"""CrawlRun: drives one crawl from its start to its end. The only code that decides that a crawl is over.

A crawl is over when all of this is true:

- every URL that was admitted to it, or to one of its branches, has ended;
- no process feeds it: all of its seeds have been read, and a revisit pass has added all of its pages;
- it has had a URL, or its creator has had a minute to add one.

It is over, too, when it has reached its time limit.

`finish_if_over` checks this and finishes the crawl. `shoal crawl`, `shoal.crawl`, `shoal.Coordinator`,
`shoal submit --wait` and the background maintenance all call it. Must not print: it emits events.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence, Set
from enum import StrEnum
from typing import Any

from shoal.errors import ShoalError, StoreNotReady, StoreUnavailable
from shoal.fleet import Supervisor, WorkerFolder, live_workers
from shoal.frontier import Frontier
from shoal.frontier.crawl_facts import Facts, Feed
from shoal.frontier.inspect import store_seconds
from shoal.model.crawl import Crawl, State
from shoal.model.crawl_spec import STORED_SEEDS, CrawlSpec
from shoal.model.visit import Visit
from shoal.operations.describe import waiting_for
from shoal.operations.events import Emit, ignore_event
from shoal.operations.merge_outputs import UnmergedParts, is_merged, merge_outputs
from shoal.operations.revisit import revisits
from shoal.operations.seeds import Seeds, feed
from shoal.operations.start import StartedCrawl, begin
from shoal.operations.time_windows import OUTSIDE, keep_to_windows
from shoal.settings import masked

# The end of a small crawl is checked for often; a large one can wait half a second.
_FAST_CHECK_SECONDS, _FAST_CHECKS_FOR_SECONDS, _CHECK_SECONDS = 0.05, 5.0, 0.5
_MERGE_SECONDS = 3.0
_STATE_SECONDS = 2.0
# A live worker closes its parts within a second or two of a request. A worker of another machine that died is known to
# be dead after 30 seconds.
_LAST_PARTS_SECONDS, _REPORT_PARTS_SECONDS, _PARTS_CHECK_SECONDS = 60.0, 5.0, 0.2
# The creator of a crawl adds its seeds next, unless it died.
_SEEDLESS_SECONDS = 60.0


class RunEnd(StrEnum):
    """Why `CrawlRun.watch` returned."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    # No worker of this run is left.
    WORKERS_GONE = "workers gone"
    # Every URL has ended, but an earlier run was killed before it had read all seeds, and this run has none to read.
    SEEDS_MISSING = "seeds missing"


async def finish_if_over(frontier: Frontier, crawl_id: str, *, seeded: bool = False) -> bool:
    """Finish the crawl if it is over. Returns whether it has ended, now or before.

    `seeded`: the caller knows that the crawl's first URLs have been added, so that a crawl without a URL is over.
    """
    crawl = await frontier.crawls.get(crawl_id)
    if not crawl.state.open:
        return True
    if crawl.limits.max_seconds and await store_seconds(frontier) - crawl.created_at >= crawl.limits.max_seconds:
        await frontier.crawls.end(crawl, "max time")
        return True
    # Most calls for a running crawl return here.
    if not await frontier.crawls.finished(crawl_id) or (await frontier.crawls.facts.read(crawl_id)).feeding:
        return False
    if not seeded and await _may_be_seeded(frontier, crawl):
        return False
    # `finish` counts again, so it sees URLs that were added between the first count and the end of the feed.
    return await frontier.crawls.finish(crawl_id)


async def _may_be_seeded(frontier: Frontier, crawl: Crawl) -> bool:
    """Whether the crawl has no URL yet, but its creator may be about to add some."""
    counts = await frontier.crawls.count(crawl.id)
    return not counts.admitted and await store_seconds(frontier) - crawl.created_at < _SEEDLESS_SECONDS


async def other_workers(frontier: Frontier, workplace: WorkerFolder, supervisor: Supervisor) -> set[str]:
    """Return the workers on the store that are not the supervisor's, by their locks or by their heartbeats."""
    if workplace.embedded:
        names = live_workers(workplace.folder)
    else:
        # Scrapy processes are on the store, too. They write no output of Shoal's.
        names = {worker.name for worker in await frontier.workers.alive() if worker.heartbeat.owns}
    return {name for name in names if not name.startswith(f"{supervisor.name}-")}


class CrawlRun:
    """One crawl, driven by this process: `start`, `feed`, `watch`, then `stop_feeding` and `merge_rest`.

    crawl_id    the crawl's name
    outputs     the named outputs of shoal.toml
    others      returns the names of live workers that other processes run; None if nothing is fed or watched
    served      spiders of this process's own workers, which may still be starting
    emit        gets each event; an event that repeats is emitted once
    """

    def __init__(
        self,
        frontier: Frontier,
        crawl_id: str,
        *,
        outputs: Mapping[str, str],
        others: Callable[[], Awaitable[Set[str]]] | None = None,
        served: Collection[str] = (),
        emit: Emit = ignore_event,
    ) -> None:
        self.crawl_id = crawl_id
        self.paused = False
        self._frontier = frontier
        self._outputs = outputs
        self._others = others or _nobody
        self._served = served
        self._emit = emit
        self._emitted: set[str] = set()
        self._wake = asyncio.Event()
        self._seeds: Seeds | None = None
        self._feeder: asyncio.Task[None] | None = None
        self._retried: Set[str] = frozenset()
        self._first: Sequence[Visit] = ()

    async def start(
        self,
        *,
        seeds: Sequence[str],
        spec: CrawlSpec,
        given: Collection[str] = (),
        again: bool = False,
        visits: Sequence[Visit] = (),
    ) -> StartedCrawl:
        """Create the crawl, resume it, or start another pass over its pages (shoal.operations.start)."""
        started = await begin(
            self._frontier, name=self.crawl_id, seeds=seeds, spec=spec, given=given, again=again,
            visits=visits, named=self._outputs,
        )  # fmt: skip
        # Before any worker leases one of its URLs.
        await keep_to_windows(self._frontier, started.crawl)
        self._retried = started.retried
        self._first = visits
        return started

    async def feed(self, spec: CrawlSpec, seeds: Seeds | None = None) -> None:
        """Mark in the store that `seeds` are still to be added, and add them, or a revisit pass, in a task."""
        self._seeds = seeds
        if seeds is not None:
            await self._frontier.crawls.facts.start_feed(self.crawl_id, Feed.SEEDS)
            if spec.scope == "prefix" and spec.follow:
                self._warn(
                    f"--scope prefix applies to the first {STORED_SEEDS:,} seeds; links of the others are not followed."
                )
        elif (await self._facts()).seeds.under_way:
            self._warn(f"Crawl {self.crawl_id} was interrupted before all of its seeds were read; pass --seeds again.")
        self._feeder = asyncio.create_task(self._feed(spec))

    @property
    def unread_seeds(self) -> str:
        """The file whose seeds have not all been added, '' if there is none."""
        return self._seeds.source if self._seeds is not None else ""

    async def stop_feeding(self) -> None:
        """Stop adding URLs. The mark stays in the store, so that the crawl is not finished without them."""
        if self._feeder is not None:
            self._feeder.cancel()
            await asyncio.gather(self._feeder, return_exceptions=True)

    async def watch(
        self,
        workers: asyncio.Task[None],
        interrupted: asyncio.Event,
        *,
        on_check: Callable[[], Awaitable[None]] | None = None,
    ) -> RunEnd:
        """Wait until the crawl is over, `workers` is done or `interrupted` is set; meanwhile merge finished parts.

        `on_check` is called after each check. Finishes the crawl. Raises the exceptions of the feed.
        """
        watching = asyncio.create_task(self._until_over(on_check))
        interrupt = asyncio.create_task(interrupted.wait())
        tasks: set[asyncio.Task[Any]] = {watching, interrupt, workers}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                return watching.result()
            if workers.done():
                workers.result()
                # The last worker may have stopped with the last page.
                return RunEnd.FINISHED if await self.finish() else RunEnd.WORKERS_GONE
            return RunEnd.INTERRUPTED
        finally:
            # The watching task may wait for an unavailable store; a user who interrupts the crawl should not have to.
            for task in (watching, interrupt):
                task.cancel()
            await asyncio.gather(watching, interrupt, return_exceptions=True)

    def wake(self) -> None:
        """Check soon whether the crawl is over: a worker has nothing to do."""
        self._wake.set()

    async def finish(self) -> bool:
        """Finish the crawl if it is over. Returns whether it has ended and none of its URLs is being fetched."""
        if self._feeder is not None:
            if not self._feeder.done():
                return False
            self._feeder.result()
        crawls = self._frontier.crawls
        over = await finish_if_over(self._frontier, self.crawl_id, seeded=True)
        return over and await crawls.finished(self.crawl_id)

    async def pause(self, timeout_seconds: float) -> None:
        """Pause the crawl if it is running. If the store does not reply in time, report this and return."""
        try:
            async with asyncio.timeout(timeout_seconds):
                if (await self._frontier.crawls.get(self.crawl_id)).state is State.RUNNING:
                    await self._frontier.crawls.pause(self.crawl_id)
        except (ShoalError, TimeoutError) as error:
            reason = str(error) or "the store did not reply in time."
            self._emit_once(f"Cannot pause the crawl: {reason}", event="store.trouble", crawl=self.crawl_id)

    async def merge(self) -> bool:
        """Append finished parts to the output files. Returns whether no part is left."""
        crawl = await self._frontier.crawls.known(self.crawl_id)
        for trouble in await merge_outputs(self._frontier, crawl, named=self._outputs):
            self._emit_once(trouble, event="output.trouble", crawl=self.crawl_id)
        return is_merged(crawl, named=self._outputs)

    async def merge_rest(self, interrupted: asyncio.Event | None = None) -> bool:
        """Merge all parts of a crawl that has ended, and wait for other workers to close theirs.

        Returns whether every stored record is in its output. If not, it emits which output is incomplete: a worker
        hangs with its part, the disk is full, or `interrupted` was set.
        """
        parts = UnmergedParts(await self._frontier.crawls.known(self.crawl_id), named=self._outputs)
        started = time.monotonic()
        while True:
            await self.merge()
            incomplete = parts.outputs()
            if not incomplete:
                return True
            waited = time.monotonic() - started
            if waited > _LAST_PARTS_SECONDS or (interrupted is not None and interrupted.is_set()):
                break
            if waited > _REPORT_PARTS_SECONDS:
                outputs = ", ".join(map(masked, incomplete))
                self._emit_once(
                    f"Waiting for other workers to write the last pages of {outputs}.",
                    event="crawl.waiting",
                    crawl=self.crawl_id,
                )
            await asyncio.sleep(_PARTS_CHECK_SECONDS)
        for output, names in incomplete.items():
            self._emit(
                f"The output {masked(output)} is incomplete: {len(names)} of its part files are not merged yet. "
                "Run the same command again when no worker writes to it.",
                event="output.trouble",
                crawl=self.crawl_id,
            )
        return False

    async def _until_over(self, on_check: Callable[[], Awaitable[None]] | None) -> RunEnd:
        started = merged = checked = time.monotonic()
        while True:
            now = time.monotonic()
            self._wake.clear()
            try:
                if await self.finish():
                    return RunEnd.FINISHED
                if now - checked >= _STATE_SECONDS:
                    checked = now
                    await self._check_state()
                    if await self._lacks_seeds():
                        return RunEnd.SEEDS_MISSING
                if now - merged >= _MERGE_SECONDS:
                    merged = now
                    await self.merge()
                if on_check is not None:
                    await on_check()
            except StoreNotReady as error:
                # Workers continue while a part of the store responds. A single server has no parts.
                is_lost = isinstance(error, StoreUnavailable) and not self._frontier.on_cluster
                if is_lost or len(self._frontier.shards.unavailable) == self._frontier.shards.count:
                    raise
                self._emit_once(self._frontier.shard_trouble, event="store.trouble", crawl=self.crawl_id)
            with contextlib.suppress(TimeoutError):
                pause = _FAST_CHECK_SECONDS if now - started < _FAST_CHECKS_FOR_SECONDS else _CHECK_SECONDS
                await asyncio.wait_for(self._wake.wait(), pause)

    async def _check_state(self) -> None:
        """Emit that the crawl was paused, and each spider that no worker has."""
        was_paused = self.paused
        crawl = await self._frontier.crawls.get(self.crawl_id)
        resumes_at = await keep_to_windows(self._frontier, crawl)
        self.paused = crawl.state is State.PAUSED
        if resumes_at:
            text = f"Crawl {self.crawl_id} waits until {resumes_at} (--between)."
            self._emit_once(text, event="crawl.waiting", crawl=self.crawl_id)
        elif self.paused and not was_paused and crawl.why != OUTSIDE:
            self._emit("The crawl was paused externally.", event="crawl.paused", crawl=self.crawl_id)
        for reason in await waiting_for(self._frontier, crawl, self._served):
            self._emit_once(f"Crawl {self.crawl_id} is {reason}.", event="crawl.waiting", crawl=self.crawl_id)

    async def _lacks_seeds(self) -> bool:
        """Whether the crawl only lacks seeds that neither this run nor, as far as is known, another run reads."""
        return (
            (self._feeder is None or self._feeder.done())
            and not self._seeds
            and (await self._facts()).seeds.under_way
            and await self._frontier.crawls.finished(self.crawl_id)
            and not await self._others()
        )

    async def _feed(self, spec: CrawlSpec) -> None:
        frontier, crawl_id = self._frontier, self.crawl_id
        if self._seeds is not None:
            seeds = self._seeds
            if await feed(frontier, crawl_id, _seed_visits(seeds), self._warn) is not None:
                await frontier.crawls.facts.finish_feed(crawl_id, Feed.SEEDS)
            self._seeds = None
            for fault in seeds.faults:
                self._warn(fault)
            if seeds.skipped:
                lines, are = (
                    ("line", "is not a URL and was") if seeds.skipped == 1 else ("lines", "are not URLs and were")
                )
                self._warn(f"{seeds.skipped:,} {lines} of {seeds.shown} {are} skipped.")
        revisit = (await self._facts()).revisit
        if revisit.under_way:
            visits = revisits(
                frontier, crawl_id, spec, revisit, named=self._outputs, retried=self._retried, first=self._first
            )
            count = await feed(frontier, crawl_id, visits, self._warn)
            if count is not None:
                await frontier.crawls.facts.finish_feed(crawl_id, Feed.PASS)
                self._emit(
                    f"Revisiting {count:,} URL{'' if count == 1 else 's'} of crawl {crawl_id}.",
                    event="crawl.seeded",
                    crawl=crawl_id,
                )

    async def _facts(self) -> Facts:
        return await self._frontier.crawls.facts.read(self.crawl_id)

    def _warn(self, text: str) -> None:
        self._emit_once(text, event="warning", crawl=self.crawl_id)

    def _emit_once(self, text: str, *, event: str, **facts: object) -> None:
        if text not in self._emitted:
            self._emitted.add(text)
            self._emit(text, event=event, **facts)


async def _nobody() -> Set[str]:
    return frozenset()


async def _seed_visits(seeds: Seeds) -> AsyncGenerator[list[Visit], None]:
    async for urls in seeds.rest():
        yield [Visit(url=url, found="seed") for url in urls]
