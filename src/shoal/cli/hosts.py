"""`shoal hosts`: what holds for one host, for all crawls and machines."""

from __future__ import annotations

import asyncio

import click

from shoal.cli.options import existing, on_store
from shoal.settings import Settings


@click.command("hosts", short_help="Say what is known of a host; set its delay, block it.")
@click.argument("host")
@click.option("--delay", metavar="S", type=click.FloatRange(0, 86400), help="Set its delay, for all crawls.")
@click.option("--block", is_flag=True, help="Ask it nothing more.")
@click.option("--unblock", is_flag=True, help="Ask it again, and forget its failures.")
@on_store
def command(host: str, delay: float | None, block: bool, unblock: bool, store: str | None, folder: str | None) -> None:
    """Say what the store knows of HOST, or change what holds for it."""
    if block and unblock:
        raise click.UsageError("--block and --unblock contradict each other.")
    from shoal.cli import remote

    if client := remote.client_of(store):
        remote.host(client, host, delay, block, unblock)
        return
    asyncio.run(_host(existing(store, folder), host, delay, block, unblock))


async def _host(settings: Settings, name: str, delay: float | None, block: bool, unblock: bool) -> None:
    import msgspec

    from shoal.cli.terminal import visible, warn
    from shoal.frontier import Frontier

    async with await Frontier.from_settings(settings, on_warning=warn) as frontier:
        if delay is not None:
            await frontier.hosts.set_delay(name, delay)
        if block:
            await frontier.hosts.block(name)
        if unblock:
            await frontier.hosts.unblock(name)
        host = await frontier.hosts.get(name)
    for field, value in msgspec.structs.asdict(host).items():
        click.echo(f"{field.replace('_', ' '):<24}{visible(str(value)) if value not in (None, '') else '-'}")
