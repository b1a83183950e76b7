"""`crawl`: Shoal and four other crawlers on the same pages, in one run, taking turns.

Every crawler follows all links of its sites to the end. Start-up is measured separately, by a crawl of one page, and
subtracted from the CPU time. The wall time is from nginx's log, from the first request to the last response, so it does
not include start-up.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.crawl.contestants import Contestant, Crawlee, Scrapy, ScrapyRedis, Shoal, Wget2
from bench.crawl.corpus import DJANGO, MIX, pages, unpack
from bench.crawl.program import Run
from bench.figures import Figure
from bench.size import Size
from tests.system.documents import Tree, Web

_COPIES = 10
# The share of a site's pages that a crawler must read: some crawlers miss some links.
_COMPLETE = 0.97
# A tenth of the CPU of scrapy-redis, and at most 1.5 times that of wget2, which extracts neither titles nor text.
_AT_LEAST: dict[type[Contestant], float] = {ScrapyRedis: 10, Wget2: 0.67}
_PEERS = (Scrapy(), ScrapyRedis(), Crawlee(), Wget2())


@dataclass
class Turns:
    """One crawler with some number of processes: its runs, and the CPU of a crawl of one page."""

    contestant: Contestant
    processes: int
    startup_seconds: float = 0.0
    runs: list[Run] = field(default_factory=list)

    @property
    def cpu_ms(self) -> list[float]:
        return [(run.cpu_seconds - self.startup_seconds) / run.pages * 1e3 for run in self.runs]

    @property
    def per_second(self) -> list[float]:
        return [run.per_second for run in self.runs]

    def start_up(self, web: Web, page: list[str]) -> None:
        run = _crawl(self.contestant, web, page[: self.processes], self.processes)
        self.startup_seconds = run.cpu_seconds

    def turn(self, web: Web, seeds: Callable[[int], list[str]], html: int) -> None:
        # Each process of a crawler that shares nothing needs its own hosts.
        copies = _COPIES if self.contestant.fast else self.processes
        run = _crawl(self.contestant, web, seeds(copies), self.processes)
        if run.pages < html * copies * _COMPLETE:
            raise RuntimeError(f"{self.contestant.name} fetched {run.pages} of {html * copies} pages: void.")
        self.runs.append(run)


async def crawl(size: Size) -> list[Figure]:
    trees = (DJANGO,) if size.quick else MIX
    unpack(trees)
    repeats = 1 if size.quick else 3
    html = sum(pages(tree) for tree in trees)
    every = [Turns(contestant, processes) for processes in (1, 2) for contestant in (Shoal(), *_PEERS)]
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as name:
        single = single_page(Path(name))
        with Web(Path(name) / "web", [(single, 2), *((tree, _COPIES) for tree in trees)]) as web:

            def seeds(count: int) -> list[str]:
                return [web.sites(tree)[copy] + tree.start for tree in trees for copy in range(count)]

            for turns in every:
                turns.start_up(web, [site + single.start for site in web.sites(single)])
            for _ in range(repeats):
                for turns in every:
                    turns.turn(web, seeds, html)
    return [
        figure
        for processes in (1, 2)
        for figure in _figures([turns for turns in every if turns.processes == processes])
    ]


def _crawl(contestant: Contestant, web: Web, seeds: list[str], processes: int) -> Run:
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        return contestant.crawl(web, seeds, Path(folder), processes)


def single_page(folder: Path) -> Tree:
    (folder / "single/html").mkdir(parents=True)
    (folder / "single/html/index.html").write_text("<title>One</title><p>page")
    return Tree(str(folder / "single"), "html")


def _figures(every: list[Turns]) -> list[Figure]:
    ours, others = every[0], every[1:]
    redis = next(turns for turns in others if isinstance(turns.contestant, ScrapyRedis))
    run, start = ours.runs[0], ours.startup_seconds
    what = f"crawl, {ours.processes} process{'es' if ours.processes > 1 else ''}"
    mix = f"{run.pages:,} pages of {run.bytes / run.requests / 1e3:.0f} KB; scrapy-redis {redis.runs[0].pages:,}"
    figures = [
        Figure(name=f"{what}: CPU", unit="ms/page", values=ours.cpu_ms, peers=redis.cpu_ms, note=mix),
        Figure(
            name=f"{what}: CPU of the store", unit="ms/page", values=[run.store_ms for run in ours.runs],
            peers=[run.store_ms for run in redis.runs],
        ),
        Figure(name=f"{what}: pages", unit="pages/s", values=ours.per_second, peers=redis.per_second),
        Figure(
            name=f"{what}: pages against scrapy-redis", unit="times", at_least=10,
            values=[own / theirs for own, theirs in zip(ours.per_second, redis.per_second, strict=True)],
        ),
        Figure(name=f"{what}: CPU of a start", unit="s", values=[start], peers=[redis.startup_seconds]),
    ]  # fmt: skip
    for other in others:
        ratios = [theirs / own for theirs, own in zip(other.cpu_ms, ours.cpu_ms, strict=True)]
        note = f"{other.contestant.name}: {shown(other.cpu_ms)} ms/page, {shown(other.per_second)} pages/s"
        name = f"{what}: CPU of {other.contestant.name} to Shoal's"
        figures.append(
            Figure(name=name, unit="times", values=ratios, at_least=_AT_LEAST.get(type(other.contestant)), note=note)
        )
    return figures


def shown(values: list[float]) -> str:
    """The median and, if the values differ, their spread."""
    digits = 2 if statistics.median(values) < 10 else 0 if statistics.median(values) >= 100 else 1
    middle = f"{statistics.median(values):,.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"
