"""`shoal.Coordinator`: worker processes of this machine on a store, from Python.

    with shoal.Coordinator(store="redis://10.0.0.5:6379/0", workers=4) as coordinator:
        name = coordinator.submit(["https://example.org/"], outputs=["postgresql://db/crawls"])
        while not coordinator.finished(name):
            print(coordinator.stats())

Workers are processes, so spiders are passed by reference, e.g. FILE.py:Class. All methods can be called from any
thread; each call blocks until it is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from shoal import operations
from shoal.errors import InvalidInput, ShoalError
from shoal.fleet import Event, Supervisor, WorkerFolder, reclaim, startup_settings
from shoal.frontier import Frontier
from shoal.frontier.inspect import waiting_hosts
from shoal.model.crawl import Counts, Crawl, CrawlKind, State
from shoal.model.crawl_request import CrawlRequest
from shoal.operations import crawls
from shoal.operations.explain import Explanation, explain_by_id
from shoal.operations.run import CrawlRun, finish_if_over, other_workers
from shoal.operations.submit import spider_settings, submit, to_submission, with_output
from shoal.python.loop_thread import LoopThread
from shoal.settings import load
from shoal.spider import check_arguments, name_of, unique
from shoal.spider import load as load_spider

Result = TypeVar("Result")
# How many of the last messages are kept.
_EVENTS = 100
_WATCH_SECONDS = 2.0


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of the store."""

    crawls: int
    running: int
    # URLs of all crawls that have not ended, and all URLs that were found.
    pending: int
    seen: int
    stored: int
    failed: int
    # Hosts with waiting URLs.
    hosts: int
    workers: int
    # Rates of this coordinator's workers since the last call of `stats`.
    pages_per_second: float
    requests_per_second: float
    # A sentence for each crawl that waits for a spider that no worker has.
    waiting: tuple[str, ...] = ()


