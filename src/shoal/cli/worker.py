"""`shoal worker`: worker processes for the crawls of a store, until a signal."""

from __future__ import annotations

import click

from shoal.cli.log import on_service_log
from shoal.cli.options import Whole, on_store, settings_of, store_flags
from shoal.settings.networks import networks_of


@click.command("worker", short_help="Work for the crawls of a store until a signal.")
@on_store
@click.option(
    "--spider", metavar="FILE.py:CLASS", multiple=True,
    help="Serve crawls of this spider, and no others but of those given.  [default: all that are registered]",
)  # fmt: skip
@click.option("--workers", metavar="N", type=Whole(1, 1000), help="Worker processes.  [default: cores]")
@click.option("--allow-network", metavar="CIDR", multiple=True, help="Private network that may be asked.")
@click.option("--proxy", metavar="URL", help="Forward proxy for all requests.")
@on_service_log
def command(
    store: str | None, folder: str | None, spider: tuple[str, ...], workers: int | None,
    allow_network: tuple[str, ...], proxy: str | None,
) -> int:  # fmt: skip
    """Join a store and work for all of its crawls. Ctrl-C or SIGTERM ends it when open requests have ended."""
    from shoal.cli.crawl import cores
    from shoal.cli.joining import run
    from shoal.cli.spiders import choose

    flags = store_flags(store, folder) | {"fetch.allow_networks": ",".join(allow_network) or None, "fetch.proxy": proxy}
    settings = settings_of(flags)
    # What every worker would refuse is refused at once.
    networks_of(settings.fetch.allow_networks)
    return run(settings, workers or cores(), choose(spider, settings))
