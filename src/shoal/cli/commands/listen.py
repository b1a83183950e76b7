"""`shoal listen`: crawl requests from a Redis list, a Kafka topic or an AMQP queue, until a signal.

A bridge in its process, while `shoal listen` runs.
"""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial

import click

from shoal.cli.main import FINISHED, INTERRUPTED
from shoal.cli.options import on_store, settings_of, store_flags
from shoal.cli.ui.console import counted, say, warn
from shoal.cli.ui.json_log import on_service_log, tell
from shoal.frontier import Frontier
from shoal.listen import Bridge, Source, open_source
from shoal.settings import Settings


@click.command("listen", short_help="Take crawl requests from Redis, Kafka or AMQP.")
@click.argument("source", metavar="SOURCE")
@on_store
@on_service_log
def command(source: str, store: str | None, folder: str | None) -> int:
    """Take crawl requests from SOURCE and hand them to the workers of a store.

    SOURCE is redis://HOST:6379/0/NAME (a list; with ?group=GROUP a stream), kafka://BROKER:9092/TOPIC?group=GROUP or
    amqp://HOST/QUEUE. A request is JSON: {"seeds": ["https://example.org/"], "name": "mine"}, or one of Scrapy
    Cluster's. What names no output goes to the one called `default` in [outputs] of shoal.toml. What cannot be used
    goes to NAME-dead with the reason (?dead=), answers go to NAME-replies (?reply=).
    Ctrl-C or SIGTERM ends it after the requests in hand; nothing is lost either way.
    """

    return _run_until_signal(settings_of(store_flags(store, folder)), source)


def _run_until_signal(settings: Settings, source: str) -> int:
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
        where = frontier.store_name
        say(f"Listening to {source.shown} for {where}. Ctrl-C ends it.", event="listen.begin", store=where)
        await bridge.run()
        say(
            f"{counted(bridge.crawls, 'crawl')} submitted, {counted(bridge.replies, 'action')} answered, "
            f"{counted(bridge.rejected, 'request')} refused.",
            event="listen.end", crawls=bridge.crawls, answers=bridge.replies, refused=bridge.rejected,
        )  # fmt: skip
        return FINISHED
