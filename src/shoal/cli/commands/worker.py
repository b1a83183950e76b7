"""`shoal worker`: worker processes for the crawls of a store, until a signal."""

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
from shoal.cli.ui.console import pluralize, report, warn
from shoal.cli.ui.json_log import emit, is_json, on_service_log
from shoal.cli.ui.progress import Progress
from shoal.errors import StoreHeld, StoreUnavailable
from shoal.fleet import Event, Supervisor, WorkerFolder, reclaim, startup_settings
from shoal.frontier import Frontier
from shoal.operations.maintenance import Maintainer
from shoal.settings import Settings
from shoal.settings.sections import networks_of


@click.command("worker", short_help="Run workers for the crawls of a store.")
@on_store
@click.option(
    "--spider", metavar="FILE.py:CLASS", multiple=True,
    help="Work only on crawls of this spider; may be repeated.  [default: all registered spiders]",
)  # fmt: skip
@click.option("--workers", metavar="N", type=WholeNumber(1, 1000), help="Worker processes.  [default: cores]")
@click.option("--allow-network", metavar="CIDR", multiple=True, help="Allow requests to this private network.")
@click.option("--proxy", metavar="URL", help="Forward proxy for all requests.")
@on_service_log
def command(
    store: str | None, folder: str | None, spider: tuple[str, ...], workers: int | None,
    allow_network: tuple[str, ...], proxy: str | None,
) -> int:  # fmt: skip
    """Connect to a store and work on all of its crawls. Ctrl-C or SIGTERM stops it after in-flight requests."""
    from shoal.cli.commands.crawl import cores
    from shoal.cli.spider_choice import choose

    flags = store_flags(store, folder) | {"fetch.allow_networks": ",".join(allow_network) or None, "fetch.proxy": proxy}
    settings = settings_of(flags)
    # Checked before any worker starts.
    networks_of(settings.fetch.allow_networks)
    return _run_until_signal(settings, workers or cores(), choose(spider, settings))


def _run_until_signal(settings: Settings, workers: int, spiders: Chosen) -> int:
    return asyncio.run(_run(settings, workers, spiders))


async def _run(settings: Settings, workers: int, spiders: Chosen) -> int:
    place = WorkerFolder(settings)
    supervisor = Supervisor(
        flags=startup_settings(settings), workers=workers, folder=place.folder, name=os.environ.get("WORKER_ID", ""),
        on_event=_on_event, spiders=spiders.references, plain=spiders.plain, shared=True,
    )  # fmt: skip
    signals = Signals(supervisor)
    opening = Frontier.from_settings(settings, on_warning=partial(warn, event="store.trouble"))
    try:
        async with await signals.race(opening) as frontier:
            await operations.check_joining(frontier, platform.node())
            await reclaim(frontier, place.folder)
            await supervisor.start(frontier)
            where = frontier.store_name
            text = f"{pluralize(workers, 'worker')} on {supervisor.name} connected to {where}. Press Ctrl-C to stop."
            report(text, event="workers.started", workers=workers, machine=supervisor.name, store=where)
            with Progress(supervisor, where=where) as progress:
                maintainer = Maintainer(frontier, settings, emit=_emit_trouble)
                beside = [asyncio.create_task(_update(progress, frontier)), asyncio.create_task(maintainer.run())]
                try:
                    await signals.race(supervisor.wait())
                except Interrupted:
                    progress.state = "stopping"
                    report(
                        "Stopping: waiting for in-flight requests. Press Ctrl-C again to quit now; "
                        "nothing is lost either way."
                    )
                    await supervisor.stop(settings.worker.grace_seconds)
                finally:
                    for task in beside:
                        task.cancel()
                    await asyncio.gather(*beside, return_exceptions=True)
            if signals.received.is_set():
                total = supervisor.total()
                text = f"Stored {pluralize(total.pages, 'page')} with {pluralize(total.requests, 'request')}."
                report(text, event="workers.stopped", pages=total.pages, requests=total.requests, bytes=total.bytes)
                return FINISHED
            warn("All workers have stopped.", event="workers.stopped")
            return FAILED
    except Interrupted:
        return INTERRUPTED
    finally:
        await supervisor.stop(0.0)
        place.close()


async def _update(progress: Progress, frontier: Frontier) -> None:
    while True:
        # The workers report that the store is unavailable.
        with contextlib.suppress(StoreUnavailable, StoreHeld):
            await progress.update(frontier)
        await asyncio.sleep(1.0)


def _emit_trouble(text: str, /, *, event: str, **facts: object) -> None:
    """As text, only troubles: which of many workers does the maintenance is chance."""
    if is_json() or event.endswith((".trouble", ".failed")):
        emit(text, event=event, **facts)


def _on_event(event: Event) -> None:
    if event.kind not in ("report", "idle"):
        report(event.text, event=f"worker.{event.kind}", worker=event.worker)
