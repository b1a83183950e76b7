"""The resources that a measured interval used: wall time, CPU of this process, CPU of the server, commands."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.server import SENT, Server


@dataclass
class Cost:
    urls: int = 0
    wall_seconds: float = 0.0
    client_seconds: float = 0.0
    server_seconds: float = 0.0
    commands: int = 0
    sent: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.urls or other.urls,
            self.wall_seconds + other.wall_seconds,
            self.client_seconds + other.client_seconds,
            self.server_seconds + other.server_seconds,
            self.commands + other.commands,
            self.sent + other.sent,
        )

    @property
    def server_us(self) -> float:
        return self.server_seconds / self.urls * 1e6

    @property
    def client_us(self) -> float:
        return self.client_seconds / self.urls * 1e6

    @property
    def cpu_us(self) -> float:
        return self.server_us + self.client_us

    @property
    def per_second(self) -> float:
        return self.urls / self.wall_seconds


@contextmanager
def metered(server: Server, cost: Cost) -> Iterator[None]:
    """Add the resources that the block uses to `cost`. The readings themselves cost the server about 50 us."""
    calls = server.calls()
    server_seconds = server.cpu_seconds()
    client_seconds, wall = time.process_time(), time.perf_counter()
    yield
    cost.wall_seconds += time.perf_counter() - wall
    cost.client_seconds += time.process_time() - client_seconds
    cost.server_seconds += server.cpu_seconds() - server_seconds
    for name, count in server.calls().items():
        made = count - calls.get(name, 0)
        cost.commands += made
        cost.sent += made if name in SENT else 0
    # Four commands are sent here; the last one does not count itself.
    cost.commands -= 3
