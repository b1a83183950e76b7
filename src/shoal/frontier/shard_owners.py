"""Which worker looks after which shards first: rendezvous hashing, the same on every machine without a word.

A worker that joins or leaves moves only its own share. Owning is a preference, not a right: leases alone decide who may
ask a host, so two workers that know different lists do no harm.
"""

from __future__ import annotations

from collections.abc import Sequence

from xxhash import xxh3_64_intdigest


def owned(worker: str, workers: Sequence[str], shards: int) -> list[int]:
    """The shards whose owner this worker is among these; it counts itself, also when the list does not have it."""
    others = set(workers) - {worker}
    mine = []
    for shard in range(shards):
        weight = _weight(worker, shard)
        if all(_weight(other, shard) < weight for other in others):
            mine.append(shard)
    return mine


def _weight(worker: str, shard: int) -> tuple[int, str]:
    """The name decides between equal hashes."""
    return xxh3_64_intdigest(f"{worker} {shard}".encode()), worker
