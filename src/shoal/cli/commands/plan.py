"""`shoal plan`: estimates for a crawl before it is started."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import click

from shoal.cli.options import Number, WholeNumber, parse_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.operations.plan import Plan

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}
_COUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgb]?)\Z", re.IGNORECASE)
_MOST = 10**15
_MOST_BYTES = 10**9


def parse_page(text: str) -> int:
    """Parse the size of a page in bytes; reject a size that no page has."""
    if (size := parse_size(text)) > _MOST_BYTES:
        raise click.BadParameter(f"{text!r} is not a page size: write 40kb or 1.5mb.")
    return size


def parse_count(text: str) -> int:
    """A number such as 50M; B and G are billions."""
    match = _COUNT.match(text.strip().replace(",", "").replace("_", ""))
    count = int(float(match[1]) * _UNITS[match[2].lower()]) if match and len(text) < 40 else 0
    if not 1 <= count <= _MOST:
        raise click.BadParameter(f"{text!r} is not a number from 1 to {_MOST}: write 500000, 500k, 1.5M or 2B.")
    return count


@click.command("plan", short_help="Estimate time, workers and memory for a crawl.")
@click.option("--pages", metavar="N", type=parse_count, required=True, help="Pages to fetch, e.g. 50M.")
@click.option("--hosts", metavar="N", type=parse_count, required=True, help="Number of hosts that serve them.")
@click.option(
    "--delay", metavar="S", type=Number(0, 86400), default=1.0, show_default=True,
    help="Seconds from the end of a request to the next one to the same host.",
)  # fmt: skip
@click.option(
    "--response", metavar="S", type=Number(0.001, 3600), default=0.2, show_default=True,
    help="Response time of the servers, in seconds.",
)  # fmt: skip
@click.option(
    "--page-size", metavar="N", type=parse_page, default="40kb", show_default=True, help="Bytes received per page."
)
@click.option(
    "--workers", metavar="N", type=WholeNumber(1, 10**6), help="Worker processes.  [default: as many as are useful]"
)
@click.option(
    "--nodes", metavar="N", type=WholeNumber(1, 1024), default=1, show_default=True,
    help="Servers of the store; more than one is a cluster.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    pages: int,
    hosts: int,
    delay: float,
    response: float,
    page_size: int,
    workers: int | None,
    nodes: int,
    as_json: bool,
) -> None:
    """Estimate a crawl's time, workers, store memory and bandwidth, and its bottleneck.

    No requests are sent and nothing is modified. The figures were measured on one small machine: treat them as
    order-of-magnitude estimates.
    """
    from shoal.cli.ui.console import printable_json, warn
    from shoal.operations.plan import plan

    for flag, seconds in (("--delay", delay), ("--response", response)):
        if seconds != seconds:  # NaN passes every range
            raise click.UsageError(f"{flag} is not a number.")
    if hosts > pages:
        raise click.UsageError(f"--hosts {hosts:,} is more than --pages {pages:,}.")
    made = plan(
        pages=pages, hosts=hosts, delay=delay, response=response, page_bytes=page_size, workers=workers, nodes=nodes
    )
    if as_json:
        click.echo(printable_json(made))
    else:
        for word, text in _rows(made):
            click.echo(f"{word:<12}{text}")
    for advice in _advice(made):
        warn(advice)


def _rows(made: Plan) -> list[tuple[str, str]]:
    from shoal.cli.ui.console import duration, size
    from shoal.cli.ui.summary import rate

    long = f"{made.days:,.1f} days" if made.days >= 1 else duration(made.seconds)
    period = made.delay_seconds + made.response_seconds
    limits = {
        "politeness": f"politeness: {_many(made.hosts, 'host')}, one request per host every {period:g} s",
        "workers": f"workers: {made.workers_useful:,} would reach the next limit",
        "store": f"store: {_many(made.nodes, 'server')}, {rate(made.node_pages_per_second)} each",
    }
    core_time = f"{made.cpu_core_days:,.1f} days" if made.cpu_core_days >= 0.1 else duration(made.cpu_core_days * 86400)
    cores = f"{made.cpu_cores:,.0f}" if made.cpu_cores >= 10 else f"{made.cpu_cores:.2g}"
    share = f", {size(made.node_bytes_most)} on each of {made.nodes} nodes" if made.nodes > 1 else ""
    return [
        ("pages", f"{made.pages:,} on {_many(made.hosts, 'host')}, {size(made.bytes_total)} to receive"),
        ("time", f"{long} at {rate(made.pages_per_second)}"),
        ("bottleneck", limits[made.limit]),
        ("workers", f"{made.workers:,}, each up to {rate(made.worker_pages_per_second)}"),
        ("CPU", f"{cores} cores busy, {core_time} of one core in all"),
        (
            "store",
            f"{size(made.store_bytes_end)} at the end, {size(made.store_bytes_most)} if every URL waits at once{share}",
        ),
        ("network", f"{size(made.bytes_per_second)}/s, {made.bytes_per_second * 8 / 1e6:,.1f} Mbit/s"),
    ]


def _advice(made: Plan) -> Iterator[str]:
    from shoal.cli.ui.console import size
    from shoal.operations.plan import NODE_BYTES, SHARDS

    if made.limit == "politeness":
        yield (
            f"More than {_many(made.workers_useful, 'worker')} will not help: every host already gets as many requests "
            "as its delay allows. More hosts would help"
            + (", or a shorter --delay if the servers are yours." if made.delay_seconds else ".")
        )
    if made.limit == "store":
        yield (
            f"More than {_many(made.workers_useful, 'worker')} will not help: the store is the bottleneck. A cluster "
            f"of up to {made.nodes_useful:,} nodes (--nodes), which share the hosts, would help."
        )
    if made.nodes > SHARDS:
        yield (
            f"A store has {SHARDS} shards by default, and a node without a shard does nothing: create the store with "
            f"`store.shards` set to {made.nodes:,} or a multiple."
        )
    if made.node_bytes_most > NODE_BYTES:
        yield (
            f"One server of the store may need {size(made.node_bytes_most)} of memory: with --nodes "
            f"{math.ceil(made.store_bytes_most / NODE_BYTES):,}, each needs at most {size(NODE_BYTES)}."
        )


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
