"""`shoal worker`: worker processes for the crawls of a store, until a signal.

A machine's workers on somebody's store, while `shoal worker` runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
from functools import partial

import click

from shoal import operations
from shoal.cli.main import FAILED, FINISHED, INTERRUPTED
from shoal.cli.options import WholeNumber, on_store, settings_of, store_flags
from shoal.cli.signals import Interrupted, Signals
from shoal.cli.spider_choice import Chosen
from shoal.cli.ui.console import counted, say, warn
from shoal.cli.ui.json_log import in_json, on_service_log, tell
from shoal.cli.ui.progress import Progress
from shoal.errors import StoreHeld, StoreUnavailable
from shoal.fleet import Event, Supervisor, WorkerFolder, reclaim, startup_settings
from shoal.frontier import Frontier
from shoal.operations.maintenance import Maintainer
from shoal.settings import Settings
from shoal.settings.sections import networks_of


@click.command("worker", short_help="Work for the crawls of a store until a signal.")
@on_store
@click.option(
    "--spider", metavar="FILE.py:CLASS", multiple=True,
    help="Serve crawls of this spider, and no others but of those given.  [default: all that are registered]",
)  # fmt: skip
@click.option("--workers", metavar="N", type=WholeNumber(1, 1000), help="Worker processes.  [default: cores]")
@click.option("--allow-network", metavar="CIDR", multiple=True, help="Private network that may be asked.")
@click.option("--proxy", metavar="URL", help="Forward proxy for all requests.")
@on_service_log
def command(
    store: str | None, folder: str | None, spider: tuple[str, ...], workers: int | None,
    allow_network: tuple[str, ...], proxy: str | None,
) -> int:  # fmt: skip
    """Join a store and work for all of its crawls. Ctrl-C or SIGTERM ends it when open requests have ended."""
    from shoal.cli.commands.crawl import cores
    from shoal.cli.spider_choice import choose

    flags = store_flags(store, folder) | {"fetch.allow_networks": ",".join(allow_network) or None, "fetch.proxy": proxy}
    settings = settings_of(flags)
    # What every worker would refuse is refused at once.
    networks_of(settings.fetch.allow_networks)
    return _run_until_signal(settings, workers or cores(), choose(spider, settings))


def _run_until_signal(settings: Settings, workers: int, spiders: Chosen) -> int:
    return asyncio.run(_run(settings, workers, spiders))


async def _run(settings: Settings, workers: int, spiders: Chosen) -> int:
    place = WorkerFolder(settings)
    supervisor = Supervisor(
        flags=startup_settings(settings), workers=workers, folder=place.folder, name=os.environ.get("WORKER_ID", ""),
        on_event=_hear, spiders=spiders.references, plain=spiders.plain, shared=True,
    )  # fmt: skip
    signals = Signals(supervisor)
    opening = Frontier.from_settings(settings, on_warning=partial(warn, event="store.trouble"))
    try:
        async with await signals.race(opening) as frontier:
            await operations.check_joining(frontier, platform.node())
            await reclaim(frontier, place.folder)
            await supervisor.start(frontier)
            where = frontier.store_name
            work, them = ("works", "it") if workers == 1 else ("work", "them")
            text = f"{counted(workers, 'worker')} of {supervisor.name} {work} on {where}. Ctrl-C ends {them}."
            say(text, event="workers.begin", workers=workers, machine=supervisor.name, store=where)
            with Progress(supervisor, where=where) as progress:
                tender = Maintainer(frontier, settings, tell=_tell_of_crawls)
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
