"""`shoal hosts`: the state and settings of hosts, for all crawls and machines."""

from __future__ import annotations

import itertools
import time
from typing import Any

import click

from shoal.cli.options import Number, WholeNumber, on_store

_TIMES = ("gate_at", "backoff_until", "last_finished_at", "last_successful_at")
_KNOWN = ("crawls_waiting", "leases", "places", "robots_known", "failures", "blocked", *_TIMES)


@click.command("hosts", short_help="List hosts, or show, slow down or block one.")
@click.argument("host", required=False)
@click.option(
    "--limit", metavar="N", type=WholeNumber(1), default=1000, show_default=True, help="List at most N hosts."
)
@click.option("--delay", metavar="S", type=Number(0, 86400), help="Set the delay for all crawls.")
@click.option("--forget-delay", is_flag=True, help="Remove the delay that was set.")
@click.option("--block", is_flag=True, help="Send no more requests to it.")
@click.option("--unblock", is_flag=True, help="Send requests again, and reset its failures.")
@on_store
def command(
    host: str | None, limit: int, delay: float | None, forget_delay: bool, block: bool, unblock: bool,
    store: str | None, folder: str | None,
) -> None:  # fmt: skip
    """Show the state of HOST, or change its settings. Without HOST, list the hosts with waiting URLs."""
    if block and unblock:
        raise click.UsageError("--block and --unblock contradict each other.")
    if delay is not None and forget_delay:
        raise click.UsageError("--delay and --forget-delay contradict each other.")
    changes: dict[str, Any] = {} if delay is None and not forget_delay else {"delay_seconds": delay}
    if block or unblock:
        changes["blocked"] = "blocked" if block else ""
    if changes and host is None:
        raise click.UsageError("Name the HOST to change.")
    from shoal.cli.control import open_control
    from shoal.cli.ui.console import report

    with open_control(store, folder) as control:
        if host is not None:
            render(control.change_host(host, changes) if changes else control.host(host))
            return
        hosts = control.hosts()
        is_empty = True
        for waiting_host in itertools.islice(hosts, limit):
            is_empty = False
            _line(waiting_host)
        if is_empty:
            report("No host has waiting URLs.")
        elif next(hosts, None) is not None:
            report(f"More hosts have waiting URLs; pass e.g. --limit {10 * limit}.")


def _line(host: dict[str, Any]) -> None:
    from shoal.cli.ui.console import visible

    seconds = max(host["delay_seconds"] or 0.0, host["crawl_delay_seconds"], host["adaptive_delay_seconds"])
    backing_off = host["backoff_until"] > time.time()
    state = f"blocked ({host['blocked']})" if host["blocked"] else "backing off" if backing_off else ""
    click.echo(f"{host['waiting']:>11,} waiting  {seconds:>8.2f} s  {visible(host['name'])}  {visible(state)}".rstrip())


def render(host: dict[str, Any]) -> None:
    """Print the fields of a host, after a note if the store has no record of it."""
    from shoal.cli.ui.console import format_timestamp, report, visible

    if not any(host.get(field) for field in _KNOWN) and host.get("delay_seconds") is None:
        report(f"The store has no record of host {host['name']}. Include the port unless it is 80 or 443.")
    if host["backoff_until"] <= time.time():
        # The store keeps the reason of the last back-off after its end.
        host = {**host, "backoff_until": 0.0, "backoff_reason": ""}
    for field, value in host.items():
        value = format_timestamp(value) if field in _TIMES else value
        click.echo(f"{field.replace('_', ' '):<24}{visible(str(value)) if value not in (None, '', {}) else '-'}")
