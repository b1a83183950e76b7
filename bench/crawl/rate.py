"""`rate`: the rate of a polite crawl relative to its limit, and its delays; `start`: from the command to a stored page.

The limit of a crawl with one open request per host is hosts / (delay + response time). The rate that Shoal reaches is
read from nginx's log, from the middle of the crawl: at the start hosts are discovered one after the other, at the end
they run out. A gap is the time from the end of one response to the start of the next request to the same host, over all
workers.
"""

from __future__ import annotations

import itertools
import sqlite3
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from bench.crawl.program import run, shoal
from bench.figures import Figure
from bench.size import Size
from tests.system.documents import HANDBOOK, Request, Web

_HOSTS = 300
_DELAY = 0.5
_WORKERS = 2
# nginx rounds both ends of a gap to a millisecond.
_ROUNDING = 0.002
_STARTS = 5


async def rate(size: Size) -> list[Figure]:
    # Every host ends at the same time, so the middle of the crawl has all of them.
    pages = 30 if size.quick else 100
    with (
        tempfile.TemporaryDirectory(prefix="shoal-bench-") as name,
        Web(Path(name) / "web", [(HANDBOOK, _HOSTS)]) as web,
    ):
        seeds = [site + HANDBOOK.start for site in web.sites(HANDBOOK)]
        mark = web.mark()
        command = shoal(seeds, Path(name), "--max-pages-per-host", str(pages), workers=_WORKERS, delay=_DELAY)
        run(web, [command], Path(name))
        requests = sorted(web.requests(mark), key=lambda request: request.started)
    began, ended = requests[0].started, requests[-1].ended
    first, last = began + (ended - began) * 0.2, began + (ended - began) * 0.8
    steady = [request for request in requests if first <= request.started < last]
    response_seconds = statistics.fmean(request.ended - request.started for request in steady)
    reached = len(steady) / (last - first)
    gaps = _gaps(requests)
    return [
        Figure(
            name="polite crawl: rate relative to its limit", unit="times",
            values=[reached / (_HOSTS / (_DELAY + response_seconds))],
            at_least=0.95,
            note=f"{_HOSTS} hosts, {_DELAY} s, {_WORKERS} workers, {len(requests):,} requests",
        ),
        Figure(name="polite crawl: pages", unit="pages/s", values=[reached], note=f"over {last - first:.0f} s"),
        Figure(
            name="polite crawl: gaps shorter than the delay", unit="gaps",
            values=[float(sum(gap < _DELAY - _ROUNDING for gap in gaps))], at_most=0,
            note=f"of {len(gaps):,}; the shortest {min(gaps) * 1e3:.0f} ms",
        ),
        Figure(name="polite crawl: median gap", unit="ms", values=[statistics.median(gaps) * 1e3]),
    ]  # fmt: skip


async def start(size: Size) -> list[Figure]:
    seconds = []
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as name, Web(Path(name) / "web", [(HANDBOOK, 1)]) as web:
        seed = web.sites(HANDBOOK)[0] + HANDBOOK.start
        for number in range(_STARTS):
            folder = Path(name) / str(number)
            folder.mkdir()
            command = shoal([seed], folder, "--no-follow", workers=1)
            began = time.perf_counter()
            run(web, [command], folder)
            seconds.append(time.perf_counter() - began)
            with sqlite3.connect(folder / "pages.db") as database:
                if database.execute("SELECT count(*) FROM pages WHERE status = 200").fetchone() != (1,):
                    raise RuntimeError("The page is not in pages.db: the measurement is void.")
    return [Figure(name="crawl of one page, command to exit", unit="s", values=seconds, at_most=1.5, note="1 worker")]


def _gaps(requests: list[Request]) -> list[float]:
    hosts: dict[str, list[Request]] = defaultdict(list)
    for request in requests:
        hosts[request.address].append(request)
    return [after.started - before.ended for own in hosts.values() for before, after in itertools.pairwise(own)]
