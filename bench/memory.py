"""Memory in bytes: of a URL that was seen, of a URL that waits, of a host.

The server has no persistence, because its buffers would be counted. A figure is the growth of `used_memory` since every
script was loaded, divided by the number of URLs; the growth of the resident size is reported beside it.
"""

from __future__ import annotations

from bench.figures import Figure
from bench.peer import Peer
from bench.server import Server
from bench.size import Size
from bench.workload import Workload

_PORTION = 16_000


async def seen(size: Size) -> list[Figure]:
    """Add and visit URLs in portions, so that at the end only seen URLs are left, without fragmented memory."""
    count = size.of(2_000_000)
    with Server(durable=False) as server:
        async with await Workload.open(server) as workload:
            before = server.memory()
            for start in range(0, count, _PORTION):
                await workload.fill(min(_PORTION, count - start), 200)
                await workload.drain()
            shoal = _grown(server, before, count)
    with Server(durable=False) as server:
        peer = Peer(server)
        before = server.memory()
        peer.fill(count, 200, queue=False)
        other = _grown(server, before, count)
    how = f"{count:,} URLs added, leased and acknowledged"
    return _pair("seen URL", shoal, other, 9.0, how)


async def waiting(size: Size) -> list[Figure]:
    """URLs that wait, each also remembered for dedup."""
    count = size.of(1_000_000)
    peer = await _waiting_peer(count)
    figures = []
    for hosts, name, most in (
        (200, "waiting URL with dedup, 200 hosts", 56.0),
        (size.of(50_000), f"waiting URL with dedup, {size.of(50_000):,} hosts", 75.0),
        (count, "host with one waiting URL", 450.0),
    ):
        with Server(durable=False) as server:
            async with await Workload.open(server) as workload:
                before = server.memory()
                await workload.fill(count, hosts)
                grown = _grown(server, before, count)
        figures += _pair(name, grown, peer, most, f"{count:,} URLs over {hosts:,} hosts")
    return [*figures, await _visited(size.of(100_000))]


async def _visited(hosts: int) -> Figure:
    """The memory of a host after its only URL was visited: the time of the last request, and the fingerprint."""
    with Server(durable=False) as server:
        async with await Workload.open(server) as workload:
            before = server.memory()
            await workload.fill(hosts, hosts)
            await workload.drain()
            grown = _grown(server, before, hosts)
    how = f"{hosts:,} hosts with one URL each, all acknowledged"
    return Figure(name="a host after its only visit", unit="bytes", values=[grown[0]], note=how)


async def _waiting_peer(count: int) -> tuple[float, float]:
    """scrapy-redis has one sorted set, so the number of hosts makes no difference."""
    with Server(durable=False) as server:
        peer = Peer(server)
        before = server.memory()
        peer.fill(count, 200)
        return _grown(server, before, count)


def _grown(server: Server, before: tuple[int, int], count: int) -> tuple[float, float]:
    used, resident = server.memory()
    return (used - before[0]) / count, (resident - before[1]) / count


def _pair(name: str, shoal: tuple[float, float], peer: tuple[float, float], most: float, how: str) -> list[Figure]:
    return [
        Figure(name=f"a {name}", unit="bytes", values=[shoal[0]], peers=[peer[0]], at_most=most, note=how),
        Figure(name=f"a {name}, resident", unit="bytes", values=[shoal[1]], peers=[peer[1]]),
    ]
