"""What a crawl is fed with while its command runs: the rest of its seeds, the pages of one that is visited again."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncGenerator, Mapping

from shoal.cli.ui.console import counted, say, warn
from shoal.frontier import Frontier
from shoal.model.crawl_spec import Policy
from shoal.model.visit import Visit
from shoal.operations import feeding
from shoal.operations.revisit import revisits
from shoal.operations.seeds import FIRST, Seeds


class Feeder:
    """While it is not `done`, the crawl is not over, whatever its counts say."""

    def __init__(
        self, frontier: Frontier, crawl: str, policy: Policy, seeds: Seeds | None, *, named: Mapping[str, str]
    ) -> None:
        """`named` are outputs by their names."""
        self._frontier = frontier
        self._crawl = crawl
        self._policy = policy
        self._named = named
        self._seeds = self._unread = seeds
        self._task: asyncio.Task[None] | None = None
        self._troubles: set[str] = set()

    async def start(self) -> None:
        """Note in the store what is still to come, and begin with it."""
        if self._seeds is not None:
            await feeding.begin(self._frontier, self._crawl, feeding.SEEDS)
            if self._policy.reach == "prefix" and self._policy.follow:
                warn(f"Only the first {FIRST:,} seeds say what --scope prefix means; the others are visited alone.")
        elif await feeding.under_way(self._frontier, self._crawl, feeding.SEEDS):
            warn(f"Crawl {self._crawl} was interrupted before all of its seeds were read: give --seeds again.")
        self._task = asyncio.create_task(self._feed())

    @property
    def done(self) -> bool:
        """Raises what went wrong."""
        if self._task is None or not self._task.done():
            return False
        self._task.result()
        return True

    @property
    def flag(self) -> str:
        """What to type beside the crawl's name to go on with it."""
        return f" --seeds {shlex.quote(self._unread.source)}" if self._unread is not None else ""

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _feed(self) -> None:
        frontier, crawl = self._frontier, self._crawl
        if self._seeds is not None:
            if await feeding.feed(frontier, crawl, self._more(self._seeds), self._hear) is not None:
                await feeding.end(frontier, crawl, feeding.SEEDS)
            self._unread = None
            for fault in self._seeds.faults:
                warn(fault)
            if self._seeds.bad:
                are = "is no URL and was" if self._seeds.bad == 1 else "are no URLs and were"
                warn(f"{counted(self._seeds.bad, 'line')} of {self._seeds.shown} {are} left out.")
        if now := await feeding.under_way(frontier, crawl, feeding.PASS):
            visits = revisits(frontier, crawl, self._policy, now, named=self._named)
            count = await feeding.feed(frontier, crawl, visits, self._hear)
            if count is not None:
                await feeding.end(frontier, crawl, feeding.PASS)
                say(f"{counted(count, 'URL')} of crawl {crawl} {'is' if count == 1 else 'are'} visited again.")

    async def _more(self, seeds: Seeds) -> AsyncGenerator[list[Visit], None]:
        async for urls in seeds.rest():
            yield [Visit(url=url, found="seed") for url in urls]

    def _hear(self, text: str) -> None:
        if text not in self._troubles:
            self._troubles.add(text)
            warn(text)
