"""`shoal crawl` while it runs: starts workers, drives a CrawlRun, and renders its events and its end for a terminal.

Worker processes load while the store opens. The crawl is created only after everything was checked. A signal pauses
it; a second one stops this process at once. Nothing is lost in either case.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import shlex
import time
from functools import partial
from typing import Any

import msgspec

from shoal import operations
from shoal.cli.main import FAILED, FINISHED, INTERRUPTED
from shoal.cli.signals import Interrupted, StopSignals
from shoal.cli.spider_choice import Chosen, spider_flag
from shoal.cli.standard_output import RecordCopy
from shoal.cli.ui import summary
from shoal.cli.ui.console import pluralize, report, warn
from shoal.cli.ui.json_log import emit
from shoal.cli.ui.progress import Progress
from shoal.cli.ui.request_log import report_request
from shoal.errors import InvalidInput, StoreError, UnknownCrawl
from shoal.fleet import Event, Supervisor, WorkerFolder, live_workers, reclaim, startup_settings
from shoal.frontier import Frontier
from shoal.model.crawl import Crawl, State
from shoal.model.crawl_options import flag_of
from shoal.model.crawl_spec import CrawlSpec
from shoal.model.visit import Visit
from shoal.operations.run import CrawlRun, RunEnd, other_workers
from shoal.settings import Settings, masked
from shoal.sinks import open_sink, remove_output


class CrawlJob(msgspec.Struct, frozen=True, kw_only=True):
    """The request of the user.

    flags        settings on the command line
    chosen       whether the user chose the name
    no_contact   whether the user agent has no contact address
    more_seeds   seeds that are read while the crawl runs
    again        revisit a finished crawl
    spider       the spider as it was typed
    visits       the first visits of the spider
    start_error  why the spider cannot start a new crawl
    """

    settings: Settings
    flags: dict[str, Any]
    workers: int
    name: str
    chosen: bool
    seeds: list[str]
    spec: CrawlSpec
    given: frozenset[str] = frozenset()
    no_contact: bool = False
    verbose: bool = False
    more_seeds: Any = None
    again: bool = False
    spiders: Chosen = Chosen({}, {}, plain=True)
    spider: str = ""
    start_error: InvalidInput | None = None
    visits: list[Visit] = []
    # Files that a new crawl overwrites.
    overwrite: tuple[str, ...] = ()


def run(job: CrawlJob) -> int:
    return asyncio.run(CrawlRunner(job).run())


class CrawlRunner:
    def __init__(self, job: CrawlJob) -> None:
        self.job = job
        self.name = job.name
        self.started_mono = time.monotonic()
        self.crawl_run: CrawlRun | None = None
        self.progress: Progress | None = None

    async def run(self) -> int:
        job = self.job
        self.worker_folder = WorkerFolder(job.settings)
        self.supervisor = Supervisor(
            flags=startup_settings(job.settings), workers=job.workers, folder=self.worker_folder.folder,
            name=os.environ.get("WORKER_ID", ""), on_event=self.on_worker_event, spiders=job.spiders.references,
            plain=job.spiders.plain, on_request=report_request if job.verbose else None,
        )  # fmt: skip
        self.signals = StopSignals(self.supervisor, on_kill=self.on_kill)
        frontier: Frontier | None = None
        try:
            opening = asyncio.create_task(
                self.signals.race(Frontier.from_settings(job.settings, on_warning=partial(warn, event="store.trouble")))
            )
            try:
                await self.supervisor.warm()
            finally:
                frontier = await opening
            return await self.crawl(frontier)
        except Interrupted:
            warn("Interrupted before the crawl started.")
            return INTERRUPTED
        finally:
            await self.supervisor.stop(0.0)
            if frontier is not None:
                await frontier.close()
            self.worker_folder.close()

    def on_kill(self) -> None:
        """Remove the display and print the resume command, before a second signal ends the process."""
        if self.progress is not None:
            self.progress.close()
            self.report_interrupted()

    def report_interrupted(self) -> None:
        resume = self.command(self.name, spider=self.job.spider)
        report(f"Crawl {self.name} was interrupted. Resume with: {resume}", event="crawl.paused", crawl=self.name)

    def on_worker_event(self, event: Event) -> None:
        if event.kind == "idle":
            if self.crawl_run is not None:
                self.crawl_run.wake()
        elif event.kind != "report":
            report(event.text, event=f"worker.{event.kind}", crawl=self.name, worker=event.worker)

    def on_crawl_event(self, text: str, /, *, event: str, **facts: object) -> None:
        if event == "crawl.paused":
            text = f"{text} Resume with: {self.command(self.name, 'resume')}"
        emit(text, event=event, **facts)

    async def crawl(self, frontier: Frontier) -> int:
        """Start the crawl, drive it to its end, and print how it ended."""
        job = self.job
        await self.pause_interrupted(frontier)
        if not job.chosen:
            await self.choose_name(frontier)
        run = self.crawl_run = CrawlRun(
            frontier, self.name, outputs=job.settings.outputs, emit=self.on_crawl_event,
            others=lambda: other_workers(frontier, self.worker_folder, self.supervisor), served=job.spiders.references,
        )  # fmt: skip
        started = await self.start(frontier, run)
        resumed = started.how is not operations.StartMode.NEW
        if started.how is operations.StartMode.FINISHED:
            failed = (await frontier.crawls.count(self.name)).failed
            report(self.finished_text(started.crawl, failed), crawl=self.name)
            complete = await run.merge_rest(self.signals.received)
            await summary.show(frontier, started.crawl, started.spec, settings=job.settings)
            return FINISHED if complete else FAILED
        try:
            with Progress(self.supervisor, crawl=started.crawl, resumed=resumed) as progress:
                self.progress = progress
                self.announce(started)
                self.records = RecordCopy(started.spec.outputs, job.settings)
                end = await self.drive(frontier, run, started.spec, progress)
                complete = await run.merge_rest(self.signals.received) if end is RunEnd.FINISHED else await run.merge()
        except StoreError:
            self.report_interrupted()
            raise
        if self.records.copy() and end is RunEnd.FINISHED and complete:
            self.records.remove()
        code = await self.report_end(frontier, run, started.spec, end, resumed=resumed)
        return FAILED if end is RunEnd.FINISHED and not complete else code

    def finished_text(self, crawl: Crawl, failed: int) -> str:
        """Return the message for a crawl that was finished before. It suggests only flags and commands that work."""
        flags = {"max pages": "--max-pages", "bytes": "--max-bytes", "max time": "--max-time"}
        if flag := flags.get(crawl.why):
            return f"Crawl {self.name} has reached its {flag}. Pass a higher {flag} to continue it."
        text = f"Crawl {self.name} is already finished. Choose another --name, or pass --again to revisit its pages."
        if not failed:
            return text
        return f"{text} Retry {pluralize(failed, 'failed URL')} with: {self.command(self.name, 'failed')} --retry"

    async def drive(self, frontier: Frontier, run: CrawlRun, spec: CrawlSpec, progress: Progress) -> RunEnd:
        async def on_check() -> None:
            if not self.records.copy():
                # The records are no longer read, e.g. because `head` has exited.
                self.signals.received.set()
            progress.state = "paused" if run.paused else "running"
            await progress.update(frontier)

        await self.supervisor.start(frontier)
        workers = asyncio.create_task(self.supervisor.wait())
        try:
            await run.feed(spec, self.job.more_seeds)
            end = await run.watch(workers, self.signals.received, on_check=on_check)
        finally:
            workers.cancel()
            await run.stop_feeding()
        progress.state = "stopping"
        grace_seconds = self.job.settings.worker.grace_seconds
        if end is RunEnd.INTERRUPTED:
            progress.state = "pausing"
            text = (
                "Pausing: waiting for in-flight requests. Press Ctrl-C again to quit now; nothing is lost either way."
            )
            report(text, event="crawl.paused", crawl=self.name)
            await run.pause(grace_seconds)
        elif end is not RunEnd.FINISHED and not await self.others(frontier):
            await run.pause(grace_seconds)
        await self.supervisor.stop(grace_seconds)
        return end

    async def pause_interrupted(self, frontier: Frontier) -> None:
        """On an embedded store: reclaim the leases of dead workers, and pause crawls that were interrupted."""
        if not self.worker_folder.embedded:
            return
        if not live_workers(self.worker_folder.folder) - self.supervisor.live_workers:
            for name in await operations.pause_interrupted(frontier, but=self.name):
                spider = spider_flag((await frontier.crawls.get(name)).limits.spider, self.job.settings)
                resume = self.command(name, spider=spider)
                report(f"Crawl {name} was interrupted; it is now paused. Resume with: {resume}", crawl=name)
        await reclaim(frontier, self.worker_folder.folder)

    async def start(self, frontier: Frontier, run: CrawlRun) -> operations.StartedCrawl:
        job = self.job
        # Users of an embedded store are on its machine, even if the machine's name has changed.
        spec = msgspec.structs.replace(job.spec, machine="" if self.worker_folder.embedded else platform.node())
        await operations.check_places(frontier, spec)
        if not await self.exists(frontier, self.name):
            if job.start_error is not None:
                raise job.start_error
            for output in job.overwrite:
                remove_output(output)
            if job.seeds or job.visits:
                await self.signals.race(self.try_outputs(spec))
        else:
            await self.check_spider(frontier)
        if job.again:
            # The pass reads the pages from the output, so the output must have all of them.
            with contextlib.suppress(UnknownCrawl):
                await run.merge()
        return await run.start(seeds=job.seeds, spec=spec, given=job.given, again=job.again, visits=job.visits)

    async def check_spider(self, frontier: Frontier) -> None:
        """A crawl that has a spider can only be resumed with that spider."""
        spider = (await frontier.crawls.get(self.name)).limits.spider
        if spider and spider not in self.job.spiders.references:
            raise InvalidInput(f"Crawl {self.name!r} uses the spider {spider}; pass --spider FILE.py:{spider}.")

    async def choose_name(self, frontier: Frontier) -> None:
        number = 1
        while await self.exists(frontier, self.name):
            number += 1
            self.name = f"{self.job.name}-{number}"

    async def exists(self, frontier: Frontier, name: str) -> bool:
        try:
            return (await frontier.crawls.get(name)).state is not State.DELETED
        except UnknownCrawl:
            return False

    async def try_outputs(self, spec: CrawlSpec) -> None:
        """Refuse an output that can never be written before the crawl is created."""
        for output in spec.all_outputs:
            uri = self.job.settings.outputs.get(output, output)
            spider = bool(spec.spider) or output in spec.changes
            sink = open_sink(uri, worker=self.supervisor.name, on_trouble=self.output_trouble, spider=spider)
            try:
                await sink.open()
            finally:
                await sink.close()

    def output_trouble(self, text: str) -> None:
        if text:
            warn(text, event="output.trouble", crawl=self.name)

    def announce(self, started: operations.StartedCrawl) -> None:
        workers = pluralize(self.job.workers, "worker")
        if started.how is operations.StartMode.NEW:
            text = f"Starting crawl {self.name} with {workers}. Press Ctrl-C to pause it."
        elif started.how is operations.StartMode.AGAIN:
            text = f"Revisiting crawl {self.name} with {workers}."
        else:
            text = f"Resuming crawl {self.name} with {workers}."
        report(text, event="crawl.started", crawl=self.name)
        for limit in started.raised:
            report(f"{flag_of(limit)} was raised.", crawl=self.name)
        if started.differs:
            flags = ", ".join(flag_of(field) for field in started.differs)
            verb = "is" if len(started.differs) == 1 else "are"
            warn(
                f"{flags} {verb} ignored: an existing crawl keeps its original settings. Limits, delay and patterns "
                f"can be changed with: shoal change {self.name}. For others, choose another --name."
            )
        if started.how is operations.StartMode.NEW and self.job.no_contact:
            warn("The user agent has no contact; add one, e.g. --user-agent 'name/1.0 (+https://example.org/bot)'.")

    async def report_end(
        self, frontier: Frontier, run: CrawlRun, spec: CrawlSpec, end: RunEnd, *, resumed: bool
    ) -> int:  # fmt: skip
        """Print the summary and return the exit code."""
        crawl = await frontier.crawls.get(self.name)
        total = self.supervisor.total()
        counts = await summary.show(
            frontier, crawl, spec, settings=self.job.settings, total=total,
            seconds=time.monotonic() - self.started_mono, resumed=resumed,
        )  # fmt: skip
        if crawl.state.open:
            seeds = run.unread_seeds
            sentences = []
            if end is RunEnd.WORKERS_GONE:
                sentences.append("All workers have stopped.")
            elif end is RunEnd.SEEDS_MISSING:
                sentences.append(f"Not all seeds of crawl {self.name} were read.")
                seeds = "FILE"
            # For a paused crawl, the summary already shows the state.
            if crawl.state is not State.PAUSED:
                state = "continues on other workers" if await self.others(frontier) else "was interrupted"
                sentences.append(f"Crawl {self.name} {state}.")
            resume = self.command(self.name, spider=self.job.spider)
            flag = f" --seeds {shlex.quote(seeds)}" if seeds else ""
            report(" ".join([*sentences, f"Resume with: {resume}{flag}"]), crawl=self.name)
            return INTERRUPTED if end is RunEnd.INTERRUPTED else FAILED
        return self.exit_code(crawl, stored=counts.stored, failed=counts.failed)

    def exit_code(self, crawl: Crawl, *, stored: int, failed: int) -> int:
        if crawl.state is State.STOPPED:
            report(f"Crawl {self.name} was stopped externally.", crawl=self.name)
            return FAILED
        # As with curl and wget, a run that fetched nothing is an error.
        return FAILED if failed and not stored else FINISHED

    async def others(self, frontier: Frontier) -> set[str]:
        return await other_workers(frontier, self.worker_folder, self.supervisor)

    def command(self, name: str, verb: str = "crawl", *, spider: str = "") -> str:
        """Return the command to type, without secrets."""
        flags = {key: masked(str(value)) for key, value in self.job.flags.items()}
        return summary.resume_command(name, verb, flags, spider)
