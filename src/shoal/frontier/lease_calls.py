"""The values of lease calls: the terms of all calls of a worker, the request of one, and the reply of a shard."""

from __future__ import annotations

import msgspec

from shoal.model import validation
from shoal.model.lease import Lease


class LeaseTerms(msgspec.Struct, frozen=True):
    """The terms that all leases of a worker have in common."""

    worker: str
    lease_seconds: float
    batch_seconds: float
    expiries: int
    blames: int

    def check(self) -> None:
        validation.worker(self.worker)
        validation.number("lease_seconds", self.lease_seconds, 0.01, 86400)
        validation.number("batch_seconds", self.batch_seconds, 0, 3600)
        validation.whole("expiries", self.expiries, 1, 255)
        validation.whole("blames", self.blames, 1, 255)

    @property
    def lease_ms(self) -> int:
        return round(self.lease_seconds * 1000)

    @property
    def batch_ms(self) -> int:
        return round(self.batch_seconds * 1000)

    def trusted_until(self, called_mono: float) -> float:
        """The deadline, minus the time it takes to abort a transfer."""
        return called_mono + self.lease_seconds - min(self.lease_seconds / 10, 5.0)


class LeaseRequest(msgspec.Struct, frozen=True):
    """The arguments of one call of `lease`."""

    hosts: int
    visits: int
    spiders: tuple[str, ...]
    sleeps: bool


class LeaseReply(msgspec.Struct, frozen=True):
    """The reply of a shard: leases, ms until more may be ready (-1 never), crawls that need page budget."""

    leases: list[Lease]
    soonest_ms: int
    dry: set[str]
