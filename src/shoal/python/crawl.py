"""`shoal.crawl`: a crawl in the calling process; the caller iterates over its records.

    for record in shoal.crawl("https://books.example", spider=Books, max_pages=1000):
        print(record)

One worker runs in a thread of this process, so classes of `__main__` and notebooks work; for more workers, see
`shoal.Coordinator`. The store is temporary, unless `folder` names a folder to keep it in: then the same `name` resumes
a crawl that was interrupted.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from shoal.errors import InvalidInput, SettingsError
from shoal.fleet import WorkerFiles, live_workers, reclaim
from shoal.frontier import Frontier
from shoal.model.crawl import Counts
from shoal.model.crawl_request import CrawlRequest
from shoal.model.record import Item
from shoal.model.visit import Visit
from shoal.operations import StartMode
from shoal.operations.events import WARNINGS
from shoal.operations.run import CrawlRun, RunEnd
from shoal.operations.submit import Submission, check_terms, spider_settings, to_submission
from shoal.python.loop_thread import LoopThread
from shoal.settings import Settings, load
from shoal.sinks.iterator import CHANNELS, Channel
from shoal.spider import Spider, check_arguments, name_of, unique
from shoal.store.embedded import remove_folder
from shoal.worker.crawl_context import CALLER, lane_of
from shoal.worker.spider_runner import SpiderRunner, first_visits
from shoal.worker.worker import Worker

_FIELD_PATH, _FOR_FIELD = re.compile(r" - at `\$\.([^`]*)`"), r" for \1"
_OWN_STORE = ("store.url", "store.folder")


class Crawling:
    """A crawl in this process. Iterate over it once, with `for` or `async for`; leaving the loop stops it.

    Without a spider each record is a `shoal.Record`, the row of a page; with one it is the dict of an item.
    """

    def __init__(
        self, submission: Submission, first: Sequence[Visit], spiders: Mapping[str, type[Spider]], folder: str | None,
        settings: Settings,
    ) -> None:  # fmt: skip
        self._submission = submission
        self._first = first
        self._spiders = spiders
        self._folder = folder
        self._temporary = ""
        self._settings = settings
        self._output = f"{CALLER}{submission.name}"
        self._lane = lane_of(submission.name)
        self._channel = Channel()
        self._stopping = asyncio.Event()
        self._started = False
        self._background: LoopThread | None = None
        self.counts = Counts()

    def __iter__(self) -> Iterator[Any]:
        self._start()
        try:
            while (batch := self._channel.get()) is not None:
                yield from map(_shown, batch)
        finally:
            self.stop()

    async def __aiter__(self) -> AsyncIterator[Any]:
        self._start()
        try:
            while (batch := await self._channel.aget()) is not None:
                for record in batch:
                    yield _shown(record)
        finally:
            await asyncio.to_thread(self.stop)

    def stop(self) -> None:
        """Stop after the in-flight requests. Called automatically when the loop is left."""
        background, self._background = self._background, None
        # A forked process has no thread of this crawl, and must not remove its folder.
        if background is None or os.getpid() != self._pid:
            return
        atexit.unregister(self.stop)
        CHANNELS.pop(self._output, None)
        background.call(self._stopping.set)
        try:
            # The caller has received the error already, unless it left the loop before.
            with contextlib.suppress(Exception, asyncio.CancelledError):
                self._running.result()
        finally:
            background.close()
            if self._temporary:
                remove_folder(Path(self._temporary))

    def _start(self) -> None:
        if self._started:
            raise InvalidInput("A crawl can be iterated over once; call shoal.crawl again.")
        if self._output in CHANNELS:
            raise InvalidInput(f"Crawl {self._submission.name!r} is already running in this process.")
        self._started = True
        self._pid = os.getpid()
        if self._folder is None:
            self._temporary = tempfile.mkdtemp(prefix="shoal-crawl-")
        where = msgspec.structs.replace(self._settings.store, url="", folder=self._folder or self._temporary)
        self._settings = msgspec.structs.replace(self._settings, store=where)
        CHANNELS[self._output] = self._channel
        # A program may exit inside the loop; later, during finalization, no thread runs any more.
        atexit.register(self.stop)
        self._background = LoopThread("shoal-crawl")
        self._running = self._background.start(self._run())

    async def _run(self) -> None:
        try:
            await self._crawl(self._stopping)
        except BaseException as error:
            self._channel.end(error)
            raise
        self._channel.end()

    async def _crawl(self, stopping: asyncio.Event) -> None:
        submission = self._submission
        async with await Frontier.from_settings(self._settings) as frontier:
            spiders = SpiderRunner(self._spiders or {"": None})
            spec = msgspec.structs.replace(
                submission.spec,
                spider=self._lane + submission.spec.spider,
                outputs=(*submission.spec.outputs, self._output),
            )
            await reclaim(frontier, self._worker_folder)
            run = CrawlRun(
                frontier, submission.name, outputs=self._settings.outputs, emit=_print_warning,
                others=partial(self._other_workers, frontier.worker),
            )  # fmt: skip
            started = await run.start(seeds=submission.urls, visits=self._first, spec=spec)
            end = RunEnd.FINISHED
            if started.how is not StartMode.FINISHED:
                worker = Worker(frontier, self._settings, spiders=spiders, lane=self._lane)
                with self._worker_files(frontier.worker):
                    working = asyncio.create_task(worker.run())
                    try:
                        await run.feed(started.spec)
                        end = await run.watch(working, stopping)
                    finally:
                        await run.stop_feeding()
                        worker.stop()
                        await working
            # Also if it was finished before: the process that finished it may have been killed before it merged.
            await (run.merge_rest(stopping) if end is RunEnd.FINISHED else run.merge())
            self.counts = await frontier.crawls.count(submission.name)

    @contextlib.contextmanager
    def _worker_files(self, worker: str) -> Iterator[None]:
        """Hold the worker's lock file, so that the next process sees at once if this one was killed."""
        files = WorkerFiles.create(self._worker_folder, worker)
        try:
            yield
        finally:
            files.hand_over()
            files.remove()

    @property
    def _worker_folder(self) -> Path:
        return Path(self._settings.store.folder) / "workers"

    async def _other_workers(self, own: str) -> set[str]:
        return live_workers(self._worker_folder) - {own}


