"""A lease: a worker's exclusive, expiring right to one slot of a host, with a batch of visits."""

from __future__ import annotations

import msgspec

from shoal.model.visit import Visit


class Lease(msgspec.Struct, frozen=True):
    """Fetch `visits` one after the other, `delay_seconds` between the end of one and the start of the next.

    The holder may use the lease until `trusted_until_mono` on its own clock (`shoal.frontier.mono`), and then aborts
    open requests: another worker may hold the host after that.

    `ahead_seconds`: how long `visits` and all waiting visits of the host take at its delay; 0 when unknown.
    """

    token: str
    shard: int
    host: str
    delay_seconds: float
    epoch: int
    trusted_until_mono: float
    visits: tuple[Visit, ...]
    known: int = 0
    robots_version: int = 0
    ahead_seconds: float = 0.0
