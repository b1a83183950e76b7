"""A crawl while its command runs: workers at work, progress on stderr, the end noticed, outputs gathered.

Owns the order of things: processes load while the store opens; a crawl is begun only when everything was checked;
a signal pauses it, a second one ends this process at once. Nothing is lost in either case.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import time
from functools import partial
from typing import Any

import msgspec

from shoal import operations
from shoal.cli.feeder import Feeder
from shoal.cli.main import FAILED, FINISHED, INTERRUPTED
from shoal.cli.signals import Interrupted, Signals
from shoal.cli.spider_choice import Chosen, spider_flag
from shoal.cli.ui import summary
from shoal.cli.ui.console import counted, say, warn
from shoal.cli.ui.progress import Progress
from shoal.errors import InvalidInput, ShoalError, UnknownCrawl
from shoal.fleet import Event, Supervisor, Workplace, living, orders, take_back
from shoal.frontier import Frontier
from shoal.model.crawl import Crawl, Limits, State
from shoal.model.crawl_spec import Policy
from shoal.model.visit import Visit
from shoal.settings import Settings, masked
from shoal.sinks import open_sink

# The end of a small crawl is looked for often; a large one can wait half a second.
_SOON_SECONDS, _SOON_FOR_SECONDS, _LATER_SECONDS = 0.05, 5.0, 0.5
_GATHER_SECONDS = 3.0
_STATE_SECONDS = 2.0
# A part of JSON lines is closed after five.
_REST_SECONDS = 8.0


class CrawlJob(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for. `flags` are settings that were typed; `chosen`: the name is the user's own.

    `nameless`: nobody who runs a site could find out from the user agent whom to write to. `rest` are seeds that are
    read while the crawl runs; `again`: a crawl that is finished is visited again; `spider` is how it was typed,
    `visits` where it starts, `startless` why it cannot start anew.
    """

    settings: Settings
    flags: dict[str, Any]
    workers: int
    name: str
    chosen: bool
    seeds: list[str]
    limits: Limits
    policy: Policy
    given: frozenset[str] = frozenset()
    nameless: bool = False
    rest: Any = None
    again: bool = False
    spiders: Chosen = Chosen({}, {}, plain=True)
    spider: str = ""
    startless: InvalidInput | None = None
    visits: list[Visit] = []


def run(job: CrawlJob) -> int:
    return asyncio.run(CrawlRunner(job).run())


