"""How old the copy of a site gets, with simulated and with real visits; and what the calendar costs the store.

`revisit` has three parts: Shoal's rule beside others in a simulation (bench/revisit_rules.py), real workers on a site
whose pages change by a compressed clock, and the calendar at five million pages.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from pathlib import Path

from bench.cost import Cost, metered
from bench.figures import Figure
from bench.revisit_rules import DAY, Adaptive, Nutch, Outcome, Rule, StormCrawler, Uniform, bound, judge, simulate, site
from bench.server import Server
from bench.size import Size
from bench.workload import BATCH, Workload, host, url
from shoal import Done, Frontier, Lease, Limits
from shoal.model.page_history import PageHistory
from shoal.politeness.revisit import Bounds
from tests.site.changing import changing
from tests.system.commanding import LOCAL, Shell

_HOSTS, _PORTION, _BATCHES = 200, 16_000, 20
# A machine that is too slow for all pages measures with those that it has by then.
_POPULATION_SECONDS = 300
_TARGETS = {3.5: 0.6, 14.0: 0.8}
# Of the site with real workers, a day is a second. Each of two hosts has the same budget, for more or fewer pages.
_LIVE_BOUNDS, _LIVE_BUDGET, _LIVE_SECONDS = Bounds(DAY, 60 * DAY), 40, 180


async def revisit(size: Size) -> list[Figure]:
    return [*_simulated(size), *await live(size), *await _calendar(size)]


async def live(size: Size) -> list[Figure]:
    """The part of `revisit` with real workers."""
    return await asyncio.to_thread(_live, size)


def _peers(days: float, bounds: Bounds) -> dict[str, Rule]:
    return {"uniform": Uniform(days), "StormCrawler": StormCrawler(days, bounds), "Nutch": Nutch(days, bounds)}


def _simulated(size: Size) -> list[Figure]:
    count, bounds = size.of(3000), Bounds(3600.0, 60 * DAY)
    figures = []
    for days in _TARGETS:
        until = days * 40
        rules = _peers(days, bounds) | {"Shoal": Adaptive(count, count / days, bounds)}
        pages = site(count, until)
        made = {name: simulate(pages, rule, days, until) for name, rule in rules.items()}
        ages = {name: judge(pages, visits, days * 10, until) for name, visits in made.items()}
        soon = judge(pages, made["Shoal"], days * 10, days * 20)
        best = bound(pages, days, bounds)
        name = f"at {days:g} days a page"
        figures += [
            *_compared(name, days, ages, f"{count:,} pages, visits 10 to 40"),
            Figure(name=f"age {name}, of the bound", unit="x", values=[ages["Shoal"].age / best], at_most=1.15),
            Figure(
                name=f"age {name}, of the bound, soon", unit="x", values=[soon.age / best], at_most=1.15,
                note="visits 10 to 20",
            ),
        ]  # fmt: skip
    return figures


def _compared(name: str, days: float, ages: dict[str, Outcome], how: str) -> list[Figure]:
    ours = ages["Shoal"]
    return [
        Figure(name=f"age {name}", unit="days", values=[ours.age], note=how),
        *(
            Figure(
                name=f"age {name}, of {peer}", unit="x", values=[ours.age / ages[peer].age],
                at_most=_TARGETS[days] if peer == "uniform" else 1,
            )
            for peer in ("uniform", "StormCrawler", "Nutch")
        ),
        Figure(name=f"budget used {name}", unit="x", values=[ours.visits * days], at_least=0.98, at_most=1.02),
        Figure(name=f"longest interval {name}", unit="days", values=[ours.longest], at_most=60),
    ]  # fmt: skip


def _live(size: Size) -> list[Figure]:
    """Real workers and a real store. The site's log and its moments of change give the ages.

    The other rules are simulated on the same changes: their crawlers do not run here.
    """
    seconds = 60 if size.quick else _LIVE_SECONDS
    hosts = {days: site(round(days * _LIVE_BUDGET), seconds + 1.0, seed=int(days)) for days in _TARGETS}
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as name:
        folder = Path(name)
        changes = [[page.changes for page in pages] for pages in hosts.values()]
        with changing(folder / "site", changes) as web:
            urls = [web.url(number, page) for number, pages in enumerate(changes) for page in range(len(pages))]
            (folder / "seeds").write_text("\n".join(urls))
            shell = Shell(folder)
            try:
                running = shell.start(
                    "crawl", "--seeds", "seeds", "--name", "live", "--delay", "0", "--every", "1s..60s",
                    "--budget", f"{_LIVE_BUDGET}/s", "--workers", "1", "--out", "pages.db", *LOCAL,
                )  # fmt: skip
                time.sleep(seconds - web.now)
                running.end(signal.SIGINT)
            finally:
                shell.close()
            served = web.log()
    figures = []
    for number, (days, pages) in enumerate(hosts.items()):
        visits: list[list[float]] = [[] for _ in pages]
        for one in served:
            if one.host == number:
                visits[one.page].append(one.moment)
        start = min(10 * days, seconds / 2)
        ages = {"Shoal": judge(pages, visits, start, seconds)}
        for peer, rule in _peers(days, _LIVE_BOUNDS).items():
            ages[peer] = judge(pages, simulate(pages, rule, days, seconds), start, seconds)
        best = bound(pages, days, _LIVE_BOUNDS)
        name = f"with real workers at {days:g} days a page"
        figures += [
            *_compared(name, days, ages, f"{len(pages):,} pages, a day is a second, days {start:g} to {seconds}"),
            Figure(name=f"age {name}, of the bound", unit="x", values=[ages["Shoal"].age / best], at_most=1.15),
        ]
    unchanged = [one.wire for one in served if one.status == 304]
    wire = Figure(name="a 304 on the wire", unit="bytes", values=[sum(unchanged) / len(unchanged)], at_most=400)
    wire.note = f"request and response with headers; {len(unchanged):,} of {len(served):,} visits"
    return [*figures, wire]


async def _calendar(size: Size) -> list[Figure]:
    """Bytes of a scheduled page with its fingerprint, and the cost of leases and acknowledgements of revisits."""
    count = size.of(5_000_000)
    with Server(durable=False) as server:
        async with await Workload.open(server) as workload:
            frontier = workload.frontier
            await frontier.crawls.create("kept", Limits(delay_seconds=0, every="1d"))
            before, began_mono = server.memory()[0], time.monotonic()
            for start in range(0, count, _PORTION):
                if time.monotonic() - began_mono > _POPULATION_SECONDS:
                    count = start
                    break
                urls = [url(n, host(n % _HOSTS)) for n in range(start, min(start + _PORTION, count))]
                await frontier.add("kept", urls)
                while batch := await frontier.lease(hosts=200, visits=200):
                    await _schedule(frontier, batch, DAY)
            grown = (server.memory()[0] - before) / count
            idle = Cost()
            with metered(server, idle):
                for _ in range(3):
                    if await frontier.lease(wait_seconds=5):
                        raise RuntimeError("A page was due: the measurement is void.")
            rounds = max(8, size.of(20))
            due = _BATCHES * BATCH * (rounds + 4)
            added = Cost(urls=due)
            with metered(server, added):
                await workload.fill(due, _HOSTS)
            plain = await _rounds(workload, rounds, None)
            while batch := await frontier.lease(hosts=200, visits=200):
                await workload.acknowledge(batch)
            # Enough pages for as many rounds are due soon, the others stay in the calendar.
            fresh = [url(n, host(n % _HOSTS)) for n in range(count, count + due)]
            for start in range(0, due, _PORTION):
                await frontier.add("kept", fresh[start : start + _PORTION])
            while batch := await frontier.lease(hosts=200, visits=200):
                await _schedule(frontier, batch, 60.0)
            # Until the last of them is due.
            await asyncio.sleep(60)
            kept = await _rounds(workload, rounds, DAY)
    note = f"{count:,} pages of {_HOSTS} hosts, paths of 39 characters"
    return [
        Figure(name="a scheduled page with dedup", unit="bytes", values=[grown], at_most=90, note=note),
        Figure(
            name="idle store with these pages, server CPU", unit="% of a core",
            values=[100 * idle.server_seconds / idle.wall_seconds], note="one worker waits for 15 s",
        ),
        Figure(name="lease and acknowledge a new page, server CPU", unit="us a URL", values=[plain.server_us]),
        Figure(name="lease and acknowledge a revisit, server CPU", unit="us a URL", values=[kept.server_us]),
        Figure(name="a revisit, of a new page", unit="x", values=[kept.server_us / plain.server_us], at_most=1.2),
        Figure(
            name="a revisit, of a new page with its add", unit="x",
            values=[kept.server_us / (plain.server_us + added.server_us)], note="a revisit is not added",
        ),
    ]  # fmt: skip


async def _schedule(frontier: Frontier, batch: list[Lease], seconds: float) -> None:
    """Intervals differ by up to a third, and so do rates: as those of pages do that were visited some times."""
    done = []
    for lease in batch:
        outcomes = []
        for visit in lease.visits:
            spread = hash(visit.url) % 1000 / 1000
            history = visit.history or PageHistory(
                rate_mean=96 + hash(visit.url) % 64, rate_precision=20, first_seen=1, text_hash=b"abcde"
            )
            outcomes.append(visit.scheduled(history, seconds * (1 - spread / 3)))
        done.append(Done(lease=lease, outcomes=outcomes, success=True, response_seconds=0.05))
    await frontier.acknowledge_all(done)


async def _rounds(workload: Workload, rounds: int, seconds: float | None) -> Cost:
    cost = Cost()
    for _ in range(rounds):
        workload.server.settle()
        with metered(workload.server, cost):
            for _ in range(_BATCHES):
                batch = await workload.frontier.lease(hosts=16, visits=8)
                cost.urls += sum(len(lease.visits) for lease in batch)
                if seconds is None:
                    await workload.acknowledge(batch)
                else:
                    await _schedule(workload.frontier, batch, seconds)
    return cost
