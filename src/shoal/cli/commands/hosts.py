"""`shoal hosts`: what holds for one host, for all crawls and machines."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import click

from shoal.cli.options import Number, existing, on_store
from shoal.settings import Settings

if TYPE_CHECKING:
    from shoal.frontier import Frontier

_TIMES = ("gate_at", "backoff_until", "last_finished_at", "last_successful_at")
_KNOWN = ("crawls_waiting", "leases", "places", "robots_known", "failures", "blocked", *_TIMES)


@click.command("hosts", short_help="List hosts; say what is known of one, set its delay, block it.")
@click.argument("host", required=False)
@click.option("--delay", metavar="S", type=Number(0, 86400), help="Set its delay, for all crawls.")
@click.option("--forget-delay", is_flag=True, help="Take back the delay that was set.")
@click.option("--block", is_flag=True, help="Ask it nothing more.")
@click.option("--unblock", is_flag=True, help="Ask it again, and forget its failures.")
@on_store
def command(
    host: str | None, delay: float | None, forget_delay: bool, block: bool, unblock: bool, store: str | None,
    folder: str | None,
) -> None:  # fmt: skip
    """Say what the store knows of HOST, or change what holds for it. Without HOST, list those with URLs that wait."""
    if block and unblock:
        raise click.UsageError("--block and --unblock contradict each other.")
    if delay is not None and forget_delay:
        raise click.UsageError("--delay and --forget-delay contradict each other.")
    changes: dict[str, Any] = {} if delay is None and not forget_delay else {"delay_seconds": delay}
    if block or unblock:
        changes["blocked"] = "blocked" if block else ""
    if changes and host is None:
        raise click.UsageError("Say which HOST is meant.")
    from shoal.cli import remote

    if client := remote.client_of(store):
        if host is None:
            for one in client.hosts():
                _line(one["name"], one["waiting"], one)
        else:
            tell(client.change_host(host, **changes) if changes else client.host(host))
        return
    asyncio.run(_on_store(existing(store, folder), host, changes))


async def _on_store(settings: Settings, name: str | None, changes: dict[str, Any]) -> None:
    import msgspec

    from shoal.cli.ui.console import warn
    from shoal.frontier import Frontier

    async with await Frontier.from_settings(settings, on_warning=warn) as frontier:
        if name is None:
            await _list(frontier)
            return
        if "delay_seconds" in changes:
            await frontier.hosts.set_delay(name, changes["delay_seconds"])
        if "blocked" in changes:
            await (frontier.hosts.block(name) if changes["blocked"] else frontier.hosts.unblock(name))
        host = await frontier.hosts.get(name)
    tell(msgspec.structs.asdict(host))


async def _list(frontier: Frontier) -> None:
    import msgspec

    from shoal.frontier.inspect import waiting, waiting_hosts
    from shoal.model.crawl import State

    crawls = [crawl async for crawl in frontier.crawls.all() if crawl.state.open]
    paused = [crawl.key for crawl in crawls if crawl.state is State.PAUSED]
    spiders = {crawl.limits.spider for crawl in crawls}
    for shard in range(frontier.shards.count):
        for name in await waiting_hosts(frontier, shard, spiders, paused):
            queues = await waiting(frontier, name, paused)
            host = await frontier.hosts.get(name)
            _line(name, sum(sum(queue.values()) for queue in queues.values()), msgspec.structs.asdict(host))


def _line(name: str, waiting: int, host: dict[str, Any]) -> None:
    from shoal.cli.ui.console import visible

    seconds = max(host["delay_seconds"] or 0.0, host["crawl_delay_seconds"], host["adaptive_delay_seconds"])
    rests = host["backoff_until"] > time.time()
    state = f"blocked ({host['blocked']})" if host["blocked"] else "backing off" if rests else ""
    click.echo(f"{waiting:>11,} waiting  {seconds:>8.2f} s  {visible(name)}  {visible(state)}".rstrip())


def tell(host: dict[str, Any]) -> None:
    """Of a host that nobody has asked or set anything for, that first."""
    from shoal.cli.ui.console import moment, say, visible

    if not any(host.get(field) for field in _KNOWN) and host.get("delay_seconds") is None:
        say(f"The store knows nothing of host {host['name']} yet; write its port, too, unless that is 80 or 443.")
    for field, value in host.items():
        value = moment(value) if field in _TIMES else value
        click.echo(f"{field.replace('_', ' '):<24}{visible(str(value)) if value not in (None, '', {}) else '-'}")
