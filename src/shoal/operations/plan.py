"""Estimates for a crawl from a few numbers: time, workers, memory, bandwidth, and the bottleneck.

Pure arithmetic on measured figures, all of them at the top. It assumes that pages are spread evenly over the hosts.
tests/system/test_plan_simulation.py simulates the same crawls on the real frontier and compares the results.
"""

from __future__ import annotations

import math

import msgspec

from shoal.leases.lease_size import MOST_VISITS
from shoal.politeness.delay import delay_seconds
from shoal.settings import FrontierSettings, StoreSettings, WorkerSettings

# Rounded, since pages differ: half of `crawl, 2 processes: pages`, and `crawl, 1 process: CPU`, of pages of this size.
WORKER_PAGES_PER_SECOND = 400.0
PAGE_CPU_SECONDS = 0.0016
PAGE_BYTES = 40_000

# Figures of docs/reference/benchmarks.md, by their names there.
SEEN_BYTES = 8.38  # a seen URL
VALIDATOR_BYTES = 44.0  # of docs/reference/store-keys.md: a Last-Modified date, kept of every page that has one
WAITING_BYTES = 51.7  # a waiting URL with dedup, 200 hosts
HOST_WAITING_BYTES = 341.8 - WAITING_BYTES  # a host with one waiting URL, without that URL
HOST_DONE_BYTES = 162.5 - SEEN_BYTES  # a host after its only visit, without that URL
STORE_PAGE_SECONDS = 46.4e-6  # server CPU of a page: leased, one new link, one validator, acknowledged
STORE_LEASE_SECONDS = 127.5e-6  # server CPU of a lease
STORE_BATCH_SECONDS = 1538e-6  # server CPU of a batch: its calls, lease, add, remember and acknowledge

# If the store is the bottleneck, workers wait for it and their requests accumulate, up to about the limit of one call.
_BATCH_PAGES = 64
# A server with more data starts slowly, and may need the same amount of memory again to rewrite its file.
NODE_BYTES = 64 * 10**9

POLITENESS, WORKERS, STORE = "politeness", "workers", "store"
SHARDS = StoreSettings().shards
_DAY_SECONDS = 86400.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`workers_useful` and `nodes_useful` are the numbers that reach the other limits: more of them change nothing.

    `store_bytes_end` is the size of the store when every URL was visited, `store_bytes_most` when every URL waits at
    once; both are for all nodes together.
    """

    pages: int
    hosts: int
    delay_seconds: float
    response_seconds: float
    page_bytes: int
    seconds: float
    days: float
    pages_per_second: float
    limit: str
    workers: int
    workers_useful: int
    worker_pages_per_second: float
    visits_per_lease: int
    cpu_cores: float
    cpu_core_days: float
    nodes: int
    nodes_useful: int
    node_pages_per_second: float
    store_bytes_end: int
    store_bytes_most: int
    node_bytes_most: int
    bytes_per_second: float
    bytes_total: int


def plan(
    *,
    pages: int,
    hosts: int,
    delay: float,
    response: float,
    page_bytes: int,
    workers: int | None = None,
    nodes: int = 1,
) -> Plan:
    # As in a crawl, the delay is at least the response time of the server, unless the delay is 0.
    gap = delay_seconds(configured=delay, response_seconds=response, factor=1.0 if delay else 0.0)
    polite = hosts / (gap + response)
    visits = _visits_per_lease(gap, response)
    node = 1 / (STORE_PAGE_SECONDS + STORE_LEASE_SECONDS / visits + STORE_BATCH_SECONDS / _BATCH_PAGES)
    # A lease occupies one of the worker's hosts also in the gaps between its visits.
    occupied_seconds = response + gap * (visits - 1) / visits
    # A large page takes longer to process. For small pages no gain is assumed.
    heavy = max(1.0, page_bytes / PAGE_BYTES)
    worker = min(WORKER_PAGES_PER_SECOND / heavy, WorkerSettings().hosts / occupied_seconds)
    useful = max(1, math.ceil(min(polite, nodes * node) / worker))
    count = useful if workers is None else workers
    rate, limit = min(
        (polite, POLITENESS), (nodes * node, STORE), (count * worker, WORKERS), key=lambda bound: bound[0]
    )
    demand = polite if workers is None else min(polite, workers * worker)
    end = round(pages * (SEEN_BYTES + VALIDATOR_BYTES) + hosts * HOST_DONE_BYTES)
    most = max(end, round(pages * WAITING_BYTES + hosts * HOST_WAITING_BYTES))
    return Plan(
        pages=pages, hosts=hosts, delay_seconds=gap, response_seconds=response, page_bytes=page_bytes,
        seconds=pages / rate, days=pages / rate / _DAY_SECONDS, pages_per_second=rate, limit=limit,
        workers=count, workers_useful=useful, worker_pages_per_second=worker, visits_per_lease=visits,
        cpu_cores=rate * PAGE_CPU_SECONDS * heavy, cpu_core_days=pages * PAGE_CPU_SECONDS * heavy / _DAY_SECONDS,
        nodes=nodes, nodes_useful=max(1, math.ceil(demand / node)), node_pages_per_second=node,
        store_bytes_end=end, store_bytes_most=most,
        node_bytes_most=math.ceil(most / nodes), bytes_per_second=rate * page_bytes, bytes_total=pages * page_bytes,
    )  # fmt: skip


def _visits_per_lease(gap: float, response: float) -> int:
    """The number of visits that fit into the time of a batch, in whole milliseconds as in lease.lua."""
    pace_ms = round(gap * 1000) + round(response * 1000)
    fitting = math.floor(FrontierSettings().batch_seconds * 1000 / pace_ms) if pace_ms else MOST_VISITS
    return max(1, min(MOST_VISITS, fitting))