class Coordinator:
    """Runs from `start` to `stop`, or in a `with` block. Workers that die are replaced; stopping loses nothing."""

    def __init__(
        self, *, store: str = "", folder: str = ".shoal", workers: int = 1, spiders: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """`store` is a URL, '' for the embedded store in `folder`. With `spiders`, workers serve only those."""
        flags = {"store.url": store, "store.folder": folder, **(settings or {})}
        self._settings = load(flags=flags).settings
        self._workers = workers
        self._classes = {reference: load_spider(reference) for reference in spiders}
        self._spiders = unique((name_of(kind), reference) for reference, kind in self._classes.items())
        self._background: LoopThread | None = None
        self._frontier: Frontier
        self._last_stats: tuple[float, int, int]
        self._noted: set[str] = set()
        self.events: deque[str] = deque(maxlen=_EVENTS)

    def start(self) -> None:
        """Open the store and start the workers."""
        if self._background is not None:
            raise InvalidInput("This coordinator is already started.")
        self._background = LoopThread("shoal-coordinator")
        try:
            self._background.do(self._start())
        except BaseException:
            self._close()
            raise

    def stop(self) -> None:
        """Stop the workers after their in-flight requests. Crawls that have not ended continue at the next start."""
        if self._background is not None:
            try:
                self._background.do(self._stop())
            finally:
                self._close()

    def submit(self, seeds: Sequence[str], **terms: Any) -> str:
        """Submit a crawl and return its name. `terms` are the fields of a crawl request (docs/reference/api.md)."""
        if kind := self._classes.get(self._spiders.get(terms.get("spider", ""), "")):
            spider_settings(kind)
            check_arguments(kind, terms.get("arguments", {}))
            terms = dict(kind.settings) | terms
        try:
            request = CrawlRequest.of_fields({"seeds": seeds, **terms})
        except msgspec.ValidationError as error:
            raise InvalidInput(f"Invalid crawl: {error}.") from None
        request = with_output(request, self._settings.outputs, as_in='outputs=["pages.db"]')
        machine = platform.node() if self._settings.store.url else ""
        networks = self._settings.fetch.allow_networks
        submission = to_submission(request, machine=machine, networks=networks)
        return self._do(lambda: submit(self._frontier, submission)).id

    def counts(self, name: str) -> Counts:
        return self._do(lambda: self._frontier.crawls.count(name))

    def explain(self, name: str, url: str) -> Explanation:
        """Whether a URL is visited by a crawl, and which rule decides."""
        return self._do(lambda: explain_by_id(self._frontier, name, url))

    def finished(self, name: str) -> bool:
        """Whether a crawl has ended. True only when all of its outputs are complete."""
        return self._do(lambda: self._finished(name))

    def pause(self, name: str) -> None:
        self._do(lambda: self._frontier.crawls.pause(name))

    def resume(self, name: str) -> None:
        self._do(lambda: crawls.resume(self._frontier, name))

    def cancel(self, name: str) -> None:
        """Stop a crawl permanently."""
        self._do(lambda: self._frontier.crawls.stop(name))

    @property
    def pids(self) -> list[int]:
        """Process ids of the running workers."""
        return [] if self._background is None else self._supervisor.pids

    def stats(self) -> Stats:
        return self._do(self._stats)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _do(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        if self._background is None:
            raise InvalidInput("This coordinator is not started; call start first.")
        return self._background.do(work())

    def _close(self) -> None:
        background, self._background = self._background, None
        if background is not None:
            background.close()

    async def _start(self) -> None:
        self._worker_folder = WorkerFolder(self._settings)
        self._supervisor = Supervisor(
            flags=startup_settings(self._settings), workers=self._workers, folder=self._worker_folder.folder,
            on_event=self._on_event, spiders=self._spiders, plain=not self._spiders, shared=True,
        )  # fmt: skip
        self._last_stats = (time.monotonic(), 0, 0)
        try:
            self._frontier = await Frontier.from_settings(self._settings)
            await operations.check_joining(self._frontier, platform.node())
            await reclaim(self._frontier, self._worker_folder.folder)
            await self._supervisor.start(self._frontier)
            self._watching = asyncio.create_task(self._watch())
        except BaseException:
            await self._supervisor.stop(self._settings.worker.grace_seconds)
            await self._leave()
            raise

    async def _stop(self) -> None:
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        await self._supervisor.stop(self._settings.worker.grace_seconds)
        try:
            # Callers that only read the counts never called `finished`.
            async for crawl in self._frontier.crawls.all():
                if crawl.kind is CrawlKind.OWN:
                    await self._finish(crawl)
        except ShoalError as error:
            self.events.append(str(error))
        finally:
            await self._leave()

    async def _leave(self) -> None:
        if frontier := getattr(self, "_frontier", None):
            await frontier.close()
        self._worker_folder.close()

    async def _finish(self, crawl: Crawl) -> None:
        """Finish a crawl that is over, and merge the output files of this machine."""
        if crawl.state is State.RUNNING:
            await finish_if_over(self._frontier, crawl.id)
        # Users of an embedded store are on its machine.
        if self._worker_folder.embedded or crawl.spec.get("machine") == platform.node():
            await self._run(crawl.id).merge()

    async def _finished(self, name: str) -> bool:
        return await finish_if_over(self._frontier, name) and await self._run(name).merge()

    def _run(self, name: str) -> CrawlRun:
        return CrawlRun(
            self._frontier, name, outputs=self._settings.outputs, emit=self._emit,
            others=lambda: other_workers(self._frontier, self._worker_folder, self._supervisor),
        )  # fmt: skip

    async def _watch(self) -> None:
        """Report spiders that no worker has, after our workers have reported their own."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            # The workers report that the store is unavailable.
            with contextlib.suppress(ShoalError):
                names = [worker.name for worker in await self._frontier.workers.alive()]
                if any(name.startswith(f"{self._supervisor.name}-") for name in names):
                    for text in await self._waiting([crawl async for crawl in self._frontier.crawls.all()]):
                        self._note(text)

    async def _waiting(self, crawls: Iterable[Crawl]) -> tuple[str, ...]:
        waits = [
            f"Crawl {crawl.id} is {text}."
            for crawl in crawls
            if crawl.kind is CrawlKind.OWN
            for text in await operations.waiting_for(self._frontier, crawl)
        ]
        return tuple(waits)

    async def _hosts(self, spiders: Iterable[str]) -> int:
        """Return the number of waiting hosts, each counted once for all spiders."""
        counts = {spider: sum(await self._frontier.hosts.waiting(spider)) for spider in spiders}
        busy = [spider for spider, count in counts.items() if count]
        if len(busy) < 2:
            return sum(counts.values())
        shards = range(self._frontier.shards.count)
        return sum([len(await waiting_hosts(self._frontier, shard, busy)) for shard in shards])

    async def _stats(self) -> Stats:
        every = [crawl async for crawl in self._frontier.crawls.all()]
        crawls = [crawl for crawl in every if crawl.kind is not CrawlKind.BRANCH]
        counts = [await self._frontier.crawls.count(crawl.id) for crawl in crawls]
        total, now = self._supervisor.total(), time.monotonic()
        then, pages, requests = self._last_stats
        self._last_stats = (now, total.pages, total.requests)
        passed = max(now - then, 1e-9)
        return Stats(
            crawls=len(counts), running=sum(crawl.state is State.RUNNING for crawl in crawls),
            pending=sum(count.open for count in counts), seen=sum(count.admitted for count in counts),
            stored=sum(count.stored for count in counts), failed=sum(count.failed for count in counts),
            hosts=await self._hosts({crawl.limits.spider for crawl in every}),
            workers=len(await self._frontier.workers.alive()),
            pages_per_second=(total.pages - pages) / passed, requests_per_second=(total.requests - requests) / passed,
            waiting=await self._waiting(crawls),
        )  # fmt: skip

    def _on_event(self, event: Event) -> None:
        if event.text:
            self.events.append(event.text)

    def _emit(self, text: str, /, *, event: str, **facts: object) -> None:
        self._note(text)

    def _note(self, text: str) -> None:
        """Keep a text for the caller, once, however often it is emitted."""
        if text not in self._noted:
            self._noted.add(text)
            self.events.append(text)