class CrawlRunner:
    def __init__(self, job: CrawlJob) -> None:
        self.job = job
        self.name = job.name
        self.began_mono = time.monotonic()
        self.wake = asyncio.Event()
        self.troubles: set[str] = set()
        self.feeder: Feeder | None = None

    async def run(self) -> int:
        job = self.job
        self.place = Workplace(job.settings)
        self.supervisor = Supervisor(
            flags=orders(job.settings), workers=job.workers, folder=self.place.folder,
            name=os.environ.get("WORKER_ID", ""), on_event=self.hear, spiders=job.spiders.references,
            plain=job.spiders.plain,
        )  # fmt: skip
        self.signals = Signals(self.supervisor)
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
            warn("Interrupted before the crawl began.")
            return INTERRUPTED
        finally:
            await self.supervisor.stop(0.0)
            if frontier is not None:
                await frontier.close()
            self.place.close()

    def hear(self, event: Event) -> None:
        if event.kind == "idle":
            self.wake.set()
        elif event.kind != "report":
            say(event.text, event=f"worker.{event.kind}", crawl=self.name, worker=event.worker)

    async def crawl(self, frontier: Frontier) -> int:
        """Begin, wait for the end, and say how it was."""
        await self.tidy(frontier)
        begun = await self.begin(frontier)
        if begun.how is operations.StartMode.FINISHED:
            say(
                f"Crawl {self.name} is finished already ({begun.crawl.why or 'finished'}); choose another --name, "
                "or add --again to visit its pages again.",
                crawl=self.name,
            )
            await self.gather(frontier)
            await summary.show(frontier, begun.crawl, begun.policy)
            return FINISHED
        self.feeder = Feeder(frontier, self.name, begun.policy, self.job.rest, named=self.job.settings.outputs)
        with Progress(
            self.supervisor, crawl=begun.crawl, resumed=begun.how is not operations.StartMode.NEW
        ) as self.progress:
            self.announce(begun)
            await self.supervisor.start(frontier)
            gone = asyncio.create_task(self.supervisor.wait())
            try:
                await self.feeder.start()
                over = await self.until_over(frontier, begun.policy, gone)
            finally:
                gone.cancel()
                await self.feeder.stop()
            await self.wind_up(frontier, begun.policy, over)
        return await self.end(frontier, begun.policy, over, resumed=begun.how is not operations.StartMode.NEW)

    async def tidy(self, frontier: Frontier) -> None:
        """On a store that is ours alone: take back what dead workers hold, pause what was interrupted."""
        if not self.place.embedded:
            return
        if not living(self.place.folder) - self.supervisor.living:
            for name in await operations.pause_interrupted(frontier, but=self.name):
                spider = spider_flag((await frontier.crawls.get(name)).limits.spider, self.job.settings)
                again = self.command(name, spider=spider)
                say(f"Crawl {name} was interrupted; it is paused. Go on with it by: {again}", crawl=name)
        await take_back(frontier, self.place.folder)

    async def begin(self, frontier: Frontier) -> operations.StartedCrawl:
        job = self.job
        # Who can use an embedded store is on its machine, whatever that is called today.
        policy = msgspec.structs.replace(job.policy, machine="" if self.place.embedded else platform.node())
        if not job.chosen:
            await self.choose_name(frontier)
        await operations.check_places(frontier, policy)
        if not await self.exists(frontier, self.name):
            if job.startless is not None:
                raise job.startless
            if job.seeds or job.visits:
                await self.signals.race(self.try_outputs(policy))
        else:
            await self.check_spider(frontier)
        if job.again:
            # What was finished but not gathered is to be visited again, too.
            with contextlib.suppress(UnknownCrawl):
                await self.gather(frontier)
        return await operations.begin(
            frontier, name=self.name, seeds=job.seeds, limits=job.limits, policy=policy, given=job.given,
            again=job.again, visits=job.visits, named=job.settings.outputs,
        )  # fmt: skip

    async def check_spider(self, frontier: Frontier) -> None:
        """A crawl that is read by a spider goes on with that spider or not at all."""
        spider = (await frontier.crawls.get(self.name)).limits.spider
        if spider and spider not in self.job.spiders.references:
            raise InvalidInput(
                f"Crawl {self.name!r} is read by the spider {spider}; give it by --spider FILE.py:{spider}."
            )

    async def choose_name(self, frontier: Frontier) -> None:
        number = 1
        while await self.exists(frontier, self.name):
            number += 1
            self.name = f"{self.job.name}-{number}"

    async def exists(self, frontier: Frontier, name: str) -> bool:
        try:
            await frontier.crawls.get(name)
        except UnknownCrawl:
            return False
        return True

    async def try_outputs(self, policy: Policy) -> None:
        """What can never be written is refused before there is a crawl."""
        for output in policy.outputs:
            uri = self.job.settings.outputs.get(output, output)
            spider = bool(self.job.limits.spider)
            sink = open_sink(uri, worker=self.supervisor.name, on_trouble=self.output_trouble, spider=spider)
            try:
                await sink.open()
            finally:
                await sink.close()

    def output_trouble(self, text: str) -> None:
        if text:
            warn(text, event="output.trouble", crawl=self.name)

    def announce(self, begun: operations.StartedCrawl) -> None:
        from shoal.cli.commands.crawl import flag_of

        if begun.how in (operations.StartMode.RESUMED, operations.StartMode.AGAIN):
            how = "goes on" if begun.how is operations.StartMode.RESUMED else "is visited again"
            say(
                f"Crawl {self.name} {how}, with {counted(self.job.workers, 'worker')}.",
                event="crawl.begin",
                crawl=self.name,
            )
            if begun.differs:
                flags = ", ".join(flag_of(field) for field in begun.differs)
                warn(f"What the crawl began with still holds, and not the new {flags}; choose another --name for that.")
        else:
            text = f"Crawl {self.name} begins, with {counted(self.job.workers, 'worker')}. Ctrl-C pauses it."
            say(text, event="crawl.begin", crawl=self.name)
            if self.job.nameless:
                warn(
                    "The user agent has no contact; add one, as in --user-agent 'name/1.0 (+https://example.org/bot)'."
                )

    async def until_over(self, frontier: Frontier, policy: Policy, gone: asyncio.Task[None]) -> str:
        """'finished', 'gone' when no worker is left, or 'interrupted'."""
        watching = asyncio.create_task(self.watch(frontier, policy))
        came = asyncio.create_task(self.signals.came.wait())
        try:
            await asyncio.wait({watching, came, gone}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
                return "finished"
            if gone.done():
                gone.result()
                # The last worker may have ended with the last page.
                return "finished" if await self.finish(frontier) else "gone"
            return "interrupted"
        finally:
            # A store that is away keeps it waiting; a person who interrupts does not want to.
            for task in (watching, came):
                task.cancel()
            await asyncio.gather(watching, came, return_exceptions=True)

    async def watch(self, frontier: Frontier, policy: Policy) -> None:
        """Until the crawl is over: look for its end, say how far it is, gather what is finished."""
        began = gathered = stated = time.monotonic()
        paused = False
        while True:
            now = time.monotonic()
            self.wake.clear()
            if await self.finish(frontier):
                return
            if now - stated >= _STATE_SECONDS:
                stated = now
                was, paused = paused, (await frontier.crawls.get(self.name)).state is State.PAUSED
                self.progress.state = "paused" if paused else "running"
                await self.tell_missing(frontier)
                if paused and not was:
                    text = f"Somebody paused the crawl. Go on with it by: {self.command(self.name, 'resume')}"
                    say(text, event="crawl.paused", crawl=self.name)
            if now - gathered >= _GATHER_SECONDS:
                gathered = now
                await self.gather(frontier)
            await self.progress.look(frontier)
            with contextlib.suppress(TimeoutError):
                pause = _SOON_SECONDS if now - began < _SOON_FOR_SECONDS else _LATER_SECONDS
                await asyncio.wait_for(self.wake.wait(), pause)

    async def finish(self, frontier: Frontier) -> bool:
        """Close the crawl if nothing is left of it, nor still to come."""
        return self.feeder is not None and self.feeder.done and await frontier.crawls.finish(self.name)

    async def tell_missing(self, frontier: Frontier) -> None:
        """Once for each spider that nobody has."""
        for text in await operations.waiting_for(frontier, await frontier.crawls.known(self.name)):
            if text not in self.troubles:
                self.troubles.add(text)
                say(f"Crawl {self.name} is {text}.", event="crawl.waiting", crawl=self.name)

    async def wind_up(self, frontier: Frontier, policy: Policy, over: str) -> None:
        """Let the workers end, and gather what they leave."""
        self.progress.state = "ending"
        if over == "interrupted":
            self.progress.state = "pausing"
            text = "Pausing: open requests may end. Another Ctrl-C ends at once; nothing is lost either way."
            say(text, event="crawl.paused", crawl=self.name)
            await self.pause(frontier)
        elif over == "gone" and not await self.others(frontier):
            await self.pause(frontier)
        await self.supervisor.stop(self.job.settings.worker.grace_seconds)
        await self.gather_rest(frontier)

    async def end(self, frontier: Frontier, policy: Policy, over: str, *, resumed: bool) -> int:
        """Say how it was."""
        crawl = await frontier.crawls.get(self.name)
        total = self.supervisor.total()
        counts = await summary.show(
            frontier, crawl, policy, total=total, seconds=time.monotonic() - self.began_mono, resumed=resumed
        )
        if crawl.state.open:
            what = "is paused"
            if crawl.state is not State.PAUSED:
                what = "goes on with other workers" if await self.others(frontier) else "is interrupted"
            why = "All workers have ended: c" if over == "gone" else "C"
            again = self.command(self.name, spider=self.job.spider)
            text = f"{why}rawl {self.name} {what}. Resume it with: {again}"
            say(text + (self.feeder.flag if self.feeder else ""), crawl=self.name)
            return FAILED if over == "gone" else INTERRUPTED
        return self.code(crawl, stored=counts.stored, failed=counts.failed)

    def code(self, crawl: Crawl, *, stored: int, failed: int) -> int:
        if crawl.state is State.STOPPED:
            say(f"Crawl {self.name} was stopped by somebody.", crawl=self.name)
            return FAILED
        # Like curl and wget: a run that got nothing is an error to the script that called it.
        return FAILED if failed and not stored else FINISHED

    async def pause(self, frontier: Frontier) -> None:
        try:
            # Somebody waits for the end; a store that is full or away may take long to say so.
            async with asyncio.timeout(self.job.settings.worker.grace_seconds):
                crawl = await frontier.crawls.get(self.name)
                if crawl.state is State.RUNNING:
                    await frontier.crawls.pause(self.name)
        except (ShoalError, TimeoutError) as error:
            why = str(error) or "the store takes too long."
            warn(f"The crawl could not be paused: {why}", event="store.trouble", crawl=self.name)

    async def others(self, frontier: Frontier) -> set[str]:
        """Workers on the store that are not ours: by their locks, or where there are none by their heartbeats."""
        if self.place.embedded:
            known = living(self.place.folder)
        else:
            # Processes of Scrapy are on the store, too, and write no output of ours.
            known = {worker.name for worker in await frontier.workers.alive() if worker.info.get("owns", True)}
        return {name for name in known if not name.startswith(f"{self.supervisor.name}-")}

    async def gather(self, frontier: Frontier) -> None:
        """Make visible what workers have finished."""
        live = await self.others(frontier) | self.supervisor.living
        crawl, named = await frontier.crawls.known(self.name), self.job.settings.outputs
        for text in await operations.gather_outputs(frontier, crawl, live=live, named=named):
            if text not in self.troubles:
                self.troubles.add(text)
                self.output_trouble(text)

    async def gather_rest(self, frontier: Frontier) -> None:
        """Workers of others may have helped: they close what they wrote for us some seconds after its last page."""
        until = time.monotonic() + _REST_SECONDS
        await self.gather(frontier)
        crawl, named = await frontier.crawls.known(self.name), self.job.settings.outputs
        while (
            await self.others(frontier) and not operations.is_gathered(crawl, named=named) and time.monotonic() < until
        ):
            await asyncio.sleep(_LATER_SECONDS)
            await self.gather(frontier)

    def command(self, name: str, verb: str = "crawl", *, spider: str = "") -> str:
        """What to type, without secrets."""
        flags = {key: masked(str(value)) for key, value in self.job.flags.items()}
        return summary.command(name, verb, flags, spider)
