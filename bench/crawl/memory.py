"""`footprint`: the memory of a worker over a long crawl, which must not grow with the pages it has read."""

from __future__ import annotations

import math
import tempfile
import threading
import time
from pathlib import Path

from bench.crawl.corpus import ALL, unpack
from bench.crawl.program import run, shoal
from bench.figures import Figure
from bench.size import Size
from tests.system.documents import Web

_EVERY_SECONDS = 0.5
_COPIES = 3


async def footprint(size: Size) -> list[Figure]:
    unpack(ALL)
    most = size.of(50_000)
    samples: list[tuple[float, int]] = []
    with (
        tempfile.TemporaryDirectory(prefix="shoal-bench-") as name,
        Web(Path(name) / "web", [(tree, _COPIES) for tree in ALL]) as web,
    ):
        seeds = [site + tree.start for tree in ALL for site in web.sites(tree)]
        command = shoal(seeds, Path(name), "--max-pages", str(most), workers=1)

        def watch(pid: int) -> None:
            threading.Thread(target=_sample, args=(pid, samples), daemon=True).start()

        mark = web.mark()
        done = run(web, [command], Path(name), watch=watch)
        ends = sorted(request.ended for request in web.requests(mark) if request.is_page)
    # The resident size at each tenth of the pages.
    tenths = [_at(samples, ends[min(len(ends) - 1, len(ends) * part // 10)]) for part in range(1, 11)]
    course = " ".join(f"{size / 1e6:.0f}" for size in tenths)
    return [
        Figure(
            name="memory of a worker, largest", unit="MB", values=[max(size for _, size in samples) / 1e6],
            at_most=150,
            note=f"{done.pages:,} pages of {done.bytes / done.requests / 1e3:.0f} KB; MB at each tenth: {course}",
        ),
        Figure(
            name="memory of a worker, last tenth to second", unit="times", values=[tenths[-1] / tenths[1]], at_most=1.2,
        ),
    ]  # fmt: skip


def _sample(pid: int, samples: list[tuple[float, int]]) -> None:
    """Sample the resident size of the program's largest worker process until the program ends."""
    while True:
        sizes = [_resident(child) for child in _children(pid)]
        if sizes:
            samples.append((time.time(), max(sizes)))
        if not Path(f"/proc/{pid}").exists():
            return
        time.sleep(_EVERY_SECONDS)


def _children(pid: int) -> list[int]:
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return [child for child in children if b"shoal.worker" in Path(f"/proc/{child}/cmdline").read_bytes()]
    except OSError:
        return []


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    except OSError:
        return 0


def _at(samples: list[tuple[float, int]], moment: float) -> int:
    return min(samples, key=lambda sample: math.fabs(sample[0] - moment))[1]
