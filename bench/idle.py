"""The number of calls that an idle worker makes to the store, and how soon it gets visits that are added."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from multiprocessing.connection import Connection

import uvloop

from bench.figures import Figure
from bench.server import SENT, Server
from bench.size import Size
from bench.workload import Workload
from shoal import Done, Frontier

_WAIT_SECONDS = 10.0


async def idle(size: Size) -> list[Figure]:
    """Two idle workers side by side: one on an empty frontier, one on a frontier whose only crawl is paused."""
    window = 20.0 if size.quick else 40.0
    with Server(durable=True) as empty, Server(durable=True) as paused:
        async with await Workload.open(empty) as nothing, await Workload.open(paused) as waiting:
            await waiting.fill(5000, 1000)
            await waiting.frontier.crawls.pause("bench")
            rates = await asyncio.gather(_rate(nothing, window), _rate(waiting, window))
    figures = []
    for name, (sent, whole) in zip(("nothing waits", "1,000 hosts of a paused crawl"), rates, strict=True):
        figures += [
            Figure(name=f"idle worker, {name}: sent", unit="commands/s", values=[sent], at_most=2,
                   note=f"over {window:g} s, 16 shards"),
            Figure(name=f"idle worker, {name}: with those in scripts", unit="commands/s", values=[whole]),
        ]  # fmt: skip
    return figures


async def _rate(workload: Workload, window: float) -> tuple[float, float]:
    # The first rounds park the hosts of a paused crawl.
    await workload.frontier.lease(wait_seconds=3)
    before, began = workload.server.calls(), time.monotonic()
    while time.monotonic() - began < window:
        if await workload.frontier.lease(wait_seconds=_WAIT_SECONDS):
            raise RuntimeError("An idle worker got work: the measurement is void.")
    passed = time.monotonic() - began
    made = {name: count - before.get(name, 0) for name, count in workload.server.calls().items()}
    return sum(made.get(name, 0) for name in SENT) / passed, (sum(made.values()) - 1) / passed


async def latency(size: Size) -> list[Figure]:
    """The time from `add` of a URL of a new host, in this process, to its lease by another that waits in `lease`."""
    count = 60 if size.quick else 200
    context = multiprocessing.get_context("spawn")
    with Server(durable=True) as server:
        async with await Workload.open(server) as workload:
            ours, its = context.Pipe()
            sleeper = context.Process(target=_sleeper, args=(server.url, its, count), daemon=True)
            sleeper.start()
            try:
                times = [await _once(workload, ours, number) for number in range(count)]
            finally:
                sleeper.join(5)
                if sleeper.is_alive():
                    sleeper.kill()
    times.sort()
    how = f"{count} times, one sleeping process, 16 shards"
    return [
        Figure(name="add to lease when idle, median", unit="ms", values=[times[count // 2]], at_most=10, note=how),
        Figure(name="add to lease when idle, p99", unit="ms", values=[times[int(count * 0.99) - 1]]),
    ]


async def _once(workload: Workload, sleeper: Connection, number: int) -> float:
    await asyncio.to_thread(sleeper.recv)
    # The worker has reported that it is about to sleep. Before it does, it checks all shards for a few milliseconds.
    await asyncio.sleep(random.uniform(0.04, 0.08))
    began = time.monotonic()
    await workload.frontier.add("bench", [f"https://fresh{number:06d}.example/page"])
    woken: float = await asyncio.to_thread(sleeper.recv)
    return (woken - began) * 1000


def _sleeper(url: str, pipe: Connection, count: int) -> None:
    uvloop.run(_sleep(url, pipe, count))


async def _sleep(url: str, pipe: Connection, count: int) -> None:
    async with await Frontier.open(url, namespace="b") as frontier:
        for _ in range(count):
            pipe.send(0.0)
            while not (leases := await frontier.lease(wait_seconds=_WAIT_SECONDS)):
                pass
            pipe.send(time.monotonic())
            await frontier.acknowledge_all(
                [Done(lease=lease, outcomes=[visit.stored() for visit in lease.visits]) for lease in leases]
            )
