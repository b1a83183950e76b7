"""The cost of a page in the calendar to the store: its memory, and the CPU of a revisit compared with a new page.

New pages and revisits are in two namespaces on one server, so that both can take turns. A repeat has as many new pages
as pages that are due. The cost of a revisit includes both moves: out of the calendar when the page is due, and back
into it for the next day. All pages that are due leave the calendar while it is metered, a ninth more than are visited
then. Turns are short, because the load of other programs on the machine changes within seconds and must affect both
equally.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import cache

from bench.cost import Cost, metered
from bench.figures import Figure
from bench.revisit_rules import DAY
from bench.server import Server
from bench.size import Size
from bench.workload import BATCH, HOSTS, VISITS, Workload, host, url
from shoal import Done, Frontier, Lease, Limits
from shoal.model.page_history import PageHistory

_HOSTS, _PAGES, _CRAWL = 200, 5_000_000, "kept"
# Pages that are added at once, and visited while the next ones are added; and tasks that visit, each in its own shards.
_PORTION, _TASKS = 40_000, 4
# A machine that is too slow to add all pages in this time measures with the pages that it has.
_FILL_SECONDS = 600
# Batches of a repeat, those that are metered, those of a turn, and the interval after which the pages of a repeat are
# due: more than it takes to schedule them. The last batches would be small, because some shards have nothing left.
_BATCHES, _METERED, _TURN, _SOON_SECONDS = 400, 360, 5, 60.0


async def calendar(size: Size) -> list[Figure]:
    """Bytes of a scheduled page with its fingerprint, and the cost of leases and acknowledgements of revisits."""
    added: list[Cost] = []
    plain: list[Cost] = []
    kept: list[Cost] = []
    with Server(durable=False) as server:
        async with await Workload.open(server) as workload, await Frontier.open(server.url, namespace="k") as frontier:
            await frontier.crawls.create(_CRAWL, Limits(delay_seconds=0, every="1d"))
            before, began_mono = server.memory()[0], time.monotonic()
            count = await _fill(frontier, 0, size.of(_PAGES), DAY)
            seconds = time.monotonic() - began_mono
            grown = (server.memory()[0] - before) / count
            idle = Cost()
            with metered(server, idle):
                for _ in range(3):
                    if await frontier.lease(wait_seconds=5):
                        raise RuntimeError("A page was due: the measurement is void.")
            due = _BATCHES * BATCH
            for turn in range(size.repeats):
                await _fill(frontier, count + turn * due, count + (turn + 1) * due, _SOON_SECONDS)
                filled_mono = time.monotonic()
                added.append(Cost(urls=due))
                with metered(server, added[-1]):
                    await workload.fill(due, _HOSTS)
                await asyncio.sleep(max(0, filled_mono + _SOON_SECONDS - time.monotonic()))
                new, again = await _take_turns(workload, frontier)
                plain.append(new)
                kept.append(again)
    note = f"{count:,} pages of {_HOSTS} hosts, paths of 39 characters"
    ratios = [again.server_us / new.server_us for again, new in zip(kept, plain, strict=True)]
    with_add = [new.server_us + add.server_us for new, add in zip(plain, added, strict=True)]
    whole = [again.server_us / cost for again, cost in zip(kept, with_add, strict=True)]
    return [
        Figure(name="a scheduled page with dedup", unit="bytes", values=[grown], at_most=90, note=note),
        Figure(name="time to schedule these pages", unit="s", values=[seconds], note="added, leased and acknowledged"),
        Figure(
            name="idle store with these pages, server CPU", unit="% of a core",
            values=[100 * idle.server_seconds / idle.wall_seconds], note="one worker waits for 15 s",
        ),
        Figure(
            name="lease and acknowledge a new page, server CPU", unit="us/URL",
            values=[cost.server_us for cost in plain], note=f"{plain[0].urls:,} pages a repeat",
        ),
        Figure(
            name="lease and acknowledge a revisit, server CPU", unit="us/URL",
            values=[cost.server_us for cost in kept], note=f"{kept[0].urls:,} pages a repeat",
        ),
        Figure(name="a revisit, of a new page", unit="x", values=ratios, at_most=1.2),
        Figure(name="a revisit, of a new page with its add", unit="x", values=whole, note="a revisit is not added"),
        Figure(name="commands for a new page", unit="commands", values=[cost.commands / cost.urls for cost in plain]),
        Figure(name="commands for a revisit", unit="commands", values=[cost.commands / cost.urls for cost in kept]),
    ]  # fmt: skip


async def _fill(frontier: Frontier, first: int, last: int, seconds: float) -> int:
    """Add pages and visit each once, so that it is due after about `seconds`. Returns the number of pages."""
    until_mono = time.monotonic() + _FILL_SECONDS
    visiting: asyncio.Future[list[None]] | None = None
    for start in range(first, last, _PORTION):
        if time.monotonic() > until_mono:
            last = start
            break
        await frontier.add(_CRAWL, [url(n, host(n % _HOSTS)) for n in range(start, min(start + _PORTION, last))])
        if visiting is not None:
            await visiting
        visiting = asyncio.gather(*(_visit_all(frontier, shards, seconds) for shards in _shares(frontier)))
    if visiting is not None:
        await visiting
    # Visit the pages that were added while the others were visited.
    await _visit_all(frontier, None, seconds)
    return last - first


def _shares(frontier: Frontier) -> list[range]:
    return [range(task, frontier.shards.count, _TASKS) for task in range(_TASKS)]


async def _visit_all(frontier: Frontier, shards: Sequence[int] | None, seconds: float) -> None:
    while batch := await frontier.lease(hosts=200, visits=1000, shards=shards):
        await _schedule(frontier, batch, seconds)


async def _schedule(frontier: Frontier, batch: list[Lease], seconds: float) -> None:
    """Acknowledge visits. Intervals and rates differ by up to a third, as those of pages with several visits do."""
    done = []
    for lease in batch:
        outcomes = []
        for visit in lease.visits:
            number = hash(visit.url)
            history = visit.history or _history(96 + number % 64)
            outcomes.append(visit.scheduled(history, seconds * (1 - number % 1000 / 3000)))
        done.append(Done(lease=lease, outcomes=outcomes, success=True, response_seconds=0.05))
    await frontier.acknowledge_all(done)


@cache
def _history(rate: int) -> PageHistory:
    return PageHistory(rate_mean=rate, rate_precision=20, first_seen=1, text_hash=b"abcde")


async def _take_turns(workload: Workload, frontier: Frontier) -> tuple[Cost, Cost]:
    """Visit new pages and pages that are due, a few batches at a time. Returns the cost of each kind."""
    new, again = Cost(), Cost()
    for turn in range(_METERED // _TURN):
        for cost in (new, again) if turn % 2 else (again, new):
            with metered(workload.server, cost):
                for _ in range(_TURN):
                    batch = await (workload.frontier if cost is new else frontier).lease(hosts=HOSTS, visits=VISITS)
                    if cost is new:
                        await workload.acknowledge(batch)
                    else:
                        await _schedule(frontier, batch, DAY)
                    cost.urls += sum(len(lease.visits) for lease in batch)
    await workload.drain()
    await _visit_all(frontier, None, DAY)
    return new, again
