"""A fleet for one test: its own namespace on a real store, a clock that the test sets, and workers by name.

Also reads the whole state of the namespace past the frontier, so that a test can show what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

from shoal.frontier import Done, Frontier
from shoal.frontier.scripts import script
from shoal.frontier.shards import Shards
from shoal.model import Lease, Outcome, Visit
from shoal.store import Argument, Store
from tests.model import snapshot

SHARDS = 4
START_MS = 1_700_000_000_000
State = dict[str, Any]
_HASHES = {
    "meta", "workers", "acks", "keys", "h", "l", "c", "hp", "fi", "reasons", "crawl", "grants", "v", "tally", "infos",
    "facts", "counted", "samples",
}  # fmt: skip


@dataclass
class Clock:
    """The store's clock, as every script of the test sees it."""

    ms: int = START_MS

    def __call__(self) -> int:
        return self.ms

    def tick(self, seconds: float) -> None:
        self.ms += round(seconds * 1000)

    @property
    def seconds(self) -> float:
        return self.ms / 1000


@dataclass
class Fleet:
    kind: str
    store: Store
    shards: Shards
    clock: Clock
    named: dict[str, Frontier] = field(default_factory=dict)

    def worker(self, name: str = "ann", **options: Any) -> Frontier:
        """A worker's frontier: one for each name, on the test's clock."""
        if name not in self.named:
            self.named[name] = Frontier(self.shards, worker=name, **options)
            self.named[name]._leasing.turn = 0
        return self.named[name]

    async def join(self, name: str, **options: Any) -> Frontier:
        """Another worker with its own view of the namespace, on the store's real clock."""
        shards = await Shards.found(self.store, self.shards.namespace)
        return Frontier(shards, worker=name, **options)

    def hosts(self, number: int, shard: int | None = 0) -> list[str]:
        """Names of hosts, all of one shard unless `shard` is None."""
        names = (f"h{i}.example" for i in count())
        return list(islice((name for name in names if shard is None or self.shards.of(name) == shard), number))

    async def run(self, name: str, shard: int, *args: Argument) -> list[Any]:
        """A script as it is, with the test's time: no retries, no meaning read into its status."""
        return await self.raw(name, shard, self.clock.ms, *args)

    async def raw(self, name: str, shard: int, *args: Argument) -> list[Any]:
        reply: list[Any] = await self.store.call(script(name), self.shards.prefixes[shard] + "meta", args)
        return reply

    async def state(self) -> State:
        """Every key of the namespace with its value."""
        values: State = {}
        for prefix in [*self.shards.prefixes, f"{self.shards.namespace}{{store}}"]:
            flat = await self.store.command("EVAL", snapshot.READ, 0, prefix + "*", key=prefix + "meta")
            for key, value in zip(flat[::2], flat[1::2], strict=True):
                values[key.decode("latin-1")] = value
        return {name: _unordered(name, value) for name, value in sorted(values.items())}

    async def keys(self) -> set[str]:
        """The keys of the namespace, without what names their shard."""
        return {name.partition("}")[2] for name in await self.state()}

    async def check(self) -> None:
        """What must hold at every script boundary: counts, one place for a visit, nothing stranded."""
        shards: dict[str, snapshot.Shard] = {}
        for prefix in self.shards.prefixes:
            shard = shards.setdefault(prefix.rstrip("}"), snapshot.Shard())
            flat = await self.store.command("EVAL", snapshot.READ, 0, prefix + "*", key=prefix + "meta")
            for key, value in zip(flat[::2], flat[1::2], strict=True):
                snapshot._file(shard, key.decode("latin-1").partition("}")[2], value)
        snapshot.check(shards)


def _unordered(name: str, value: Any) -> Any:
    """Hashes and sets come in any order; lists and sorted sets come in theirs."""
    family = name.partition("}")[2].partition(":")[0]
    if family in _HASHES:
        return dict(zip(value[::2], value[1::2], strict=True)) if isinstance(value, list) else value
    if family in ("s", "blocked", "parked", "unparking"):
        return sorted(value) if isinstance(value, list) else value
    return value


def stored(visit: Visit) -> Outcome:
    return visit.stored()


async def end(worker: Frontier, leases: Sequence[Lease], how: Callable[[Visit], Outcome] = stored) -> list[Visit]:
    """Every visit of these leases ends, as a worker's would whose requests finished just now."""
    await worker.acknowledge_all([Done(lease=lease, outcomes=[how(v) for v in lease.visits]) for lease in leases])
    return [visit for lease in leases for visit in lease.visits]


async def drain(
    fleet: Fleet, worker: Frontier, *, how: Callable[[Visit], Outcome] = stored, rounds: int = 500, **options: Any
) -> list[Visit]:
    """Lease and end until there is nothing, an hour of the test's clock long at most."""
    made: list[Visit] = []
    empty = 0
    for _ in range(rounds):
        leases = await worker.lease(**options)
        made += await end(worker, leases, how)
        empty = 0 if leases else empty + 1
        if empty > 3:
            return made
        fleet.clock.tick(1 if not leases else 0.05)
    raise AssertionError(f"not drained after {rounds} leases, {len(made)} visits")


def paths(host: str, number: int, start: int = 0) -> list[str]:
    return [f"http://{host}/{i}" for i in range(start, start + number)]


def names(visits: Sequence[Visit]) -> list[str]:
    """The last part of each URL, by which a test distinguishes its visits."""
    return [visit.url.rpartition("/")[2] for visit in visits]
