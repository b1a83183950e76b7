"""A visit that has come to its end, on its way to the outputs and the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shoal.model.record import Capture, Item, Record
from shoal.model.visit import Outcome, Visit
from shoal.sinks.contract import Stored
from shoal.worker.conduct import Conduct
from shoal.worker.hold import Hold


class Finished(NamedTuple):
    """One visit that has come to its end."""

    hold: Hold
    visit: Visit
    outcome: Outcome
    record: Record | None = None
    visits: Sequence[Visit] = ()
    conduct: Conduct | None = None
    items: tuple[Item, ...] = ()
    capture: Capture | None = None
    # Of the items, and of the data that visits carry.
    size: int = 0

    @property
    def stored(self) -> Iterator[Stored]:
        """Everything that outputs may want of it."""
        if self.record is not None:
            yield self.record
        yield from self.items
        if self.capture is not None:
            yield self.capture

    @property
    def weight(self) -> int:
        """What it takes of memory until it is delivered, about."""
        weight = 200 * len(self.visits) + (0 if self.record is None else len(self.record.text))
        return weight + 500 * len(self.items) + self.size + (0 if self.capture is None else len(self.capture.page.body))
