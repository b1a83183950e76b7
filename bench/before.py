"""`--before CHECKOUT`: this tree and another checkout of Shoal, taking turns at the same measurement.

A figure is the ratio of this tree's CPU time to the other's: below 1 is less. The two alternate within one run, so a
busy machine slows both.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench.crawl.against import Turns, single_page
from bench.crawl.contestants import Shoal
from bench.crawl.corpus import DJANGO, MIX, pages, unpack
from bench.crawl.program import ROOT
from bench.figures import Figure
from bench.size import Size
from tests.system.documents import Web

_COPIES = 10


def crawl(before: Path, size: Size) -> list[Figure]:
    """CPU of a whole crawl, with one process and with two."""
    trees = (DJANGO,) if size.quick else MIX
    unpack(trees)
    html = sum(pages(tree) for tree in trees)
    both = [(Turns(Shoal(), count), Turns(Shoal(before), count)) for count in (1, 2)]
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as name:
        single = single_page(Path(name))
        with Web(Path(name) / "web", [(single, 2), *((tree, _COPIES) for tree in trees)]) as web:

            def seeds(count: int) -> list[str]:
                return [web.sites(tree)[copy] + tree.start for tree in trees for copy in range(count)]

            every = [turns for pair in both for turns in pair]
            for turns in every:
                turns.start_up(web, [site + single.start for site in web.sites(single)])
            for _ in range(size.repeats):
                for turns in every:
                    turns.turn(web, seeds, html)
    return [
        _ratio(f"crawl, {now.processes} process{'es' * (now.processes > 1)}: CPU a page", now.cpu_ms, then.cpu_ms, "ms")
        for now, then in both
    ]


def speed(before: Path, size: Size) -> list[Figure]:
    """CPU of the frontier's operations, each tree measured by its own `bench speed`."""
    rows: dict[Path, list[float]] = {ROOT: [], before: []}
    for _ in range(size.repeats):
        for tree, values in rows.items():
            values.append(_end_to_end(tree, quick=size.quick))
    return [_ratio("frontier, end to end: CPU of both sides", rows[ROOT], rows[before], "us a URL")]


def _end_to_end(tree: Path, *, quick: bool) -> float:
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as name:
        out = Path(name) / "figures.json"
        command = [sys.executable, "-m", "bench", "speed", "--repeats", "1", "--json", str(out)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree)])}
        subprocess.run([*command, *(["--quick"] if quick else [])], cwd=tree, env=environment, check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        figures = msgspec.json.decode(out.read_bytes())["figures"]
    return float(next(figure["values"][0] for figure in figures if figure["name"] == "end to end, CPU of both"))


def _ratio(name: str, now: list[float], then: list[float], unit: str) -> Figure:
    ratios = [new / old for new, old in zip(now, then, strict=True)]
    note = f"{statistics.median(now):.3g} {unit} now, {statistics.median(then):.3g} before"
    return Figure(name=f"{name}, now to before", unit="times", values=ratios, note=note)


MEASUREMENTS: dict[str, Callable[[Path, Size], list[Figure]]] = {"crawl": crawl, "speed": speed}
