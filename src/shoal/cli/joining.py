"""A machine's workers on somebody's store, while `shoal worker` runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
from functools import partial

from shoal import operations
from shoal.cli.log import in_json, tell
from shoal.cli.program import FAILED, FINISHED, INTERRUPTED
from shoal.cli.progress import Progress
from shoal.cli.signals import Interrupted, Signals
from shoal.cli.spiders import Chosen
from shoal.cli.terminal import counted, say, warn
from shoal.errors import StoreHeld, StoreUnavailable
from shoal.fleet import Event, Supervisor, Workplace, orders, take_back
from shoal.frontier import Frontier
from shoal.operations.maintenance import Tender
from shoal.settings import Settings


def run(settings: Settings, workers: int, spiders: Chosen) -> int:
    return asyncio.run(_run(settings, workers, spiders))


async def _run(settings: Settings, workers: int, spiders: Chosen) -> int:
    place = Workplace(settings)
    supervisor = Supervisor(
        flags=orders(settings), workers=workers, folder=place.folder, name=os.environ.get("WORKER_ID", ""),
        on_event=_hear, spiders=spiders.references, plain=spiders.plain, shared=True,
    )  # fmt: skip
    signals = Signals(supervisor)
    opening = Frontier.from_settings(settings, on_warning=partial(warn, event="store.trouble"))
    try:
        async with await signals.race(opening) as frontier:
            await operations.check_joining(frontier, platform.node())
            await take_back(frontier, place.folder)
            await supervisor.start(frontier)
            where = frontier.shards.store.shown
            work, them = ("works", "it") if workers == 1 else ("work", "them")
            text = f"{counted(workers, 'worker')} of {supervisor.name} {work} on {where}. Ctrl-C ends {them}."
            say(text, event="workers.begin", workers=workers, machine=supervisor.name, store=where)
            with Progress(supervisor, where=where) as progress:
                tender = Tender(frontier, settings, tell=_tell_of_crawls)
                beside = [asyncio.create_task(_tell(progress, frontier)), asyncio.create_task(tender.run())]
                try:
                    await signals.race(supervisor.wait())
                except Interrupted:
                    progress.state = "ending"
                    say("Ending: open requests may end. Another Ctrl-C ends at once; nothing is lost either way.")
                    await supervisor.stop(settings.worker.grace_seconds)
                finally:
                    for task in beside:
                        task.cancel()
                    await asyncio.gather(*beside, return_exceptions=True)
            if signals.came.is_set():
                total = supervisor.total()
                were = "was" if total.pages == 1 else "were"
                text = f"{counted(total.pages, 'page')} {were} stored, {counted(total.requests, 'request')} made."
                say(text, event="workers.end", pages=total.pages, requests=total.requests, bytes=total.bytes)
                return FINISHED
            warn("All workers have ended.", event="workers.end")
            return FAILED
    except Interrupted:
        return INTERRUPTED
    finally:
        await supervisor.stop(0.0)
        place.close()


async def _tell(progress: Progress, frontier: Frontier) -> None:
    while True:
        # A store that does not answer is what the workers tell of.
        with contextlib.suppress(StoreUnavailable, StoreHeld):
            await progress.look(frontier)
        await asyncio.sleep(1.0)


def _tell_of_crawls(text: str, /, *, event: str, **facts: object) -> None:
    """What happens to crawls is one worker's to notice, by chance: people who watch are told of troubles alone."""
    if in_json() or event.endswith((".trouble", ".failed")):
        tell(text, event=event, **facts)


def _hear(event: Event) -> None:
    if event.kind not in ("report", "idle"):
        say(event.text, event=f"worker.{event.kind}", worker=event.worker)
