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

from shoal import control
from shoal.cli import summary
from shoal.cli.program import FAILED, FINISHED, INTERRUPTED
from shoal.cli.signals import Interrupted, Signals
from shoal.cli.terminal import say, warn
from shoal.cli.workplace import Workplace, orders
from shoal.errors import InvalidInput, ShoalError, SinkError, UnknownCrawl
from shoal.fleet import Event, Supervisor, living, take_back
from shoal.frontier import Frontier
from shoal.model.crawl import Crawl, Limits, State
from shoal.model.policy import Policy
from shoal.settings import Settings, masked
from shoal.sinks import gather, has_parts, open_sink
from shoal.worker import receipt

# The end of a small crawl is looked for often; a large one can wait half a second.
_SOON_SECONDS, _SOON_FOR_SECONDS, _LATER_SECONDS = 0.05, 5.0, 0.5
_PROGRESS_SECONDS = 5.0
_GATHER_SECONDS = 3.0
_STATE_SECONDS = 2.0
# A part of JSON lines is closed after five.
_REST_SECONDS = 8.0


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for. `flags` are settings that were typed; `chosen`: the name is the user's own.

    `nameless`: nobody who runs a site could find out from the user agent whom to write to.
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


def run(job: Job) -> int:
    return asyncio.run(_Running(job).run())


