"""The coordinator: worker processes of this machine on a store, from Python.

    with shoal.Coordinator(store="redis://10.0.0.5:6379/0", workers=4) as coordinator:
        name = coordinator.submit(["https://example.org/"], outputs=["postgresql://db/crawls"])
        while not coordinator.finished(name):
            print(coordinator.stats())

Workers are processes, so spiders are given by reference, as FILE.py:Class. Everything here can be called from any
thread; each call waits for its answer.
"""

from __future__ import annotations

import platform
import time
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from shoal import control
from shoal.background import Background
from shoal.control.request import CrawlRequest, submit, with_output
from shoal.errors import InvalidInput
from shoal.fleet import Event, Supervisor, Workplace, orders, take_back
from shoal.frontier import Frontier
from shoal.model.crawl import Counts, State
from shoal.settings import load
from shoal.spider import load as load_spider
from shoal.spider import name_of

Result = TypeVar("Result")
# What workers said last, for whoever looks.
_EVENTS = 100


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """The store at one moment. `pages_a_second` is of this coordinator's own workers, since the last time it was asked.

    `pending` and `seen` are URLs of all crawls; `hosts` are those that wait to be asked.
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
        self._spiders = {name_of(load_spider(reference)): reference for reference in spiders}
        self._background: Background | None = None
        self._frontier: Frontier
        self._asked: tuple[float, int, int] = (time.monotonic(), 0, 0)
        self.events: deque[str] = deque(maxlen=_EVENTS)

    def start(self) -> None:
        """Open the store and put the workers to work."""
        if self._background is not None:
            raise InvalidInput("This coordinator is at work already.")
        self._background = Background("shoal-coordinator")
        try:
            self._background.do(self._start())
        except BaseException:
            self._close()
            raise

    def stop(self) -> None:
        """Let open requests end, end the workers. Crawls that are not over wait for the next start."""
        if self._background is not None:
            self._background.do(self._stop())
            self._close()

    def submit(self, seeds: Sequence[str], **terms: Any) -> str:
        """Begin a crawl and return its name; `terms` are the fields of a crawl request (docs/reference/api.md)."""
        try:
            request = msgspec.convert({"seeds": seeds, **terms}, CrawlRequest)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"This crawl cannot be submitted: {error}.") from None
        request = with_output(request, self._settings.outputs, as_in='outputs=["pages.db"]')
        machine = platform.node() if self._settings.store.url else ""
        return self._do(submit(self._frontier, request, machine=machine)).id

    def counts(self, name: str) -> Counts:
        return self._do(self._frontier.crawls.count(name))

    def finished(self, name: str) -> bool:
        """Whether a crawl is over. True only when all of its outputs are complete."""
        return self._do(self._finished(name))

    def pause(self, name: str) -> None:
        self._do(self._frontier.crawls.pause(name))

    def resume(self, name: str) -> None:
        self._do(self._frontier.crawls.resume(name))

    def cancel(self, name: str) -> None:
        """Stop a crawl for good."""
        self._do(self._frontier.crawls.stop(name))

    @property
    def pids(self) -> list[int]:
        """The worker processes that run now."""
        return self._supervisor.pids

    def stats(self) -> Stats:
        return self._do(self._stats())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _do(self, work: Coroutine[Any, Any, Result]) -> Result:
        if self._background is None:
            work.close()
            raise InvalidInput("This coordinator is not at work; call start first.")
        return self._background.do(work)

    def _close(self) -> None:
        background, self._background = self._background, None
        if background is not None:
            background.close()

    async def _start(self) -> None:
        self._place = Workplace(self._settings)
        self._supervisor = Supervisor(
            flags=orders(self._settings), workers=self._workers, folder=self._place.folder, on_event=self._hear,
            spiders=self._spiders, plain=not self._spiders, shared=True,
        )  # fmt: skip
        try:
            self._frontier = await Frontier.from_settings(self._settings)
            await control.check_joining(self._frontier, platform.node())
            await take_back(self._frontier, self._place.folder)
            await self._supervisor.start(self._frontier)
        except BaseException:
            await self._stop()
            raise

    async def _stop(self) -> None:
        await self._supervisor.stop(self._settings.worker.grace_seconds)
        if frontier := getattr(self, "_frontier", None):
            await frontier.close()
        self._place.close()

    async def _finished(self, name: str) -> bool:
        crawls = self._frontier.crawls
        over = not (await crawls.get(name)).state.open or await crawls.finish(name)
        if not over:
            return False
        crawl, named = await crawls.get(name), self._settings.outputs
        live = {worker.name for worker in await self._frontier.workers.alive()} | self._supervisor.living
        await control.gather_outputs(self._frontier, crawl, live=live, named=named)
        return control.is_gathered(crawl, named=named)

    async def _stats(self) -> Stats:
        every = [crawl async for crawl in self._frontier.crawls.all()]
        found = [crawl for crawl in every if not crawl.parent]
        counts = [await self._frontier.crawls.count(crawl.id) for crawl in found]
        hosts = [await self._frontier.hosts.waiting(spider) for spider in {crawl.limits.spider for crawl in every}]
        total, now = self._supervisor.total(), time.monotonic()
        then, pages, requests = self._asked
        self._asked = (now, total.pages, total.requests)
        passed = max(now - then, 1e-9)
        return Stats(
            crawls=len(counts), running=sum(crawl.state is State.RUNNING for crawl in found),
            pending=sum(count.open for count in counts), seen=sum(count.admitted for count in counts),
            stored=sum(count.stored for count in counts), failed=sum(count.failed for count in counts),
            hosts=sum(ready + later for ready, later in hosts), workers=len(await self._frontier.workers.alive()),
            pages_a_second=(total.pages - pages) / passed, requests_a_second=(total.requests - requests) / passed,
        )  # fmt: skip

    def _hear(self, event: Event) -> None:
        if event.text:
            self.events.append(event.text)
