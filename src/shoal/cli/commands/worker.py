"""`shoal worker`: worker processes for the crawls of a store, until a signal, --for or --until-idle stops them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
from collections.abc import Collection
from functools import partial

import click

from shoal import operations
from shoal.cli.main import FAILED, FINISHED, INTERRUPTED
from shoal.cli.options import WholeNumber, on_store, on_verbosity, parse_duration, settings_of, store_flags
from shoal.cli.signals import Interrupted, StopSignals
from shoal.cli.spider_choice import Chosen
from shoal.cli.ui.console import pluralize, report, warn
from shoal.cli.ui.json_log import emit, is_json, on_service_log
from shoal.cli.ui.progress import Progress
from shoal.cli.ui.request_log import report_request
from shoal.errors import StoreNotReady
from shoal.fleet import Event, FleetHealth, Supervisor, WorkerFolder, reclaim, serve_health, startup_settings
from shoal.fleet.cores import usable_cores
from shoal.frontier import Frontier
from shoal.operations.idle import is_idle
from shoal.operations.maintenance import Maintainer
from shoal.operations.service_manager import ServiceManager
from shoal.settings import Settings
from shoal.settings.sections import networks_of

_IDLE_SECONDS = 1.0
# The beginning of the message for each reason to stop.
_STOP_TEXTS = {
    "signal": "Stopping", "time": "Stopping after the time of --for", "idle": "Stopping, nothing is left to do",
}  # fmt: skip


@click.command("worker", short_help="Run workers for the crawls of a store.")
@on_store
@click.option(
    "--spider", metavar="FILE.py:CLASS", multiple=True,
    help="Work only on crawls of this spider; may be repeated.  [default: all registered spiders]",
)  # fmt: skip
@click.option("--workers", metavar="N", type=WholeNumber(1, 1000), help="Worker processes.  [default: cores]")
@click.option("--allow-network", metavar="CIDR", multiple=True, help="Allow requests to this private network.")
@click.option("--proxy", metavar="URL", help="Forward proxy for all requests.")
@click.option("--for", "seconds", metavar="TIME", type=parse_duration, help="Stop after this time, e.g. 5m.")
@click.option("--until-idle", is_flag=True, help="Stop when no running crawl has a URL left.")
@click.option(
    "--health", metavar="[ADDRESS:]PORT", help="Answer health checks at /healthz and /readyz on this port.",
)  # fmt: skip
@on_verbosity
@on_service_log
def command(
    store: str | None, folder: str | None, spider: tuple[str, ...], workers: int | None,
    allow_network: tuple[str, ...], proxy: str | None, seconds: float | None, until_idle: bool, health: str | None,
    verbose: bool,
) -> int:  # fmt: skip
    """Connect to a store and work on all of its crawls. Ctrl-C or SIGTERM stops it when in-flight requests are done."""
    from shoal.cli.spider_choice import choose

    flags = store_flags(store, folder) | {"fetch.allow_networks": ",".join(allow_network) or None, "fetch.proxy": proxy}
    flags |= {"worker.health": health}
    settings = settings_of(flags)
    # Checked before any worker starts.
    networks_of(settings.fetch.allow_networks)
    return asyncio.run(
        _run(settings, workers or usable_cores(), choose(spider, settings), seconds, until_idle, verbose)
    )


async def _run(
    settings: Settings, workers: int, spiders: Chosen, seconds: float | None, until_idle: bool, verbose: bool
) -> int:  # fmt: skip
    manager = ServiceManager()
    worker_folder = WorkerFolder(settings)
    supervisor = Supervisor(
        flags=startup_settings(settings), workers=workers, folder=worker_folder.folder,
        name=os.environ.get("WORKER_ID", ""), on_event=_on_event, spiders=spiders.references, plain=spiders.plain,
        shared=True, on_request=report_request if verbose else None,
    )  # fmt: skip
    signals = StopSignals(supervisor)
    health = FleetHealth(supervisor, settings)
    opening = Frontier.from_settings(settings, on_warning=partial(warn, event="store.trouble"))
    try:
        async with await signals.race(opening) as frontier, serve_health(health, settings.worker.health):
            await operations.check_joining(frontier, platform.node())
            await reclaim(frontier, worker_folder.folder)
            await supervisor.start(frontier)
            where = frontier.store_name
            text = f"{pluralize(workers, 'worker')} on {supervisor.name} connected to {where}. Press Ctrl-C to stop."
            report(text, event="workers.started", workers=workers, machine=supervisor.name, store=where)
            manager.ready(text)
            served = {*spiders.references, *([""] if spiders.plain else [])}
            stop_reason = ""
            with Progress(supervisor, where=where) as progress:
                maintainer = Maintainer(frontier, settings, emit=_emit_trouble)
                tasks = [
                    asyncio.create_task(_update(progress, frontier)),
                    asyncio.create_task(maintainer.run()),
                    asyncio.create_task(
                        manager.keep_informed(lambda: _status(supervisor, workers), lambda: health.problem)
                    ),
                ]
                try:
                    stop_reason = await _end(signals, supervisor, frontier, served if until_idle else None, seconds)
                    if stop_reason:
                        progress.state = "stopping"
                        text = f"{_STOP_TEXTS[stop_reason]}: waiting for in-flight requests. Press Ctrl-C again to quit"
                        report(f"{text} now; nothing is lost either way.")
                        manager.stopping("Waiting for in-flight requests.")
                        await supervisor.stop(settings.worker.grace_seconds)
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
            if stop_reason:
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
        worker_folder.close()


async def _end(
    signals: StopSignals, supervisor: Supervisor, frontier: Frontier, spiders: Collection[str] | None,
    seconds: float | None,
) -> str:  # fmt: skip
    """Wait for the first reason to stop: 'signal', 'time', 'idle', or '' when no worker is left."""
    reasons = {asyncio.create_task(supervisor.wait()): "", asyncio.create_task(signals.received.wait()): "signal"}
    if seconds is not None:
        reasons[asyncio.create_task(asyncio.sleep(seconds))] = "time"
    if spiders is not None:
        reasons[asyncio.create_task(_until_idle(supervisor, frontier, spiders))] = "idle"
    try:
        done, _ = await asyncio.wait(reasons, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        return max(reasons[task] for task in done)
    finally:
        for task in reasons:
            task.cancel()
        await asyncio.gather(*reasons, return_exceptions=True)


async def _until_idle(supervisor: Supervisor, frontier: Frontier, spiders: Collection[str]) -> None:
    while True:
        # A worker that has not reported yet has leased nothing that the counts do not show.
        busy = any(not report.idle for report in supervisor.reports)
        with contextlib.suppress(StoreNotReady):
            if not busy and await is_idle(frontier, spiders):
                return
        await asyncio.sleep(_IDLE_SECONDS)


def _status(supervisor: Supervisor, workers: int) -> str:
    total = supervisor.total()
    text = f"{len(supervisor.live_workers)} of {pluralize(workers, 'worker')}, {pluralize(total.pages, 'page')} stored"
    return f"{text}, {total.trouble}" if total.trouble else text


async def _update(progress: Progress, frontier: Frontier) -> None:
    while True:
        # The workers report that the store is unavailable.
        with contextlib.suppress(StoreNotReady):
            await progress.update(frontier)
        await asyncio.sleep(1.0)


def _emit_trouble(text: str, /, *, event: str, **facts: object) -> None:
    """In a text log, emit only trouble: it is arbitrary which of many workers runs the maintenance."""
    if is_json() or event.endswith((".trouble", ".failed")):
        emit(text, event=event, **facts)


def _on_event(event: Event) -> None:
    if event.kind not in ("report", "idle"):
        report(event.text, event=f"worker.{event.kind}", worker=event.worker)
