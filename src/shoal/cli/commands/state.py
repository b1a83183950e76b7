"""`shoal pause`, `resume`, `stop` and `delete`: change the state of one crawl, on a store or on an API."""

from __future__ import annotations

import asyncio

import click

from shoal.cli.options import existing, on_store
from shoal.settings import Settings


def _command(verb: str, short: str, text: str = "") -> click.Command:
    @click.command(verb, short_help=short, help=text or short)
    @click.argument("crawl", metavar="ID")
    @on_store
    def command(crawl: str, store: str | None, folder: str | None) -> None:
        from shoal.cli import remote

        if client := remote.client_of(store):
            remote.steer(client, crawl, verb)
        else:
            asyncio.run(_change(existing(store, folder), crawl, verb))

    return command


pause = _command("pause", "Pause a crawl; nothing of it is lost.")
resume = _command("resume", "Let the workers of a store go on with a paused crawl.")
stop = _command("stop", "Stop a crawl for good.")
delete = _command(
    "delete", "Free what an ended crawl holds in the store.",
    "Free all that an ended crawl holds in the store. Its id stays taken, and its pages stay in their outputs.",
)  # fmt: skip


async def _change(settings: Settings, name: str, verb: str) -> None:
    # Imported late, so that `--help` does without the store.
    from shoal.cli.spider_choice import spider_flag
    from shoal.cli.ui.console import say, warn
    from shoal.cli.ui.summary import command
    from shoal.frontier import Frontier
    from shoal.operations import crawls

    async with await Frontier.from_settings(settings, on_warning=warn) as frontier:
        if verb == "delete":
            await crawls.delete(frontier, name)
            say(f"Crawl {name} is deleted.")
            return
        crawl = await getattr(frontier.crawls, verb)(name)
        say(f"Crawl {name} is {crawl.state.value}.")
        if verb == "resume" and not await frontier.workers.alive():
            again = command(name, "crawl", {}, spider_flag(crawl.limits.spider, settings))
            say(f"No worker is on the store; start them with `{again}` or `shoal worker`.")
