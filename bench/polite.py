"""The cost of a page to the store under politeness: a delay makes leases short, few free slots make calls small.

    total server CPU of a page = page + lease / visits per lease + batch / pages per batch

A batch is the four calls that a worker makes to one shard: lease, add (one new link per page, to its own host),
remember (a Last-Modified of each page), acknowledge. The three terms are fitted to all shapes of a repeat at
once. Shapes take turns on one server.
"""

from __future__ import annotations

from bench.cost import Cost, metered
from bench.figures import Figure
from bench.server import Server
from bench.size import Size
from bench.workload import CRAWL, Workload

_HOSTS = 20_000
# Hosts per call and visits per lease.
SHAPES = ((64, 1), (64, 2), (64, 4), (64, 8), (16, 1), (4, 1))
# All shapes have the same number of calls, not of pages, because each call waits for the disk.
_BATCHES, _ROUNDS = 20, 8
_MODIFIED = "Sun, 15 Nov 2026 22:21:00 GMT"


async def polite(size: Size) -> list[Figure]:
    waiting = size.of(1_000_000)
    costs: dict[tuple[int, int], list[Cost]] = {shape: [] for shape in SHAPES}
    with Server(durable=False) as server:
        async with await Workload.open(server) as workload:
            await workload.fill(waiting, _HOSTS)
            server.persist()
            for _ in range(size.repeats):
                for hosts, visits in SHAPES:
                    costs[hosts, visits].append(await _repeat(workload, hosts, visits))
    return _figures(costs, waiting)


async def _repeat(workload: Workload, hosts: int, visits: int) -> Cost:
    frontier, cost = workload.frontier, Cost()
    for _ in range(_ROUNDS):
        workload.server.settle()
        with metered(workload.server, cost):
            for _ in range(_BATCHES):
                leases = await frontier.lease(hosts=hosts, visits=visits)
                await frontier.add(
                    CRAWL, [link for lease in leases for link in workload.urls(lease.host, len(lease.visits))]
                )
                made = [visit.url for lease in leases for visit in lease.visits]
                await frontier.validators.remember(CRAWL, [(url, _MODIFIED) for url in made])
                await workload.acknowledge(leases)
                cost.urls += len(made)
    return cost


def _figures(costs: dict[tuple[int, int], list[Cost]], waiting: int) -> list[Figure]:
    figures = []
    for (hosts, visits), repeats in costs.items():
        name = f"{hosts} host{'s' * (hosts > 1)} a call, {visits} visit{'s' * (visits > 1)} a lease"
        figures.append(
            Figure(
                name=f"{name}: server CPU", unit="us/page", values=[cost.server_us for cost in repeats],
                note=f"{repeats[0].urls:,} pages a repeat, {waiting:,} waiting, {_HOSTS:,} hosts",
            )
        )  # fmt: skip
        commands = [cost.commands / cost.urls for cost in repeats]
        figures.append(Figure(name=f"{name}: commands", unit="commands", values=commands))
    fitted = [
        fit([(1.0, 1 / visits, 1 / (hosts * visits), costs[hosts, visits][turn].server_us) for hosts, visits in SHAPES])
        for turn in range(len(costs[SHAPES[0]]))
    ]
    for term, (name, note) in enumerate(
        (("a page", "fitted to the shapes, as the next two"), ("a lease", ""), ("a batch", "its four calls"))
    ):
        values = [coefficients[term] for coefficients in fitted]
        figures.append(Figure(name=f"server CPU of {name}", unit="us", values=values, note=note))
    return figures


def fit(rows: list[tuple[float, float, float, float]]) -> list[float]:
    """The weights of three columns that fit the last one, by relative errors, so that costly shapes do not dominate."""
    weighed = [[value / row[3] for value in row] for row in rows]
    matrix = [[sum(row[i] * row[j] for row in weighed) for j in range(4)] for i in range(3)]
    for i in range(3):
        matrix[i] = [value / matrix[i][i] for value in matrix[i]]
        for j in range(3):
            if j != i:
                matrix[j] = [b - matrix[j][i] * a for a, b in zip(matrix[i], matrix[j], strict=True)]
    return [row[3] for row in matrix]
