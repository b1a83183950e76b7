"""What every sink does. One object is one worker's connection to one output of one crawl.

The order of a batch, which makes "stored once" hold for any technology:

    await sink.write(records, receipt)     durable when it returns
    the worker acknowledges the visits     the store may refuse some: their lease was lost, somebody else has them
    await sink.settle(refused)             the keys that were refused; those records must not become visible

A database keeps one row of a key, so a refused record does no harm, `receipt` is of no use to it and `settle` does
nothing. A file cannot take a line back: it keeps `receipt` beside what it wrote until `settle`, and when a worker died
in between, the store is asked whether the batch was acknowledged. If it was not, it never will be. The store remembers
the last receipt of a worker's name: it is asked before the name is used again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from shoal.model.record import Capture, Item, Record

Key = tuple[str, str]
Stored = Record | Item | Capture


class Sink(Protocol):
    """Where records go. Writing waits for as long as the output is busy or away, and says so by `on_trouble`."""

    async def open(self) -> None:
        """Connect, make what is missing. SinkRefused in one sentence when this output can never work as it is."""

    async def write(self, records: Sequence[Stored], receipt: bytes) -> None:
        """Keep a batch: one record of a key, the last one. Cancelling it leaves a sink that can write on.

        Raises SinkUnavailable when it cannot be done now, SinkRefused when it never will.
        """

    async def settle(self, refused: Collection[Key]) -> None:
        """The last batch that was written is acknowledged, all but these."""

    async def close(self) -> None:
        """Finish what is open. A second call does nothing."""
