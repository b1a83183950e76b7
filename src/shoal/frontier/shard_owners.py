"""Which worker serves which shards first: rendezvous hashing, so all machines agree without communication.

A worker that joins or leaves moves only its own share. Owning is a preference, not a right: only leases decide which
worker may request a host, so two workers that know different lists do no harm.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

# This many workers are enough to look for work in one shard. If all workers of a large fleet did, the idle ones would
# keep the store busy.
_WORKERS_PER_SHARD = 32


def owned(worker: str, workers: Sequence[str], shards: int) -> list[int]:
    """The shards that this worker owns among these workers, itself included even if it is not listed."""
    others = set(workers) - {worker}
    mine = []
    for shard in range(shards):
        weight = _weight(worker, shard)
        if all(_weight(other, shard) < weight for other in others):
            mine.append(shard)
    return mine


def sample_shards(workers: int, shards: int) -> list[int] | None:
    """The shards that one of `workers` workers leases from next, at random; None for all."""
    count = math.ceil(shards * _WORKERS_PER_SHARD / max(workers, 1))
    return random.sample(range(shards), count) if count < shards else None


def _weight(worker: str, shard: int) -> tuple[int, str]:
    """Ordered by name for equal hashes."""
    return xxh3_64_intdigest(f"{worker} {shard}".encode()), worker
