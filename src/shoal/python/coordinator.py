"""The coordinator: worker processes of this machine on a store, from Python.

    with shoal.Coordinator(store="redis://10.0.0.5:6379/0", workers=4) as coordinator:
        name = coordinator.submit(["https://example.org/"], outputs=["postgresql://db/crawls"])
        while not coordinator.finished(name):
            print(coordinator.stats())

Workers are processes, so spiders are given by reference, as FILE.py:Class. Everything here can be called from any
thread; each call waits for its answer.
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
from shoal.model.crawl_spec import CrawlRequest
from shoal.operations.run import CrawlRun, finish_if_over, other_workers
from shoal.operations.submit import submit, to_submission, with_output
from shoal.python.loop_thread import LoopThread
from shoal.settings import load
from shoal.spider import load as load_spider
from shoal.spider import name_of, unique

Result = TypeVar("Result")
# What workers said last, for whoever looks.
_EVENTS = 100
_WATCH_SECONDS = 2.0


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """The store at one moment. `pages_a_second` is of this coordinator's own workers, since the last time it was asked.

    `pending` and `seen` are URLs of all crawls; `hosts` are those that wait to be asked. `waiting` has a sentence for
    each crawl that waits for a spider which no worker has.
    """

    crawls: int
    running: int
    pending: int
    seen: int
    stored: int
    failed: int
    hosts: int
    workers: int
    pages_a_second: float
    requests_a_second: float
    waiting: tuple[str, ...] = ()


class Coordinator:
    """Starts with `start` or `with`, ends with `stop`. Workers that die are replaced; nothing is lost at an end."""

    def __init__(
        self, *, store: str = "", folder: str = ".shoal", workers: int = 1, spiders: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """`store` is a URL, '' for the embedded one in `folder`; with `spiders`, workers serve those and no others."""
        flags = {"store.url": store, "store.folder": folder, **(settings or {})}
        self._settings = load(flags=flags).settings
        self._workers = workers
        self._spiders = unique((name_of(load_spider(reference)), reference) for reference in spiders)
        self._background: LoopThread | None = None
        self._frontier: Frontier
        self._asked: tuple[float, int, int]
        self._told: set[str] = set()
        self.events: deque[str] = deque(maxlen=_EVENTS)

    def start(self) -> None:
        """Open the store and put the workers to work."""
        if self._background is not None:
            raise InvalidInput("This coordinator is at work already.")
        self._background = LoopThread("shoal-coordinator")
        try:
            self._background.do(self._start())
        except BaseException:
            self._close()
            raise

    def stop(self) -> None:
        """Let open requests end, end the workers. Crawls that are not over wait for the next start."""
        if self._background is not None:
            try:
                self._background.do(self._stop())
            finally:
                self._close()

    def submit(self, seeds: Sequence[str], **terms: Any) -> str:
        """Begin a crawl and return its name; `terms` are the fields of a crawl request (docs/reference/api.md)."""
        try:
            request = CrawlRequest.of_fields({"seeds": seeds, **terms})
        except msgspec.ValidationError as error:
            raise InvalidInput(f"This crawl cannot be submitted: {error}.") from None
        request = with_output(request, self._settings.outputs, as_in='outputs=["pages.db"]')
        machine = platform.node() if self._settings.store.url else ""
        submission = to_submission(request, machine=machine)
        return self._do(lambda: submit(self._frontier, submission)).id

    def counts(self, name: str) -> Counts:
        return self._do(lambda: self._frontier.crawls.count(name))

    def finished(self, name: str) -> bool:
        """Whether a crawl is over. True only when all of its outputs are complete."""
        return self._do(lambda: self._finished(name))

    def pause(self, name: str) -> None:
        self._do(lambda: self._frontier.crawls.pause(name))

    def resume(self, name: str) -> None:
        self._do(lambda: self._frontier.crawls.resume(name))

    def cancel(self, name: str) -> None:
        """Stop a crawl for good."""
        self._do(lambda: self._frontier.crawls.stop(name))

    @property
    def pids(self) -> list[int]:
        """The worker processes that run now."""
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
            raise InvalidInput("This coordinator is not at work; call start first.")
        return self._background.do(work())

    def _close(self) -> None:
        background, self._background = self._background, None
        if background is not None:
            background.close()

    async def _start(self) -> None:
        self._place = WorkerFolder(self._settings)
        self._supervisor = Supervisor(
            flags=startup_settings(self._settings), workers=self._workers, folder=self._place.folder,
            on_event=self._hear, spiders=self._spiders, plain=not self._spiders, shared=True,
        )  # fmt: skip
        self._asked = (time.monotonic(), 0, 0)
        try:
            self._frontier = await Frontier.from_settings(self._settings)
            await operations.check_joining(self._frontier, platform.node())
            await reclaim(self._frontier, self._place.folder)
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
            # Whoever watched the counts alone has not asked whether the crawl is over.
            async for crawl in self._frontier.crawls.all():
                if crawl.kind is CrawlKind.OWN:
                    await self._wind_up(crawl)
        except ShoalError as error:
            self.events.append(str(error))
        finally:
            await self._leave()

    async def _leave(self) -> None:
        if frontier := getattr(self, "_frontier", None):
            await frontier.close()
        self._place.close()

    async def _wind_up(self, crawl: Crawl) -> None:
        """Close a crawl of which nothing is left, and make visible what was written on this machine."""
        if crawl.state is State.RUNNING:
            await finish_if_over(self._frontier, crawl.id)
        # Who can use an embedded store is on its machine.
        if self._place.embedded or crawl.spec.get("machine") == platform.node():
            await self._run(crawl.id).merge()

    async def _finished(self, name: str) -> bool:
        return await finish_if_over(self._frontier, name) and await self._run(name).merge()

    def _run(self, name: str) -> CrawlRun:
        return CrawlRun(
            self._frontier, name, outputs=self._settings.outputs, own=lambda: self._supervisor.live_workers,
            others=lambda: other_workers(self._frontier, self._place, self._supervisor), emit=self._emit,
        )  # fmt: skip

    async def _watch(self) -> None:
        """Tell of spiders that nobody has, once workers of ours have said which they have."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            # A store that does not answer is what the workers tell of.
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
        """Hosts that wait, each once, however many spiders are to ask it."""
        counts = {spider: sum(await self._frontier.hosts.waiting(spider)) for spider in spiders}
        busy = [spider for spider, count in counts.items() if count]
        if len(busy) < 2:
            return sum(counts.values())
        shards = range(self._frontier.shards.count)
        return sum([len(await waiting_hosts(self._frontier, shard, busy)) for shard in shards])

    async def _stats(self) -> Stats:
        every = [crawl async for crawl in self._frontier.crawls.all()]
        found = [crawl for crawl in every if crawl.kind is not CrawlKind.BRANCH]
        counts = [await self._frontier.crawls.count(crawl.id) for crawl in found]
        total, now = self._supervisor.total(), time.monotonic()
        then, pages, requests = self._asked
        self._asked = (now, total.pages, total.requests)
        passed = max(now - then, 1e-9)
        return Stats(
            crawls=len(counts), running=sum(crawl.state is State.RUNNING for crawl in found),
            pending=sum(count.open for count in counts), seen=sum(count.admitted for count in counts),
            stored=sum(count.stored for count in counts), failed=sum(count.failed for count in counts),
            hosts=await self._hosts({crawl.limits.spider for crawl in every}),
            workers=len(await self._frontier.workers.alive()),
            pages_a_second=(total.pages - pages) / passed, requests_a_second=(total.requests - requests) / passed,
            waiting=await self._waiting(found),
        )  # fmt: skip

    def _hear(self, event: Event) -> None:
        if event.text:
            self.events.append(event.text)

    def _emit(self, text: str, /, *, event: str, **facts: object) -> None:
        self._note(text)

    def _note(self, text: str) -> None:
        """Keep a text for the caller, once, however often it is emitted."""
        if text not in self._told:
            self._told.add(text)
            self.events.append(text)
