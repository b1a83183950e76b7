"""Run measurements and print their table; `python -m bench --help` lists them."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import uvloop

from bench import before
from bench.crawl.against import crawl
from bench.crawl.broad import broad
from bench.crawl.memory import footprint
from bench.crawl.outputs import outputs
from bench.crawl.rate import rate, start
from bench.crawl.under_scrapy import scrapy
from bench.figures import Figure, table
from bench.growth import growth, hosts
from bench.idle import idle, latency
from bench.machine import machine
from bench.memory import seen, waiting
from bench.polite import polite
from bench.revisit import live, revisit
from bench.revisit_cost import calendar
from bench.server import Server
from bench.sinks import sinks
from bench.size import Size
from bench.speed import speed
from bench.submit import submit
from bench.together import together

MEASUREMENTS: dict[str, Callable[[Size], Awaitable[list[Figure]]]] = {
    "seen": seen,
    "waiting": waiting,
    "speed": speed,
    "growth": growth,
    "hosts": hosts,
    "polite": polite,
    "together": together,
    "idle": idle,
    "latency": latency,
    "submit": submit,
    "revisit": revisit,
    "live": live,
    "calendar": calendar,
    "crawl": crawl,
    "scrapy": scrapy,
    "broad": broad,
    "footprint": footprint,
    "rate": rate,
    "start": start,
    "sinks": sinks,
    "outputs": outputs,
}


async def run(names: list[str], size: Size) -> tuple[list[Figure], list[str]]:
    """The figures, and the names of measurements that failed. A failed measurement does not discard other figures."""
    figures, failed = [], []
    for name in names:
        began = time.monotonic()
        print(f"measuring {name} ...", end=" ", flush=True)
        try:
            figures += await MEASUREMENTS[name](size)
        except Exception:
            failed.append(name)
            traceback.print_exc()
        print(f"{time.monotonic() - began:.0f} s", flush=True)
    return figures, failed


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(MEASUREMENTS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes, to see whether a change helps")
    parser.add_argument("--repeats", type=int, default=0, help="of speeds; 5, or 3 with --quick")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine and figures there too")
    parser.add_argument("--server", default="", metavar="PROGRAM", help="a valkey-server or redis-server of your own")
    parser.add_argument(
        "--before",
        type=Path,
        metavar="CHECKOUT",
        help=f"compare with another checkout of Shoal ({', '.join(before.MEASUREMENTS)})",
    )
    options = parser.parse_args()
    known = before.MEASUREMENTS if options.before else MEASUREMENTS
    if unknown := set(options.names) - set(known):
        parser.error(f"there is no measurement {', '.join(sorted(unknown))}; choose from {', '.join(known)}")
    if options.repeats < 0:
        parser.error("repeats must be at least 1")
    Server.program = options.server
    size = Size(options.quick, options.repeats or (3 if options.quick else 5))
    with Server(durable=False) as server:
        where = machine(server.version())
    failed: list[str] = []
    if options.before:
        names = options.names or list(before.MEASUREMENTS)
        figures = [row for name in names for row in before.MEASUREMENTS[name](options.before.resolve(), size)]
    else:
        # `live` and `calendar` are parts of `revisit`.
        names = options.names or [name for name in MEASUREMENTS if name not in ("live", "calendar")]
        figures, failed = uvloop.run(run(names, size))
    print()
    if size.quick:
        print("Quick: a tenth of the sizes. Not figures to publish.\n")
    for name, text in where.items():
        print(f"{name + ':':10}{text}")
    print(f"\n{table(figures)}")
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode({"where": where, "figures": figures})))
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")


if __name__ == "__main__":
    main()
