"""CPU of each operation, and of all of them end to end compared with scrapy-redis, on servers that lose nothing.

Both run in this process, one call after the other, as one worker does: Shoal 20 batches at a time, scrapy-redis
request by request. Repeats alternate between the two.
"""

from __future__ import annotations

from bench.cost import Cost
from bench.figures import Figure
from bench.peer import Peer
from bench.server import Server
from bench.size import Size
from bench.workload import BATCH, PHASES, Workload

_HOSTS = 1000
_BATCHES = 20


async def speed(size: Size) -> list[Figure]:
    start = size.of(500_000)
    rounds = max(8, size.of(40))
    phases: dict[str, list[Cost]] = {phase: [] for phase in (*PHASES, "scatter")}
    ours: list[Cost] = []
    theirs: list[dict[str, Cost]] = []
    with Server(durable=False) as server, Server(durable=False) as other:
        peer = Peer(other)
        peer.fill(start, _HOSTS)
        async with await Workload.open(server) as workload:
            await workload.fill(start, _HOSTS)
            server.persist()
            other.persist()
            for _ in range(size.repeats):
                costs = await workload.cycle(_BATCHES, rounds)
                for phase in PHASES:
                    phases[phase].append(costs[phase])
                ours.append(sum((costs[phase] for phase in PHASES), Cost()))
                phases["scatter"].append(await workload.scatter(_BATCHES * max(1, rounds // 8), _HOSTS))
                theirs.append(peer.cycle(size.of(50), _HOSTS))
    return _figures(phases, ours, theirs, start)


def _figures(
    phases: dict[str, list[Cost]], ours: list[Cost], theirs: list[dict[str, Cost]], start: int
) -> list[Figure]:
    both = [costs["add"] + costs["lease"] for costs in theirs]
    urls = f"{ours[0].urls:,} URLs a repeat, {start:,} waiting, {_HOSTS:,} hosts; scrapy-redis {both[0].urls:,}"
    figures = []
    for phase, name in (
        ("add", "add, server CPU"),
        ("scatter", "add to hosts at random, server CPU"),
        ("lease", "lease, server CPU"),
        ("acknowledge", "acknowledge, server CPU"),
    ):
        peers = [costs["add" if phase == "scatter" else phase].server_us for costs in theirs if phase != "acknowledge"]
        figures.append(Figure(name=name, unit="us/URL", values=[cost.server_us for cost in phases[phase]], peers=peers))
    for phase in PHASES:
        peers = [costs[phase].client_us for costs in theirs if phase != "acknowledge"]
        values = [cost.client_us for cost in phases[phase]]
        figures.append(Figure(name=f"{phase}, client CPU", unit="us/URL", values=values, peers=peers))
    pairs = list(zip(ours, both, strict=True))
    return [
        *figures,
        Figure(
            name="end to end", unit="URLs/s", values=[c.per_second for c in ours], peers=[c.per_second for c in both],
            note=urls,
        ),
        Figure(
            name="end to end, CPU of both", unit="us/URL", values=[c.cpu_us for c in ours],
            peers=[c.cpu_us for c in both],
        ),
        Figure(
            name="end to end, server CPU", unit="us/URL", values=[c.server_us for c in ours],
            peers=[c.server_us for c in both],
        ),
        Figure(
            name="end to end against scrapy-redis, time", unit="times",
            values=[a.per_second / b.per_second for a, b in pairs], at_least=12,
        ),
        Figure(
            name="end to end against scrapy-redis, CPU of both", unit="times",
            values=[b.cpu_us / a.cpu_us for a, b in pairs],
        ),
        Figure(
            name="commands sent for a URL", unit="commands", values=[c.sent / c.urls for c in ours],
            peers=[c.commands / c.urls for c in both], note=f"in batches of {BATCH}",
        ),
        Figure(
            name="commands for a URL with those in scripts", unit="commands",
            values=[c.commands / c.urls for c in ours], peers=[c.commands / c.urls for c in both],
        ),
    ]  # fmt: skip
