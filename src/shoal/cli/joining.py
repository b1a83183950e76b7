"""A machine's workers on somebody's store, while `shoal worker` runs."""

from __future__ import annotations

import asyncio
import os
import platform

from shoal import control
from shoal.cli.program import FAILED, FINISHED, INTERRUPTED
from shoal.cli.signals import Interrupted, Signals
from shoal.cli.terminal import say, warn
from shoal.cli.workplace import Workplace, orders
from shoal.fleet import Event, Supervisor, take_back
from shoal.frontier import Frontier
from shoal.settings import Settings


def run(settings: Settings, workers: int) -> int:
    return asyncio.run(_run(settings, workers))


async def _run(settings: Settings, workers: int) -> int:
    place = Workplace(settings)
    supervisor = Supervisor(
        flags=orders(settings), workers=workers, folder=place.folder, name=os.environ.get("WORKER_ID", ""),
        on_event=_hear,
    )  # fmt: skip
    signals = Signals(supervisor)
    try:
        async with await signals.race(Frontier.from_settings(settings, on_warning=warn)) as frontier:
            await control.check_joining(frontier, platform.node())
            await take_back(frontier, place.folder)
            await supervisor.start(frontier)
            say(f"{workers} workers of {supervisor.name} work on {frontier.shards.store.shown}. Ctrl-C ends them.")
            try:
                await signals.race(supervisor.wait())
            except Interrupted:
                say("Ending: open requests may end. Another Ctrl-C ends at once; nothing is lost either way.")
                await supervisor.stop(settings.worker.grace_seconds)
                total = supervisor.total()
                say(f"{total.pages:,} pages were stored, {total.requests:,} requests made.")
                return FINISHED
            warn("All workers have ended.")
            return FAILED
    except Interrupted:
        return INTERRUPTED
    finally:
        await supervisor.stop(0.0)
        place.close()


def _hear(event: Event) -> None:
    if event.kind not in ("report", "idle"):
        say(event.text)
