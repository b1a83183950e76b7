"""`--before CHECKOUT`: compares this tree with another checkout of Shoal, by the same measurements.

A figure is the ratio of this tree's CPU time to the other's: below 1, this tree uses less. The two alternate within one
run, so a busy machine slows both.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bench.crawl.against import Turns, single_page
from bench.crawl.contestants import Shoal
from bench.crawl.corpus import DJANGO, MIX, pages, unpack
from bench.crawl.program import ROOT
from bench.figures import Figure
from bench.size import Size
from tests import servers
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


def parse(before: Path, size: Size) -> list[Figure]:
    """CPU of parsing, by kind of page."""
    unpack(MIX)
    figures = []
    for tree in MIX:
        rows: dict[Path, list[float]] = {ROOT: [], before: []}
        for _ in range(size.repeats):
            for checkout, values in rows.items():
                values.append(_parse_us(checkout, tree.path, size.of(500)))
        figures.append(_ratio(f"pages of {tree.package}: CPU of parsing", rows[ROOT], rows[before], "us"))
    return figures


def _parse_us(tree: Path, folder: Path, pages: int) -> float:
    command = [sys.executable, str(Path(__file__).parent / "parse_pages.py"), str(folder), str(pages)]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    return float(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)


def speed(before: Path, size: Size) -> list[Figure]:
    """CPU of the frontier's operations, each tree measured by its own `bench speed`."""
    rows: dict[Path, list[float]] = {ROOT: [], before: []}
    for _ in range(size.repeats):
        for tree, values in rows.items():
            values.append(_end_to_end(tree, quick=size.quick))
    return [_ratio("frontier, end to end: CPU of both sides", rows[ROOT], rows[before], "us/URL")]


