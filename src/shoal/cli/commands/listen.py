"""`shoal listen`: crawl requests from a Redis list, a Kafka topic or an AMQP queue, until a signal."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial

import click

from shoal.cli.main import FINISHED, INTERRUPTED
from shoal.cli.options import on_store, settings_of, store_flags
from shoal.cli.ui.console import pluralize, report, warn
from shoal.cli.ui.json_log import emit, on_service_log
from shoal.frontier import Frontier
from shoal.listen import Bridge, Source, open_source
from shoal.operations.spider_options import load_spider_options
from shoal.settings import Settings


@click.command("listen", short_help="Submit crawl requests from Redis, Kafka or AMQP.")
@click.argument("source", metavar="SOURCE")
@on_store
@on_service_log
def command(source: str, store: str | None, folder: str | None) -> int:
    """Read crawl requests from SOURCE and submit them to the workers of a store.

    SOURCE is redis://HOST:6379/0/NAME (a list; with ?group=GROUP a stream), kafka://BROKER:9092/TOPIC?group=GROUP or
    amqp://HOST/QUEUE, or a name in [sources] of shoal.toml. A request is JSON: {"seeds": ["https://example.org/"],
    "name": "mine"}, or a Scrapy Cluster request. A request without an output uses the output `default` of [outputs] in
    shoal.toml. Invalid requests go to NAME-dead with the reason (?dead=), replies to NAME-replies (?reply=).
    Ctrl-C or SIGTERM stops it after the current requests; nothing is lost either way.
    """

    settings = settings_of(store_flags(store, folder))
    return _run_until_signal(settings, settings.sources.get(source, source))


def _run_until_signal(settings: Settings, source: str) -> int:
    return asyncio.run(_run(settings, open_source(source)))


async def _run(settings: Settings, source: Source) -> int:
    async with await Frontier.from_settings(settings, on_warning=partial(warn, event="store.trouble")) as frontier:
        spiders = load_spider_options(settings.spiders, emit=emit)
        bridge = Bridge(frontier, source, emit, settings.outputs, settings.fetch.allow_networks, spiders)
        stopping = False

        def stop() -> None:
            nonlocal stopping
            if stopping:
                os._exit(INTERRUPTED)
            stopping = True
            bridge.stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        where = frontier.store_name
        report(f"Listening to {source.shown} for {where}. Press Ctrl-C to stop.", event="listen.started", store=where)
        await bridge.run()
        report(
            f"{pluralize(bridge.crawls, 'crawl')} submitted, {pluralize(bridge.replies, 'action')} answered, "
            f"{pluralize(bridge.rejected, 'request')} refused.",
            event="listen.stopped", crawls=bridge.crawls, answers=bridge.replies, refused=bridge.rejected,
        )  # fmt: skip
        return FINISHED
