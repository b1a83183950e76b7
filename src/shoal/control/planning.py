"""What a crawl will take, reckoned from a few numbers: time, workers, memory, bandwidth, and what limits it.

Pure arithmetic on measured figures, all of them at the top. It assumes that pages are spread evenly over the hosts.
"""

from __future__ import annotations

import math

import msgspec

from shoal.politeness.delay import delay_seconds
from shoal.settings import WorkerSettings

# Rounded, since pages differ: half of `crawl, 2 processes: pages`, and `crawl, 1 process: CPU`.
WORKER_PAGES_A_SECOND = 400.0
PAGE_CPU_SECONDS = 0.0016

# Figures of docs/reference/benchmarks.md, by their names there.
SEEN_BYTES = 8.38  # a seen URL
WAITING_BYTES = 51.7  # a waiting URL with dedup, 200 hosts
HOST_WAITING_BYTES = 341.8 - WAITING_BYTES  # a host with one waiting URL, without that URL
HOST_DONE_BYTES = 162.5 - SEEN_BYTES  # a host after its only visit, without that URL
STORE_PAGE_SECONDS = 55.9e-6  # server CPU at 5,000,000: added, leased and acknowledged, one new link a page

POLITENESS, WORKERS, STORE = "politeness", "workers", "store"
_DAY_SECONDS = 86400.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`workers_useful` is how many reach the other limits: more of them change nothing.

    `store_bytes_end` is the store when everything was visited, `store_bytes_most` when every URL waits at once.
    """

    pages: int
    hosts: int
    delay_seconds: float
    response_seconds: float
    page_bytes: int
    seconds: float
    days: float
    pages_a_second: float
    limit: str
    workers: int
    workers_useful: int
    worker_pages_a_second: float
    cpu_cores: float
    cpu_core_days: float
    store_bytes_end: int
    store_bytes_most: int
    bytes_a_second: float
    bytes_total: int


def plan(*, pages: int, hosts: int, delay: float, response: float, page_bytes: int, workers: int | None = None) -> Plan:
    # As a crawl has it: a slow server is given as long as it took, unless no delay is wanted at all.
    gap = delay_seconds(configured=delay, response_seconds=response, factor=1.0 if delay else 0.0)
    polite = hosts / (gap + response)
    served = 1 / STORE_PAGE_SECONDS
    # A worker process asks so many hosts at once and has one core.
    one = min(WORKER_PAGES_A_SECOND, 1 / PAGE_CPU_SECONDS, WorkerSettings().hosts / response)
    useful = max(1, math.ceil(min(polite, served) / one))
    count = useful if workers is None else workers
    rate, limit = min((polite, POLITENESS), (served, STORE), (count * one, WORKERS), key=lambda bound: bound[0])
    return Plan(
        pages=pages, hosts=hosts, delay_seconds=gap, response_seconds=response, page_bytes=page_bytes,
        seconds=pages / rate, days=pages / rate / _DAY_SECONDS, pages_a_second=rate, limit=limit,
        workers=count, workers_useful=useful, worker_pages_a_second=one,
        cpu_cores=rate * PAGE_CPU_SECONDS, cpu_core_days=pages * PAGE_CPU_SECONDS / _DAY_SECONDS,
        store_bytes_end=round(pages * SEEN_BYTES + hosts * HOST_DONE_BYTES),
        store_bytes_most=round(pages * WAITING_BYTES + hosts * HOST_WAITING_BYTES),
        bytes_a_second=rate * page_bytes, bytes_total=pages * page_bytes,
    )  # fmt: skip
