"""Is this server safe for a frontier? Judges the facts of one server; asks nothing itself.

A server that could silently drop URLs is refused. One that may forget some on a restart is allowed
with a warning that says what would be lost.
"""

from __future__ import annotations

from shoal.errors import StoreRefused
from shoal.store.facts import Facts

OLDEST_REDIS = (7, 0)


def check(facts: Facts, where: str) -> list[str]:
    """Raise StoreRefused when the server cannot keep Shoal's promises, else return warnings."""
    if facts.product == "Redis" and facts.version and facts.version < OLDEST_REDIS:
        raise StoreRefused(
            f"The store at {where} runs {facts.named}, which is too old; use Redis 7.0 or newer, or Valkey."
        )
    if facts.maxmemory_policy and facts.maxmemory_policy != "noeviction":
        raise StoreRefused(
            f"The store at {where} deletes keys when its memory is full (maxmemory-policy {facts.maxmemory_policy}), "
            "which would lose URLs; set maxmemory-policy to noeviction."
        )
    if facts.replicas and facts.min_replicas_to_write == 0:
        raise StoreRefused(
            f"The store at {where} has replicas but accepts writes without them, so a failover could lose URLs; "
            "set min-replicas-to-write to 1."
        )
    warnings = []
    if not facts.append_only:
        lost = {
            True: "every URL and result noted since the last snapshot is",
            False: "the whole frontier is",
            None: "the frontier, or what changed since its last snapshot, is",
        }[facts.snapshots]
        warnings.append(
            f"The store at {where} keeps no append-only file: {lost} lost when it restarts; set appendonly to yes."
        )
    return warnings
