"""What the dashboard costs and how fast it is: 100 open ones, the first page, and how live a page is.

    python -m bench.dashboards [--dashboards N] [--rounds N] [--seconds S] [--write]

One server with a crawl that is being worked at, one client that requests the crawl all the time, and, in a process of
their own, connections that read live updates as browsers do: half of the overview, half of the crawl. Rounds with and
without them alternate, so that a machine that becomes slower does not decide. `--write` puts the figures into
docs/reference/benchmarks.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure, table
from bench.machine import machine
from shoal.frontier import Frontier
from tests.api.served import Served
from tests.dashboard.browser import Browser, chromium
from tests.dashboard.fleet import Fleet, fleet
from tests.site.answers import page

_PAGE = Path(__file__).resolve().parents[1] / "docs/reference/benchmarks.md"
_BEGIN, _END = "<!-- dashboards -->", "<!-- end of dashboards -->"
_PAUSE_SECONDS = 0.01
_CRAWL = "busy"
_STORED = "#part-figures div:has(dt:text-is('Pages stored')) dd"
_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.dashboards")
    parser.add_argument("--dashboards", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=4, help="pairs of rounds, without and with dashboards")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a round")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--view", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.view:
        host, port, count = options.view
        asyncio.run(_view_all(host, int(port), int(count)))
        return 0
    with tempfile.TemporaryDirectory() as folder, fleet(Path(folder), hosts=40) as running:
        start_crawl(running)
        where = machine(store_version(running))
        figures = first_page(running) + live(running) + cost(running, options)
    heading = ", ".join(f"{name} {value}" for name, value in where.items() if name != "versions")
    print(f"{heading}\n\n{table(figures)}")
    if options.write:
        before, _, rest = _PAGE.read_text().partition(_BEGIN)
        after = rest.partition(_END)[2]
        _PAGE.write_text(f"{before}{_BEGIN}\n- {heading}\n\n{table(figures)}\n{_END}{after}")
    return 0


def start_crawl(running: Fleet) -> None:
    hosts = running.crawls.site.take(10)
    for host in hosts:
        running.crawls.site.at(host, "/", page(*[f"/{number}" for number in range(5000)]))
        running.crawls.site.at(host, "*", page())
    running.api.client.submit(seeds=[f"http://{host}/" for host in hosts], name=_CRAWL, delay_seconds=0.05)
    running.crawls.until(lambda: running.crawls.counts(_CRAWL).stored > 20, "the crawl runs")


def store_version(running: Fleet) -> str:
    key = running.crawls.frontier.shards.prefixes[0] + "meta"
    info = running.crawls.do(running.crawls.frontier.shards.store.command("INFO", "server", key=key)).decode()
    fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    return f"store {fields.get('valkey_version', fields['redis_version'])}"


def first_page(running: Fleet, times: int = 9) -> list[Figure]:
    """The overview in a browser that has nothing of it yet."""
    paints, sizes = [], []
    with chromium() as browser:
        # The first page of a browser also starts its processes.
        for number in range(times + 1):
            with browser.page(running.api) as opened:
                opened.page.goto("/", wait_until="load")
                opened.wait_true("performance.getEntriesByName('first-contentful-paint').length > 0")
                paint = opened.page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
                size = opened.page.evaluate(
                    "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
                    ".filter((entry) => !entry.name.includes('/live/'))"
                    ".reduce((sum, entry) => sum + entry.transferSize, 0)"
                )
                if number:
                    paints.append(float(paint))
                    sizes.append(size / 1000)
    return [
        Figure(name="first page: size with style, script and icon", unit="kB", values=sizes, at_most=150),
        Figure(name="first page: first contentful paint", unit="ms", values=paints, at_most=300,
               note=f"{times} loads in Chromium with an empty cache"),
    ]  # fmt: skip


def live(running: Fleet, times: int = 5) -> list[Figure]:
    """From a page in the API's counts to the same figure in a browser, and from a press on Pause to the last request.

    The first starts with a reading of the API, so it includes the time of a page's rendering round.
    """
    shown, paused = [], []
    with chromium() as browser:
        for _ in range(times):
            shown.append(_time_to_show(browser, running))
            paused.append(_time_to_pause(browser, running))
    return [
        Figure(name="live: stored page to its place in the counts", unit="s", values=shown, at_most=2),
        Figure(name="live: Pause pressed to the last request that starts", unit="s", values=paused, at_most=2,
               note="by the site's log; 0 = none started after it"),
    ]  # fmt: skip


def _time_to_show(browser: Browser, running: Fleet) -> float:
    client = running.api.client
    with browser.page(running.api) as opened:
        opened.page.goto(f"/crawls/{_CRAWL}")
        opened.wait_true("document.documentElement.dataset.updated > 0")
        stored = client.crawl(_CRAWL)["counts"]["stored"]
        started = time.monotonic()
        while int(opened.text(_STORED).replace(",", "")) < stored:
            opened.page.wait_for_timeout(10)
        return time.monotonic() - started


def _time_to_pause(browser: Browser, running: Fleet) -> float:
    with browser.page(running.api) as opened:
        opened.page.goto(f"/crawls/{_CRAWL}")
        pressed = time.monotonic()
        opened.page.click("button:text-is('Pause')")
        opened.wait_text(".note.good", "paused")
        # Longer than a lease of this crawl has visits for.
        opened.page.wait_for_timeout(4000)
        last = max(request.began for request in running.crawls.site.requests())
    running.api.client.resume(_CRAWL)
    return max(0.0, last - pressed)


def cost(running: Fleet, options: argparse.Namespace) -> list[Figure]:
    rounds = [
        measure(running, count, options.seconds) for _ in range(options.rounds) for count in (0, options.dashboards)
    ]
    figures = []
    for name, unit, title, limit in (
        ("median", "ms", "API response time, median", None),
        ("p99", "ms", "API response time, p99", 1.1),
        ("store_cpu", "% of a core", "CPU of the store", 1.1),
        ("api_cpu", "% of a core", "CPU of `shoal serve`", None),
    ):
        without, with_them = ([each[name] for each in rounds[start::2]] for start in (0, 1))
        ratios = [after / before for before, after in zip(without, with_them, strict=True)]
        note = f"{statistics.median(without):.1f} to {statistics.median(with_them):.1f} {unit}"
        figures.append(
            Figure(
                name=f"{options.dashboards} dashboards: {title}", unit="times", values=ratios, at_most=limit, note=note
            )
        )
    return figures


def measure(running: Fleet, dashboards: int, seconds: float) -> dict[str, float]:
    """Response times in ms, and the CPU of the store and the server in percent of a core."""
    return asyncio.run(_measure(running.api, running.crawls.folder / "store", dashboards, seconds))


async def _measure(api: Served, folder: Path, dashboards: int, seconds: float) -> dict[str, float]:
    with _viewers(api, dashboards):
        await asyncio.sleep(3.0)
        async with await Frontier.open(folder=str(folder)) as frontier:
            before, own, started = await _cpu(frontier), _process_cpu(api.process.pid), time.monotonic()
            times = await asyncio.to_thread(_request, api, seconds)
            passed = time.monotonic() - started
            store, served = (await _cpu(frontier) - before) / passed, (_process_cpu(api.process.pid) - own) / passed
    ranked = sorted(times)
    return {
        "median": ranked[len(ranked) // 2], "p99": ranked[int(len(ranked) * 0.99)], "store_cpu": store * 100,
        "api_cpu": served * 100,
    }  # fmt: skip


@contextlib.contextmanager
def _viewers(api: Served, count: int) -> Iterator[None]:
    """In another process, which gets the CPU time that is left: browsers are on other machines."""
    command = [
        "nice",
        "-n",
        "19",
        sys.executable,
        "-m",
        "bench.dashboards",
        "--view",
        api.host,
        str(api.port),
        str(count),
    ]
    process = subprocess.Popen(command) if count else None
    try:
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()


async def _view_all(host: str, port: int, count: int) -> None:
    await asyncio.gather(*(_view(host, port, ("/", f"/crawls/{_CRAWL}")[number % 2]) for number in range(count)))


async def _view(host: str, port: int, path: str) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET /live{path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    while await reader.read(65536):
        pass


def _request(api: Served, seconds: float) -> list[float]:
    connection = http.client.HTTPConnection(api.host, api.port)
    times = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        started = time.perf_counter()
        connection.request("GET", f"/v1/crawls/{_CRAWL}")
        connection.getresponse().read()
        times.append((time.perf_counter() - started) * 1000)
        time.sleep(_PAUSE_SECONDS)
    connection.close()
    return times


async def _cpu(frontier: Frontier) -> float:
    key = frontier.shards.prefixes[0] + "meta"
    lines = (await frontier.shards.store.command("INFO", "cpu", key=key)).decode().splitlines()
    fields = dict(line.split(":") for line in lines if ":" in line)
    return float(fields["used_cpu_sys"]) + float(fields["used_cpu_user"])


def _process_cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    sys.exit(main())