def _end_to_end(tree: Path, *, quick: bool) -> float:
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as name:
        out = Path(name) / "figures.json"
        command = [sys.executable, "-m", "bench", "speed", "--repeats", "1", "--json", str(out)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree)])}
        subprocess.run([*command, *(["--quick"] if quick else [])], cwd=tree, env=environment, check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        figures = msgspec.json.decode(out.read_bytes())["figures"]
    return float(next(figure["values"][0] for figure in figures if figure["name"] == "end to end, CPU of both"))


@dataclass
class _StoreCost:
    """The cost of pages to the servers of a store, one value per repeat."""

    pages: int
    cpu_us: list[float] = field(default_factory=list)
    memory_bytes: list[float] = field(default_factory=list)
    sent_bytes: list[float] = field(default_factory=list)
    client_us: list[float] = field(default_factory=list)
    commands: list[float] = field(default_factory=list)

    @contextlib.contextmanager
    def meter(self, nodes: Sequence[servers.Server]) -> Iterator[None]:
        began = [_used(node) for node in nodes]
        yield
        used = [
            sum(after - before for after, before in zip(totals[1], totals[0], strict=True))
            for totals in zip(zip(*began, strict=True), zip(*map(_used, nodes), strict=True), strict=True)
        ]
        self.cpu_us.append(used[0] / self.pages * 1e6)
        self.memory_bytes.append(used[1] / self.pages)
        self.sent_bytes.append(used[2] / self.pages)
        self.commands.append(used[3] / self.pages)


def store(before: Path, size: Size) -> list[Figure]:
    """CPU and bytes of the store for a page, on one server and on a cluster, where links cross shards."""
    pages = size.of(30_000)
    figures = []
    for name, count in (("one server", 1), ("cluster of three", 3)):
        costs = {ROOT: _StoreCost(pages), before: _StoreCost(pages)}
        for _ in range(size.repeats):
            for tree, cost in costs.items():
                cost.client_us.append(_crawl_pages(tree, count, pages, cost.meter) / pages * 1e6)
        now, then = costs[ROOT], costs[before]
        figures += [
            _ratio(f"{name}: CPU of the store a page", now.cpu_us, then.cpu_us, "us", at_most=1.05),
            _ratio(f"{name}: memory of the store a page", now.memory_bytes, then.memory_bytes, "bytes"),
            _ratio(f"{name}: sent to the store a page", now.sent_bytes, then.sent_bytes, "bytes"),
            _ratio(f"{name}: commands a page, with those in scripts", now.commands, then.commands, "commands"),
            _ratio(f"{name}: CPU of the worker a page", now.client_us, then.client_us, "us"),
        ]
    return figures


def instructions(before: Path, size: Size) -> list[Figure]:
    """Like `store`, but counts instructions of the servers, which other programs do not affect. Needs valgrind."""
    pages = size.of(3_000)
    figures = []
    for name, count in (("one server", 1), ("cluster of three", 3)):
        counts: dict[Path, list[float]] = {ROOT: [], before: []}
        for _ in range(size.repeats):
            for tree, values in counts.items():
                with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
                    counter = _Callgrind(Path(folder))
                    _crawl_pages(tree, count, pages, counter.meter, counter.server)
                    values.append(counter.counted / pages / 1000)
        figures.append(
            _ratio(f"{name}: instructions of the store a page", counts[ROOT], counts[before], "thousand", at_most=1.05)
        )
    return figures


class _Callgrind:
    """A server that runs in callgrind, and the instructions that it has counted, without those of the kernel."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        server = folder / "server"
        command = f"valgrind -q --tool=callgrind --callgrind-out-file={folder}/count.%p {servers.valkey_server()}"
        server.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        server.chmod(0o755)
        self.server = str(server)
        self.counted = 0

    @contextlib.contextmanager
    def meter(self, nodes: Sequence[servers.Server]) -> Iterator[None]:
        self._control("--zero", nodes)
        yield
        self._control("--dump", nodes)
        for dump in self._folder.glob("count.*.1"):
            self.counted += next(
                int(line.split()[1])
                for line in dump.read_text().splitlines()
                if line.startswith(("totals:", "summary:"))
            )

    @staticmethod
    def _control(action: str, nodes: Sequence[servers.Server]) -> None:
        program = servers.program("callgrind_control", "valgrind")
        for node in nodes:
            subprocess.run([program, action, str(node.pid)], check=True, stdout=subprocess.DEVNULL)


def _crawl_pages(
    tree: Path,
    nodes: int,
    pages: int,
    meter: Callable[[Sequence[servers.Server]], AbstractContextManager[None]],
    server: str = "",
) -> float:
    """Crawl pages on new servers, metered; returns the CPU seconds of the program that crawls."""
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as name, contextlib.ExitStack() as stack:
        options = {"appendfsync": "everysec", "auto-aof-rewrite-percentage": "0"}
        if nodes == 1:
            valkey = stack.enter_context(servers.server(Path(name), options=options, binary=server))
            url, all_nodes = valkey.url, [valkey]
        else:
            # In callgrind, a node may not reply for seconds.
            options["cluster-node-timeout"] = "60000"
            cluster = stack.enter_context(servers.cluster(Path(name), primaries=nodes, options=options, binary=server))
            url, all_nodes = cluster.url, cluster.nodes
        program = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "store_pages.py"), url, str(pages)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(tree / "src")},
        )  # fmt: skip
        stack.callback(program.kill)
        _line(program)
        with meter(all_nodes):
            _continue(program)
            client_seconds = float(_line(program).split()[1])
        _continue(program)
        program.wait()
    return client_seconds


def _line(program: subprocess.Popen[bytes]) -> str:
    if program.stdout is None or not (line := program.stdout.readline()):
        raise RuntimeError(f"{program.args!r} ended early")
    return line.decode()


def _continue(program: subprocess.Popen[bytes]) -> None:
    if program.stdin is not None:
        program.stdin.write(b"\n")
        program.stdin.flush()


def _used(node: servers.Server) -> tuple[float, float, float, float]:
    """CPU seconds, bytes of memory, bytes received and commands run so far."""
    cpu, memory, stats, calls = (node.info(section) for section in ("cpu", "memory", "stats", "commandstats"))
    return (
        float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"]),
        float(memory["used_memory_dataset"]),
        float(stats["total_net_input_bytes"]),
        float(sum(int(text.split(",")[0].removeprefix("calls=")) for text in calls.values())),
    )


def _ratio(name: str, now: list[float], then: list[float], unit: str, *, at_most: float | None = None) -> Figure:
    ratios = [new / old for new, old in zip(now, then, strict=True)]
    note = f"{statistics.median(now):.3g} {unit} now, {statistics.median(then):.3g} before; "
    note += f"least {min(now):.3g} now, {min(then):.3g} before"
    return Figure(name=f"{name}, now to before", unit="times", values=ratios, note=note, at_most=at_most)


MEASUREMENTS: dict[str, Callable[[Path, Size], list[Figure]]] = {
    "crawl": crawl,
    "parse": parse,
    "speed": speed,
    "store": store,
    "instructions": instructions,
}
