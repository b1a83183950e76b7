"""The cost and speed of the dashboard: 100 open dashboards, the first page, and the delay of live updates.

    python -m bench.dashboards [--dashboards N] [--rounds N] [--seconds S] [--only-cost] [--write]

bench/dashboard_cost.py describes how the cost of open dashboards is measured. `--write` puts the figures into
docs/reference/benchmarks.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from bench.dashboard_cost import cost
from bench.figures import Figure, table
from bench.machine import machine
from tests.dashboard.browser import Browser, chromium
from tests.dashboard.fleet import Fleet, fleet
from tests.site.responses import page

_PAGE = Path(__file__).resolve().parents[1] / "docs/reference/benchmarks.md"
_BEGIN, _END = "<!-- dashboards -->", "<!-- end of dashboards -->"
_CRAWL = "busy"
_STORED = "#part-figures div:has(dt:text-is('Pages stored')) dd"
_SERVE = Path(__file__).with_name("watched_serve.py")


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.dashboards")
    parser.add_argument("--dashboards", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=6, help="pairs of rounds, without and with dashboards")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a round")
    parser.add_argument("--only-cost", action="store_true", help="without a browser")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        blocked = Path(folder) / "blocked"
        with fleet(Path(folder), hosts=40, program=(str(_SERVE), str(blocked))) as running:
            start_crawl(running)
            where = machine(store_version(running))
            figures = [] if options.only_cost else first_page(running) + live(running)
            figures += cost(
                running, _CRAWL, dashboards=options.dashboards, rounds=options.rounds, seconds=options.seconds,
                blocked=blocked,
            )  # fmt: skip
    heading = ", ".join(f"{name} {value}" for name, value in where.items() if name != "versions")
    print(f"{heading}\n\n{table(figures)}")
    if options.write:
        before, _, rest = _PAGE.read_text().partition(_BEGIN)
        after = rest.partition(_END)[2]
        _PAGE.write_text(f"{before}{_BEGIN}\n- {heading}\n\n{table(figures)}\n{_END}{after}")
    return 0


def start_crawl(running: Fleet) -> None:
    """Start a crawl of 200 pages per second for eight minutes, longer than all rounds."""
    hosts = running.crawls.site.take(20)
    for host in hosts:
        running.crawls.site.at(host, "/", page(*[f"/{number}" for number in range(5000)]))
        running.crawls.site.at(host, "*", page())
    running.api.client.submit(seeds=[f"http://{host}/" for host in hosts], name=_CRAWL, delay_seconds=0.1)
    running.crawls.until(lambda: running.crawls.counts(_CRAWL).stored > 20, "the crawl runs")


def store_version(running: Fleet) -> str:
    key = running.crawls.frontier.shards.prefixes[0] + "meta"
    info = running.crawls.do(running.crawls.frontier.shards.store.command("INFO", "server", key=key)).decode()
    fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    return f"store {fields.get('valkey_version', fields['redis_version'])}"


def first_page(running: Fleet, times: int = 9) -> list[Figure]:
    """The size and the first paint of the overview in a browser with an empty cache."""
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
    """The time from a page in the API's counts to the same figure in a browser, and from Pause to the last request.

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
        # Longer than the visits of a lease of this crawl take.
        opened.page.wait_for_timeout(4000)
        last = max(request.began for request in running.crawls.site.requests())
    running.api.client.resume(_CRAWL)
    return max(0.0, last - pressed)


if __name__ == "__main__":
    sys.exit(main())
