"""Outcomes that are held back, because a request that stays in this process depends on them.

A request that is too large for the frontier exists only in this process. If the process dies, the request is lost,
unless the request that yielded it is made again. So the yielding request is acknowledged after it. Scrapy does not
report which request yielded another, so all requests in progress at that time are held back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from scrapy import Request

from shoal.model.visit import Outcome
from shoal.scrapy.leased_slot import LeasedSlot


class HeldBack:
    def __init__(self) -> None:
        # By request that stays in this process: the requests that must not be acknowledged before it.
        self._parents: dict[Request, set[Request]] = {}
        self._outcomes: dict[Request, tuple[LeasedSlot, Outcome]] = {}

    def __len__(self) -> int:
        """How many outcomes are held back."""
        return len(self._outcomes)

    def add(self, request: Request, in_progress: Iterable[Request], leased: Collection[Request]) -> None:
        """Hold back the requests in progress, of which `leased` have a visit, until `request` is finished."""
        parents: set[Request] = set()
        for other in in_progress:
            # The yielding request may itself stay in this process: then its own parents wait for both.
            parents |= self._parents.get(other, set())
            if other in leased:
                parents.add(other)
        self._parents[request] = parents

    def keep(self, request: Request, slot: LeasedSlot, outcome: Outcome) -> bool:
        """Keep the outcome of a finished request if it is held back."""
        if not any(request in parents for parents in self._parents.values()):
            return False
        self._outcomes[request] = (slot, outcome)
        return True

    def numbers(self, slot: LeasedSlot) -> set[int]:
        """The visits of a slot that are held back."""
        return {outcome.number for other, outcome in self._outcomes.values() if other is slot}

    def finish(self, request: Request) -> list[tuple[LeasedSlot, Outcome]]:
        """A request is finished. Returns the outcomes that are not held back any more."""
        parents = self._parents.pop(request, None)
        if not parents:
            return []
        waiting: set[Request] = set().union(*self._parents.values())
        return [self._outcomes.pop(parent) for parent in parents - waiting if parent in self._outcomes]