class _Running:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.name = job.name
        self.began_mono = time.monotonic()
        self.wake = asyncio.Event()
        self.troubles: set[str] = set()

    async def run(self) -> int:
        job = self.job
        self.place = Workplace(job.settings)
        self.supervisor = Supervisor(
            flags=orders(job.settings), workers=job.workers, folder=self.place.folder,
            name=os.environ.get("WORKER_ID", ""), on_event=self.hear,
        )  # fmt: skip
        self.signals = Signals(self.supervisor)
        frontier: Frontier | None = None
        try:
            opening = asyncio.create_task(self.signals.race(Frontier.from_settings(job.settings, on_warning=warn)))
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
            say(event.text)

    async def crawl(self, frontier: Frontier) -> int:
        """Begin, wait for the end, and say how it was."""
        await self.tidy(frontier)
        begun = await self.begin(frontier)
        if begun.how is control.How.FINISHED:
            say(f"Crawl {self.name} is finished already ({begun.crawl.why or 'finished'}); choose another --name.")
            await self.gather(frontier, begun.policy)
            await summary.show(frontier, begun.crawl, begun.policy)
            return FINISHED
        self.announce(begun)
        await self.supervisor.start(frontier)
        gone = asyncio.create_task(self.supervisor.wait())
        try:
            over = await self.until_over(frontier, begun.policy, gone)
        finally:
            gone.cancel()
        return await self.end(frontier, begun.policy, over)

    async def tidy(self, frontier: Frontier) -> None:
        """On a store that is ours alone: take back what dead workers hold, pause what was interrupted."""
        if not self.place.embedded:
            return
        if not living(self.place.folder) - self.supervisor.living:
            for name in await control.pause_interrupted(frontier, but=self.name):
                say(f"Crawl {name} was interrupted; it is paused. Go on with it by: {self.command(name)}")
        await take_back(frontier, self.place.folder)

    async def begin(self, frontier: Frontier) -> control.Begun:
        job = self.job
        # Who can use an embedded store is on its machine, whatever that is called today.
        policy = msgspec.structs.replace(job.policy, machine="" if self.place.embedded else platform.node())
        if not job.chosen:
            await self.choose_name(frontier)
        await control.check_places(frontier, policy)
        if job.seeds and not await self.exists(frontier, self.name):
            await self.signals.race(self.try_outputs(policy))
        return await control.begin(
            frontier, name=self.name, seeds=job.seeds, limits=job.limits, policy=policy, given=job.given
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
            sink = open_sink(output, worker=self.supervisor.name, on_trouble=lambda text: warn(text) if text else None)
            try:
                await sink.open()
            finally:
                await sink.close()

    def announce(self, begun: control.Begun) -> None:
        from shoal.cli.crawl import flag_of

        if begun.how is control.How.RESUMED:
            say(f"Crawl {self.name} goes on, with {self.job.workers} workers.")
            if begun.differs:
                flags = ", ".join(flag_of(field) for field in begun.differs)
                warn(f"What the crawl began with still holds, and not the new {flags}; choose another --name for that.")
        else:
            say(f"Crawl {self.name} begins, with {self.job.workers} workers. Ctrl-C pauses it.")
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
                return "finished" if await frontier.crawls.finish(self.name) else "gone"
            return "interrupted"
        finally:
            # A store that is away keeps it waiting; a person who interrupts does not want to.
            for task in (watching, came):
                task.cancel()
            await asyncio.gather(watching, came, return_exceptions=True)

    async def watch(self, frontier: Frontier, policy: Policy) -> None:
        """Until the crawl is over: look for its end, say how far it is, gather what is finished."""
        began = gathered = stated = time.monotonic()
        progress = summary.Progress(self.supervisor)
        paused = False
        while True:
            now = time.monotonic()
            self.wake.clear()
            if await frontier.crawls.finish(self.name):
                return
            if now - stated >= _STATE_SECONDS:
                stated = now
                was, paused = paused, (await frontier.crawls.get(self.name)).state is State.PAUSED
                if paused and not was:
                    say(f"Somebody paused the crawl. Go on with it by: {self.command(self.name, 'resume')}")
            if now - gathered >= _GATHER_SECONDS:
                gathered = now
                await self.gather(frontier, policy)
            if now - progress.said_mono >= _PROGRESS_SECONDS:
                say(progress.line(await frontier.crawls.count(self.name)))
            with contextlib.suppress(TimeoutError):
                pause = _SOON_SECONDS if now - began < _SOON_FOR_SECONDS else _LATER_SECONDS
                await asyncio.wait_for(self.wake.wait(), pause)

    async def end(self, frontier: Frontier, policy: Policy, over: str) -> int:
        grace = self.job.settings.worker.grace_seconds
        if over == "interrupted":
            say("Pausing: open requests may end. Another Ctrl-C ends at once; nothing is lost either way.")
            await self.pause(frontier)
        elif over == "gone" and not await self.others(frontier):
            await self.pause(frontier)
        await self.supervisor.stop(grace)
        await self.gather_rest(frontier, policy)
        crawl = await frontier.crawls.get(self.name)
        total = self.supervisor.total()
        counts = await summary.show(frontier, crawl, policy, total=total, seconds=time.monotonic() - self.began_mono)
        if crawl.state.open:
            what = "is paused" if crawl.state is State.PAUSED else "goes on with other workers"
            why = "All workers have ended: c" if over == "gone" else "C"
            say(f"{why}rawl {self.name} {what}. Resume it with: {self.command(self.name)}")
            return FAILED if over == "gone" else INTERRUPTED
        return self.code(crawl, stored=counts.stored, failed=counts.failed)

    def code(self, crawl: Crawl, *, stored: int, failed: int) -> int:
        if crawl.state is State.STOPPED:
            say(f"Crawl {self.name} was stopped by somebody.")
            return FAILED
        # Like curl and wget: a run that got nothing is an error to the script that called it.
        return FAILED if failed and not stored else FINISHED

    async def pause(self, frontier: Frontier) -> None:
        try:
            crawl = await frontier.crawls.get(self.name)
            if crawl.state is State.RUNNING:
                await frontier.crawls.pause(self.name)
        except ShoalError as error:
            warn(f"The crawl could not be paused: {error}")

    async def others(self, frontier: Frontier) -> set[str]:
        """Workers on the store that are not ours: by their locks, or where there are none by their heartbeats."""
        if self.place.embedded:
            known = living(self.place.folder)
        else:
            known = {worker.name for worker in await frontier.workers.alive()}
        return {name for name in known if not name.startswith(f"{self.supervisor.name}-")}

    async def gather(self, frontier: Frontier, policy: Policy) -> None:
        """Make visible what workers have finished."""
        live = await self.others(frontier) | self.supervisor.living
        for output in policy.outputs:
            try:
                await gather(output, live=live, replay=partial(receipt.replay, frontier))
            except (SinkError, InvalidInput) as error:
                if str(error) not in self.troubles:
                    self.troubles.add(str(error))
                    warn(str(error))

    async def gather_rest(self, frontier: Frontier, policy: Policy) -> None:
        """Workers of others may have helped: they close what they wrote for us some seconds after its last page."""
        until = time.monotonic() + _REST_SECONDS
        await self.gather(frontier, policy)
        while await self.others(frontier) and any(map(has_parts, policy.outputs)) and time.monotonic() < until:
            await asyncio.sleep(_LATER_SECONDS)
            await self.gather(frontier, policy)

    def command(self, name: str, verb: str = "crawl") -> str:
        """What to type, without secrets."""
        return summary.command(name, verb, {key: masked(str(value)) for key, value in self.job.flags.items()})
