"""The cost of open dashboards to the API: response times, CPU of server and store, and how long the loop is blocked.

One server has a running crawl and a day of history, and one client requests the crawl at a fixed rate. In another
process, connections read live updates as browsers do: half of them of the overview, half of the crawl.

The server and the store have half of the cores. The workers, the site, the client and the browsers, which normally run
on other machines, have the other half. Otherwise the figure would show how Linux divides a busy core between them.
Rounds with and without dashboards alternate, each pair in the opposite order of the previous pair.

    python -m bench.dashboard_cost HOST PORT COUNT CRAWL     only the connections
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bench.figures import Figure
from shoal.frontier import Frontier, keys
from shoal.frontier.history import Step
from tests.api.process import ApiProcess
from tests.dashboard.fleet import Fleet
from tests.servers import wait_until

# Longer than a response takes, so that every round sends the same requests.
_REQUEST_EVERY_SECONDS = 0.02
_SETTLE_SECONDS = 3.0
_TICKS = os.sysconf("SC_CLK_TCK")
_MINUTES = 1440
_ALL_OPEN = b"open\n"


def cost(running: Fleet, crawl: str, *, dashboards: int, rounds: int, seconds: float, blocked: Path) -> list[Figure]:
    """`blocked` is the file to which the server writes how long its loop was blocked (bench/watched_serve.py)."""
    write_history(running, crawl)
    without: list[dict[str, float]] = []
    with_them: list[dict[str, float]] = []
    with pinned(running) as cores:
        for number in range(rounds):
            pair = [(0, without), (dashboards, with_them)]
            for count, results in reversed(pair) if number % 2 else pair:
                results.append(asyncio.run(_measure(running, crawl, count, seconds, blocked, cores)))
    figures = []
    for name, unit, title, limit in (
        ("median", "ms", "API response time, median", None),
        ("p99", "ms", "API response time, p99", 1.1),
        ("store_cpu", "% of a core", "CPU of the store", 1.1),
        ("api_cpu", "% of a core", "CPU of `shoal serve`", None),
        ("blocked", "ms", "longest time the server's loop was blocked", None),
        ("own_busy", "%", "use of the cores of server and store", None),
        ("others_busy", "%", "use of the cores of the rest", None),
    ):
        ratios = [after[name] / before[name] for before, after in zip(without, with_them, strict=True)]
        values = [statistics.median(each[name] for each in results) for results in (without, with_them)]
        note = f"{values[0]:.1f} to {values[1]:.1f} {unit}"
        figures.append(
            Figure(name=f"{dashboards} dashboards: {title}", unit="times", values=ratios, at_most=limit, note=note)
        )
    return figures


def write_history(running: Fleet, crawl: str) -> None:
    """Write a point for each minute of the last day, as in the charts of a fleet that has run for a while."""
    frontier = running.crawls.frontier
    record = running.crawls.do(frontier.crawls.get(crawl))
    now = int(time.time()) // 60
    points = [
        msgspec.msgpack.encode((now - ago, (_MINUTES - ago) * 12000, (_MINUTES - ago) * 3, 0, (_MINUTES - ago) * 10**8,
                                50000 - ago, 1))
        for ago in range(_MINUTES, 0, -1)
    ]  # fmt: skip
    for prefix, name in (
        (keys.store_meta(frontier.shards.namespace).removesuffix("meta"), "fleet"),
        (frontier.shards.prefixes[frontier.shards.home(crawl)], record.key),
    ):
        key = keys.history(prefix, Step.MINUTE.value, name)
        running.crawls.do(frontier.shards.command("DEL", key))
        running.crawls.do(frontier.shards.command("RPUSH", key, *points))


@contextlib.contextmanager
def pinned(running: Fleet) -> Iterator[tuple[list[int], list[int]]]:
    """Separate the server and the store from the rest, if there is more than one core. Yields the cores of both."""
    cores = sorted(os.sched_getaffinity(0))
    own, others = cores[: len(cores) // 2] or cores, cores[len(cores) // 2 :]
    store = running.crawls.frontier.shards.store.embedded_pid()
    rest = [os.getpid(), running.crawls.site.process.pid, *(each.pid for each in running.crawls.workers.values())]
    _pin([running.api.process.pid, *([store] if store is not None else [])], own)
    _pin(rest, others)
    try:
        yield own, others
    finally:
        _pin(rest, cores)


def _pin(pids: Sequence[int], cores: Sequence[int]) -> None:
    for pid in pids:
        # The id of a process selects only its first thread.
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)


async def _measure(
    running: Fleet, crawl: str, dashboards: int, seconds: float, blocked: Path, cores: tuple[list[int], list[int]]
) -> dict[str, float]:
    """Response times in ms, CPU in percent of a core."""
    api = running.api
    with _viewers(api, dashboards, crawl):
        await asyncio.sleep(_SETTLE_SECONDS)
        async with await Frontier.open(folder=str(running.crawls.folder / "store")) as frontier:
            longest_block(api, blocked)
            before, own, busy = await _cpu(frontier), _process_cpu(api.process.pid), [_busy(part) for part in cores]
            started = time.monotonic()
            times = sorted(await asyncio.to_thread(_request, api, crawl, seconds))
            passed = time.monotonic() - started
            store, api_cpu = (await _cpu(frontier) - before) / passed, (_process_cpu(api.process.pid) - own) / passed
            used = [(_busy(part) - then) / passed / len(part) for part, then in zip(cores, busy, strict=True)]
            longest = longest_block(api, blocked)
    return {
        "median": times[len(times) // 2], "p99": times[int(len(times) * 0.99)], "store_cpu": store * 100,
        "api_cpu": api_cpu * 100, "blocked": longest, "own_busy": used[0] * 100, "others_busy": used[1] * 100,
    }  # fmt: skip


def longest_block(api: ApiProcess, file: Path) -> float:
    """The longest time in ms for which the loop was blocked since the last call."""
    file.unlink(missing_ok=True)
    api.process.send_signal(signal.SIGUSR1)
    return float(wait_until(lambda: file.exists() and file.read_text(), "the server writes the file"))


@contextlib.contextmanager
def _viewers(api: ApiProcess, count: int, crawl: str) -> Iterator[None]:
    """Run viewers in another process, which gets the remaining CPU time: real browsers are on other machines."""
    command = ["nice", "-n", "19", sys.executable, "-m", "bench.dashboard_cost", api.host, str(api.port), str(count)]
    process = subprocess.Popen([*command, crawl], stdout=subprocess.PIPE) if count else None
    try:
        if process is not None and process.stdout is not None:
            # The opening of connections is not measured.
            assert process.stdout.readline() == _ALL_OPEN, "a connection was refused"
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()


async def _view_all(host: str, port: int, count: int, crawl: str) -> None:
    opened = [asyncio.Event() for _ in range(count)]
    paths = ("/", f"/crawls/{crawl}")
    views = [asyncio.create_task(_view(host, port, paths[index % 2], event)) for index, event in enumerate(opened)]
    for event in opened:
        await event.wait()
    sys.stdout.buffer.write(_ALL_OPEN)
    sys.stdout.flush()
    await asyncio.gather(*views)


async def _view(host: str, port: int, path: str, opened: asyncio.Event) -> None:
    """`opened` is set when the first parts have arrived."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET /live{path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    while data := await reader.read(65536):
        if b"event: parts" in data:
            opened.set()
    raise SystemExit(f"The server has closed the connection to {path}.")


def _request(api: ApiProcess, crawl: str, seconds: float) -> list[float]:
    connection = http.client.HTTPConnection(api.host, api.port)
    times = []
    following = time.monotonic()
    deadline = following + seconds
    while following < deadline:
        time.sleep(max(0.0, following - time.monotonic()))
        started = time.perf_counter()
        connection.request("GET", f"/v1/crawls/{crawl}")
        response = connection.getresponse()
        response.read()
        times.append((time.perf_counter() - started) * 1000)
        assert response.status == 200, response.status
        following += _REQUEST_EVERY_SECONDS
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


def _busy(cores: Sequence[int]) -> float:
    """Seconds in which these cores were not idle, for all processes of the machine."""
    lines = dict(line.split(" ", 1) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu"))
    user, nice, system, _, _, *interrupts = zip(
        *(map(int, lines[f"cpu{core}"].split()[:8]) for core in cores), strict=True
    )
    return sum(map(sum, (user, nice, system, *interrupts))) / _TICKS


if __name__ == "__main__":
    asyncio.run(_view_all(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
