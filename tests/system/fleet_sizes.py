"""Fleets of 1 to 200 workers in virtual time: `python -m tests.system.fleet_sizes` prints the table of the docs.

Every fleet has more hosts than it can request, so that politeness does not limit it. It is simulated with one server
as the store, and with as many as `shoal plan` finds useful. Servers of a cluster do not wait for each other, and a
worker leases from shards that it owns: so one server with its part of hosts and workers stands for all of them.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path

from shoal.operations.plan import WORKER_PAGES_PER_SECOND, plan
from shoal.settings import WorkerSettings
from shoal.store import Store
from tests.servers import server
from tests.system.simulation import Simulated, simulate

WORKERS = (1, 2, 5, 10, 20, 50, 100, 200)
DELAY, RESPONSE = 1.0, 0.2
# Hosts for each worker: half as many again as keep its core busy.
_HOSTS = round(1.5 * WORKER_PAGES_PER_SECOND * (DELAY + RESPONSE))
# Simulated workers for one server. Larger fleets are divided, which changes no rate but saves time.
_MOST = 13


@dataclass(frozen=True)
class Size:
    """A fleet: how many pages it gets per second, of those its workers could, and how busy each server is."""

    workers: int
    nodes: int
    pages_per_second: float
    store_busy: float

    @property
    def efficiency(self) -> float:
        return self.pages_per_second / (self.workers * WORKER_PAGES_PER_SECOND)


def nodes_for(workers: int) -> int:
    """As many servers as `shoal plan` finds useful for so many workers."""
    made = plan(pages=10**9, hosts=workers * _HOSTS, delay=DELAY, response=RESPONSE, page_bytes=40_000, workers=workers)
    return made.nodes_useful


async def play(store: Store, workers: int, nodes: int, *, seconds: float = 1.2) -> Size:
    """Simulate a fleet on a store of so many servers."""
    on_node = workers / nodes
    # One part of a server: its calls take longer by as much.
    slice_of = 1
    while on_node / slice_of > _MOST:
        slice_of *= 2
    shown = max(1, round(on_node / slice_of))
    strength = on_node / slice_of / shown
    seen: Simulated = await simulate(
        store, hosts=round(_HOSTS * on_node / slice_of), delay=DELAY, response=RESPONSE, workers=shown,
        places=round(WorkerSettings().hosts * strength), worker_pages_per_second=WORKER_PAGES_PER_SECOND * strength,
        # A slower store takes longer for the first leases of all.
        seconds=seconds * slice_of, warm_seconds=seconds * slice_of, slice_of=slice_of, namespace=f"f{workers}-{nodes}",
    )  # fmt: skip
    return Size(workers, nodes, seen.pages_per_second * slice_of * nodes, seen.store_busy)


async def _table() -> None:
    print("| workers | servers of the store | pages/s | efficiency | store busy |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    fleets = [(workers, 1) for workers in WORKERS]
    fleets += [(workers, nodes_for(workers)) for workers in WORKERS[-3:]]
    for workers, nodes in fleets:
        with tempfile.TemporaryDirectory() as folder, server(Path(folder), options={"appendonly": "no"}) as valkey:
            async with await Store.open(valkey.url) as store:
                size = await play(store, workers, nodes, seconds=3.6)
        rate = f"{size.pages_per_second:,.0f} | {size.efficiency:.0%} | {size.store_busy:.0%}"
        print(f"| {workers} | {nodes} | {rate} |", flush=True)


if __name__ == "__main__":
    asyncio.run(_table())
