"""The age of the copy of a site, with simulated and with real visits; and the cost of the calendar to the store.

`revisit` has three parts: Shoal's rule compared with others in a simulation (bench/revisit_rules.py), real workers on a
site whose pages change by a compressed clock, and the calendar at five million pages (bench/revisit_cost.py).
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from pathlib import Path

from bench.figures import Figure
from bench.revisit_cost import calendar
from bench.revisit_rules import (
    DAY,
    Adaptive,
    Known,
    Nutch,
    Outcome,
    Rule,
    StormCrawler,
    Uniform,
    bound,
    judge,
    simulate,
    site,
)
from bench.size import Size
from shoal.politeness.revisit import Bounds
from tests.site.changing_site import changing
from tests.system.shell import LOCAL, Shell

_TARGETS = {3.5: 0.6, 14.0: 0.8}
# On the site with real workers, a day is four seconds: histories have a resolution of one second, and the highest rate
# that they can store is 0.76 changes per second. Each of two hosts has the same budget of visits per day, for more or
# fewer pages. The last day leaves half as much time as the first ten visits of a page take at 14 days a page.
_LIVE_BOUNDS, _LIVE_BUDGET, _LIVE_DAY_SECONDS, _LIVE_DAYS = Bounds(DAY, 60 * DAY), 160, 4, 210


async def revisit(size: Size) -> list[Figure]:
    return [*_simulated(size), *await live(size), *await calendar(size)]


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
    """Real workers and a real store. The ages are computed from the site's log and its times of change.

    The other rules are simulated on the same changes: their crawlers do not run here.
    """
    until = 30 if size.quick else _LIVE_DAYS
    hosts = {days: site(round(days * _LIVE_BUDGET), until + 1.0, seed=int(days)) for days in _TARGETS}
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as name:
        folder = Path(name)
        changes = [[[day * _LIVE_DAY_SECONDS for day in page.changes] for page in pages] for pages in hosts.values()]
        with changing(folder / "site", changes) as web:
            urls = [web.url(number, page) for number, pages in enumerate(changes) for page in range(len(pages))]
            (folder / "seeds").write_text("\n".join(urls))
            shell = Shell(folder)
            try:
                running = shell.start(
                    "crawl", "--seeds", "seeds", "--name", "live", "--delay", "0", "--workers", "1",
                    "--every", f"{_LIVE_DAY_SECONDS}s..{60 * _LIVE_DAY_SECONDS}s",
                    "--budget", f"{_LIVE_BUDGET // _LIVE_DAY_SECONDS}/s", "--out", "pages.db", *LOCAL,
                )  # fmt: skip
                time.sleep(until * _LIVE_DAY_SECONDS - web.now)
                running.end(signal.SIGINT)
            finally:
                shell.close()
            served = web.log()
    figures = []
    for number, (days, pages) in enumerate(hosts.items()):
        visits: list[list[float]] = [[] for _ in pages]
        for response in served:
            if response.host == number:
                visits[response.page].append(response.moment / _LIVE_DAY_SECONDS)
        start = min(10 * days, until / 2)
        ages = {"Shoal": judge(pages, visits, start, until)}
        for peer, rule in _peers(days, _LIVE_BOUNDS).items():
            ages[peer] = judge(pages, simulate(pages, rule, days, until), start, until)
        # The mean age that the bound has for these pages, and its age for the changes that they really have.
        expected = bound(pages, days, _LIVE_BOUNDS)
        known = judge(pages, simulate(pages, Known(pages, days, _LIVE_BOUNDS), days, until), start, until)
        name = f"with real workers at {days:g} days a page"
        note = f"{len(pages):,} pages, a day is {_LIVE_DAY_SECONDS} seconds, days {start:g} to {until}"
        figures += [
            *_compared(name, days, ages, note),
            Figure(
                name=f"age {name}, of known rates", unit="x", values=[ages["Shoal"].age / known.age], at_most=1.15,
                note="the best intervals for known rates, with the same changes",
            ),
            Figure(name=f"age {name}, of the bound", unit="x", values=[ages["Shoal"].age / expected]),
        ]  # fmt: skip
    unchanged = [response.wire for response in served if response.status == 304]
    wire = Figure(name="a 304 on the wire", unit="bytes", values=[sum(unchanged) / len(unchanged)], at_most=400)
    wire.note = f"request and response with headers; {len(unchanged):,} of {len(served):,} visits"
    return [*figures, wire]
