"""`scrapy`: a Scrapy project alone, with scrapy-redis and on Shoal, on the same pages, in one run, taking turns.

The spider is the same for all three; with scrapy-redis and on Shoal it is a RedisSpider, and only settings differ.
Start-up is subtracted from the CPU time as in `crawl`. The figures are those of Scrapy on Shoal, not of Shoal's worker.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.crawl import by_scrapy
from bench.crawl.against import Turns, shown, single_page
from bench.crawl.contestants import Scrapy, ScrapyOnShoal, ScrapyRedis
from bench.crawl.corpus import DJANGO, pages, unpack
from bench.crawl.program import ROOT
from bench.figures import Figure
from bench.server import Server
from bench.size import Size
from tests.system.documents import Tree, Web

# One process must not be slower than Scrapy alone. Two processes must be much faster than two of scrapy-redis.
_TO_ALONE = 1.0
_TO_REDIS = 1.5
_PICKED_UP_MS = 100
_PUSHES = 20


async def scrapy(size: Size) -> list[Figure]:
    unpack((DJANGO,))
    html = pages(DJANGO)
    every = [
        Turns(contestant, processes)
        for processes in (1, 2)
        for contestant in (ScrapyOnShoal(), Scrapy(), ScrapyRedis())
    ]
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as name:
        single = single_page(Path(name))
        with Web(Path(name) / "web", [(single, 2), (DJANGO, 2)]) as web:

            def seeds(count: int) -> list[str]:
                return [site + DJANGO.start for site in web.sites(DJANGO)[:count]]

            for turns in every:
                turns.start_up(web, [site + single.start for site in web.sites(single)])
            for _ in range(1 if size.quick else 7):
                for turns in every:
                    turns.turn(web, seeds, html)
            picked_up = _picked_up(web, single, Path(name))
    return [*_figures(every[:3]), *_figures(every[3:]), picked_up]


def _figures(every: list[Turns]) -> list[Figure]:
    ours, alone, redis = every
    is_single = ours.processes == 1
    what = f"Scrapy on Shoal, {ours.processes} process{'' if is_single else 'es'}"
    run = ours.runs[0]
    figures = [
        Figure(
            name=f"{what}: CPU", unit="ms/page", values=ours.cpu_ms, peers=redis.cpu_ms,
            note=f"{run.pages:,} pages of {run.bytes / run.requests / 1e3:.0f} KB; Scrapy alone {shown(alone.cpu_ms)}",
        ),
        Figure(
            name=f"{what}: CPU of the store", unit="ms/page", values=[run.store_ms for run in ours.runs],
            peers=[run.store_ms for run in redis.runs],
        ),
        Figure(
            name=f"{what}: pages", unit="pages/s", values=ours.per_second, peers=redis.per_second,
            note=f"Scrapy alone {shown(alone.per_second)}",
        ),
    ]  # fmt: skip
    for other, pages_at_least in ((alone, _TO_ALONE if is_single else None), (redis, None if is_single else _TO_REDIS)):
        name = "Scrapy alone" if other is alone else "scrapy-redis"
        figures += [
            Figure(
                name=f"{what}: pages read to those of {name}", unit="times",
                values=[
                    theirs.read_seconds / own.read_seconds for own, theirs in zip(ours.runs, other.runs, strict=True)
                ],
                note="until the last page is read, not until it is downloaded",
            ),
            Figure(
                name=f"{what}: CPU of {name} to it", unit="times",
                values=[theirs / own for theirs, own in zip(other.cpu_ms, ours.cpu_ms, strict=True)],
            ),
            Figure(
                name=f"{what}: pages to those of {name}", unit="times", at_least=pages_at_least,
                values=[own / theirs for own, theirs in zip(ours.per_second, other.per_second, strict=True)],
            ),
        ]  # fmt: skip
    return figures


def _picked_up(web: Web, single: Tree, folder: Path) -> Figure:
    """The time from the push of a start URL to its request, by an idle process."""
    url = web.sites(single)[0] + single.start
    milliseconds = []
    with Server(durable=True) as store, (folder / "picked up").open("w") as log:
        mark = web.mark()
        argv = [sys.executable, "-m", "bench.crawl.by_scrapy", "out.jsonl", f"shoal+{store.url}", url]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        process = subprocess.Popen(argv, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            # The first one waits for the process to start.
            for number in range(_PUSHES + 1):
                pushed = time.time()
                store.redis.lpush(by_scrapy.KEY, f"{url}?{number}")
                deadline = time.monotonic() + 60
                while not (
                    requests := [request for request in web.requests(mark) if request.path.endswith(f"?{number}")]
                ):
                    if time.monotonic() > deadline or process.poll() is not None:
                        raise RuntimeError(
                            f"start URL {number} was not requested; {(folder / 'picked up').read_text()}"
                        )
                    time.sleep(0.01)
                milliseconds.append((requests[0].started - pushed) * 1e3)
        finally:
            process.kill()
            process.wait()
    return Figure(
        name="Scrapy on Shoal: start URL pushed to request sent", unit="ms", values=milliseconds[1:],
        at_most=_PICKED_UP_MS, note=f"{_PUSHES} times, to a process that had nothing to do",
    )  # fmt: skip
