"""A bridge in its process, while `shoal listen` runs."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial

from shoal.cli.log import tell
from shoal.cli.program import FINISHED, INTERRUPTED
from shoal.cli.terminal import counted, say, warn
from shoal.frontier import Frontier
from shoal.listen import Bridge, Source, open_source
from shoal.settings import Settings


def run(settings: Settings, source: str) -> int:
    return asyncio.run(_run(settings, open_source(source)))


async def _run(settings: Settings, source: Source) -> int:
    async with await Frontier.from_settings(settings, on_warning=partial(warn, event="store.trouble")) as frontier:
        bridge = Bridge(frontier, source, tell, settings.outputs)
        asked = False

        def end() -> None:
            nonlocal asked
            if asked:
                os._exit(INTERRUPTED)
            asked = True
            bridge.stop()

        for one in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(one, end)
        where = frontier.shards.store.shown
        say(f"Listening to {source.shown} for {where}. Ctrl-C ends it.", event="listen.begin", store=where)
        await bridge.run()
        say(
            f"{counted(bridge.crawls, 'crawl')} submitted, {counted(bridge.answers, 'action')} answered, "
            f"{counted(bridge.buried, 'request')} refused.",
            event="listen.end", crawls=bridge.crawls, answers=bridge.answers, refused=bridge.buried,
        )  # fmt: skip
        return FINISHED
