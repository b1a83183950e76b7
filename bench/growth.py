"""The cost of size: frontiers of 500 thousand and of 5 million URLs, and of 1,000 and of 100,000 ready hosts.

Both are filled on separate servers and measured in turns, so that a slow minute of the machine slows both.
"""

from __future__ import annotations

from bench.cost import Cost
from bench.figures import Figure
from bench.peer import Peer
from bench.server import Server
from bench.size import Size
from bench.workload import PHASES, Workload


async def growth(size: Size) -> list[Figure]:
    few, many = size.of(500_000), size.of(5_000_000)
    hosts = size.of(20_000)
    small, large = await _in_turns(size, (few, hosts), (many, hosts), batches=20, rounds=max(5, size.of(20)))
    pairs = list(zip([_whole(costs) for costs in small], [_whole(costs) for costs in large], strict=True))
    peers = _peers_in_turns(size, few, many, hosts)
    name = f"{few:,} to {many:,} URLs"
    figures = [
        Figure(
            name=f"{name}: server CPU grows", unit="times", values=[b.server_us / a.server_us for a, b in pairs],
            peers=[b.server_us / a.server_us for a, b in peers], at_most=2,
            note=f"{pairs[0][0].urls:,} URLs a repeat, {hosts:,} hosts",
        ),
        Figure(
            name=f"{name}: commands for a URL grow", unit="times",
            values=[(b.commands / b.urls) / (a.commands / a.urls) for a, b in pairs],
            peers=[(b.commands / b.urls) / (a.commands / a.urls) for a, b in peers], at_most=1.05,
        ),
    ]  # fmt: skip
    for at, urls in enumerate((few, many)):
        ours, theirs = [pair[at] for pair in pairs], [pair[at] for pair in peers]
        figures += [
            Figure(
                name=f"server CPU at {urls:,}", unit="us/URL", values=[cost.server_us for cost in ours],
                peers=[cost.server_us for cost in theirs],
            ),
            Figure(
                name=f"commands at {urls:,}", unit="commands", values=[cost.commands / cost.urls for cost in ours],
                peers=[cost.commands / cost.urls for cost in theirs],
            ),
        ]  # fmt: skip
    for phase in PHASES:
        grown = [b[phase].server_us / a[phase].server_us for a, b in zip(small, large, strict=True)]
        figures.append(Figure(name=f"of which {phase}", unit="times", values=grown))
    return figures


async def hosts(size: Size) -> list[Figure]:
    few, many = 1000, size.of(100_000)
    # Two batches wait on each host, so that no lease empties one.
    sizes = ((few * 16, few), (many * 16, many))
    small, large = await _in_turns(size, *sizes, batches=10, rounds=max(10, size.of(30)))
    pairs = list(zip([costs["lease"] for costs in small], [costs["lease"] for costs in large], strict=True))
    return [
        Figure(
            name=f"lease, {few:,} to {many:,} ready hosts: server CPU grows", unit="times",
            values=[b.server_us / a.server_us for a, b in pairs], at_most=1.5,
            note=f"{pairs[0][0].urls:,} URLs a repeat",
        ),
        Figure(name=f"lease at {few:,} ready hosts", unit="us/URL", values=[a.server_us for a, _ in pairs]),
        Figure(name=f"lease at {many:,} ready hosts", unit="us/URL", values=[b.server_us for _, b in pairs]),
    ]  # fmt: skip


async def _in_turns(
    size: Size, small: tuple[int, int], large: tuple[int, int], *, batches: int, rounds: int
) -> tuple[list[dict[str, Cost]], list[dict[str, Cost]]]:
    """Repeats on a small and a large frontier, each given as URLs and hosts."""
    both: tuple[list[dict[str, Cost]], list[dict[str, Cost]]] = ([], [])
    with Server(durable=False) as first, Server(durable=False) as second:
        async with await Workload.open(first) as small_workload, await Workload.open(second) as large_workload:
            await small_workload.fill(*small)
            await large_workload.fill(*large)
            first.persist()
            second.persist()
            for _ in range(size.repeats):
                for costs, workload in zip(both, (small_workload, large_workload), strict=True):
                    costs.append(await workload.cycle(batches, rounds))
    return both


def _peers_in_turns(size: Size, few: int, many: int, hosts: int) -> list[tuple[Cost, Cost]]:
    both = []
    with Server(durable=False) as first, Server(durable=False) as second:
        small_peer, large_peer = Peer(first), Peer(second)
        small_peer.fill(few, hosts)
        large_peer.fill(many, hosts)
        first.persist()
        second.persist()
        for _ in range(size.repeats):
            costs = [peer.cycle(10, hosts) for peer in (small_peer, large_peer)]
            both.append((costs[0]["add"] + costs[0]["lease"], costs[1]["add"] + costs[1]["lease"]))
    return both


def _whole(costs: dict[str, Cost]) -> Cost:
    return sum((costs[phase] for phase in PHASES), Cost())
