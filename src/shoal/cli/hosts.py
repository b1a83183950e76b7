"""`shoal hosts`: what holds for one host, for all crawls and machines."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from shoal.cli.options import Number, existing, on_store
from shoal.settings import Settings

_TIMES = ("gate_at", "backoff_until", "last_finished_at", "last_successful_at")
_KNOWN = ("crawls_waiting", "leases", "places", "robots_known", "failures", "blocked", *_TIMES)


@click.command("hosts", short_help="Say what is known of a host; set its delay, block it.")
@click.argument("host")
@click.option("--delay", metavar="S", type=Number(0, 86400), help="Set its delay, for all crawls.")
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

    from shoal.cli.terminal import warn
    from shoal.frontier import Frontier

    async with await Frontier.from_settings(settings, on_warning=warn) as frontier:
        if delay is not None:
            await frontier.hosts.set_delay(name, delay)
        if block:
            await frontier.hosts.block(name)
        if unblock:
            await frontier.hosts.unblock(name)
        host = await frontier.hosts.get(name)
    tell(msgspec.structs.asdict(host))


def tell(host: dict[str, Any]) -> None:
    """Of a host that nobody has asked or set anything for, that first."""
    from shoal.cli.terminal import moment, say, visible

    if not any(host.get(field) for field in _KNOWN) and host.get("delay_seconds") is None:
        say(f"The store knows nothing of host {host['name']} yet; write its port, too, unless that is 80 or 443.")
    for field, value in host.items():
        value = moment(value) if field in _TIMES else value
        click.echo(f"{field.replace('_', ' '):<24}{visible(str(value)) if value not in (None, '', {}) else '-'}")