def crawl(
    *urls: str,
    spider: type[Spider] | None = None,
    spiders: Iterable[type[Spider]] = (),
    name: str | None = None,
    folder: str | None = None,
    settings: Mapping[str, Any] | None = None,
    **terms: Any,
) -> Crawling:
    """Crawl from `urls`, or from the spider's own start URLs, and iterate over the records.

    `spiders` are the spiders that `spider` sends pages to. `terms` are the fields of a crawl request, such as scope,
    max_pages, delay_seconds and outputs (docs/reference/api.md). `settings` are those of shoal.toml, e.g.
    {"fetch.proxy": ...}.
    """
    if folder is not None and name is None:
        raise InvalidInput("A crawl with a folder needs a name: the same name resumes it.")
    if "seeds" in terms:
        raise InvalidInput(
            "shoal.crawl has no seeds argument: pass the URLs first, e.g. shoal.crawl(*urls, max_pages=100)."
        )
    check_terms(terms, "shoal.crawl")
    known = _known(spider, spiders)
    fields = {"seeds": urls, "name": name or f"python-{time.time_ns()}", **terms}
    first: list[Visit] = []
    if spider is not None:
        spider_settings(spider)
        fields = dict(spider.settings) | fields
        arguments = terms.get("arguments", {})
        check_arguments(spider, arguments)
        fields["spider"] = name_of(spider)
        if not urls:
            background = LoopThread("shoal-start")
            try:
                first = background.do(first_visits(spider, arguments))
            finally:
                background.close()
            fields["seeds"] = [visit.url for visit in first]
    try:
        request = CrawlRequest.of_fields(fields)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"Invalid argument of shoal.crawl: {_FIELD_PATH.sub(_FOR_FIELD, str(error))}.") from None
    return Crawling(to_submission(request), first, known, folder, _loaded(settings or {}))


def _known(spider: type[Spider] | None, others: Iterable[type[Spider]]) -> dict[str, type[Spider]]:
    """The spiders by name. Raises InvalidInput if one of them is not a spider class."""
    others = list(others)
    if spider is None and others:
        raise InvalidInput("`spiders` are classes that `spider` sends pages to: pass `spider` too.")
    every = [] if spider is None else [spider, *others]
    for candidate in every:
        if not (isinstance(candidate, type) and issubclass(candidate, Spider)):
            raise InvalidInput(f"{candidate!r} is not a spider: pass the class itself, a subclass of shoal.Spider.")
    return unique((name_of(known), known) for known in every)


def _loaded(settings: Mapping[str, Any]) -> Settings:
    for key in _OWN_STORE:
        if key in settings:
            raise InvalidInput(
                f"shoal.crawl has its own store, so settings must not have {key}: pass folder= to keep it, "
                "or use shoal.Coordinator(store=...) for crawls on a shared store."
            )
    try:
        return load(flags=settings).settings
    except SettingsError as error:
        # `load` reports them as flags of the command line.
        text = str(error).replace("The command line has", "settings has").replace("on the command line", "in settings")
        raise SettingsError(text) from None


def _print_warning(text: str, /, *, event: str, **facts: object) -> None:
    if event in WARNINGS:
        print(text, file=sys.stderr, flush=True)


def _shown(record: Any) -> Any:
    return record.data if isinstance(record, Item) else record
