"""Results that need a shard that does not respond. They wait here, so that the others can be delivered.

A result needs the shard of its own host, and the shards of the hosts that its page links to: a page is acknowledged
only after its links were added.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from shoal.errors import InvalidUrl
from shoal.frontier import Frontier
from shoal.urls.canonical import canonical
from shoal.worker.outcome import VisitResult

# Many failovers are over by then, and nothing has to be fetched again.
_STUCK_SECONDS = 8.0
_T = TypeVar("_T")


class ShardBacklog:
    def __init__(self, frontier: Frontier) -> None:
        self._shards = frontier.shards
        self._results: list[VisitResult] = []

    def __len__(self) -> int:
        return len(self._results)

    @property
    def unavailable(self) -> set[int]:
        """The shards that do not respond. None if no shard does: then there is nothing else to deliver."""
        missing = self._shards.unavailable
        return missing if len(missing) < self._shards.count else set()

    def take_out(self, batch: list[VisitResult]) -> tuple[list[VisitResult], list[VisitResult]]:
        """Keep the results that cannot be delivered now. Returns the rest, and what was kept."""
        missing = self.unavailable
        if not missing:
            return batch, []
        rest: list[VisitResult] = []
        kept: list[VisitResult] = []
        for result in batch:
            (rest if missing.isdisjoint(self._needs(result)) else kept).append(result)
        self._results += kept
        return rest, kept

    def give_back(self) -> list[VisitResult]:
        """The results whose shards respond again."""
        results, self._results = self._results, []
        ready, _ = self.take_out(results)
        return ready

    async def unless_stuck(self, call: Coroutine[Any, Any, _T]) -> _T | None:
        """The result of a call; None if it does not end while some shards do not respond and others do."""
        task = asyncio.ensure_future(call)
        try:
            while not task.done():
                await asyncio.wait((task,), timeout=_STUCK_SECONDS)
                if not task.done() and self.unavailable:
                    return None
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _needs(self, result: VisitResult) -> set[int]:
        shards = {result.lease.lease.shard}
        for visit in result.visits:
            try:
                shards.add(self._shards.of(visit.host or canonical(visit.url).host))
            except InvalidUrl:
                continue
        return shards
