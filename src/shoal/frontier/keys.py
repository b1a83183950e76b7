"""The names of a shard's keys, and the hash tags that spread shards over a cluster.

A script gets one name, the shard's `meta`, and builds the others from its prefix. This module has the names that Python
reads or writes; docs/reference/store-keys.md lists all of them, and a test compares it with the scripts.
"""

from __future__ import annotations

from functools import cache

from shoal.store import SLOTS, slot_of


@cache
def tags(shards: int) -> tuple[str, ...]:
    """A short hash tag for each shard, in the middle of its share of the slots.

    >>> [slot_of(tag) * 4 // SLOTS for tag in tags(4)]
    [0, 1, 2, 3]
    """
    width = SLOTS / shards
    best: dict[int, tuple[float, str]] = {}
    # The best of a fixed number of candidates: near enough to the middle, and the same on every machine.
    for number in range(max(4096, shards * 16)):
        tag = _base36(number)
        slot = slot_of(tag)
        shard = int(slot / width)
        distance = abs(slot - (shard + 0.5) * width)
        if shard not in best or distance < best[shard][0]:
            best[shard] = (distance, tag)
    return tuple(best[shard][1] for shard in range(shards))


def prefix(namespace: str, tag: str) -> str:
    return f"{namespace}{{{tag}}}"


# Each function takes the prefix of a shard. `key` identifies a crawl in all shards.


def meta(shard: str) -> str:
    return shard + "meta"


def crawls(shard: str) -> str:
    return shard + "crawls"


def leases(shard: str) -> str:
    return shard + "leases"


def blocked(shard: str) -> str:
    return shard + "blocked"


def lease(shard: str, token: str) -> str:
    return f"{shard}l:{token}"


def crawl(shard: str, crawl_id: str) -> str:
    return f"{shard}crawl:{crawl_id}"


def tally(shard: str, key: str) -> str:
    return f"{shard}tally:{key}"


def facts(shard: str, key: str) -> str:
    return f"{shard}facts:{key}"


def ready(shard: str, priority_class: int, spider: str) -> str:
    return f"{shard}ready:{priority_class}:{spider}"


def calendar(shard: str) -> str:
    return shard + "calendar"


def due(shard: str, bucket: str) -> str:
    """`bucket`: its name in the calendar, which starts with the key of its crawl."""
    return f"{shard}due:{bucket}"


def names(shard: str, key: str) -> str:
    return f"{shard}names:{key}"


def signals(shard: str, key: str) -> str:
    return f"{shard}signals:{key}"


def parked(shard: str, key: str) -> str:
    return f"{shard}parked:{key}"


def host_counts(shard: str, key: str) -> str:
    return f"{shard}hp:{key}"


def over(shard: str, key: str) -> str:
    return f"{shard}over:{key}"


def dropped(shard: str, key: str) -> str:
    return f"{shard}dropped:{key}"


def turns(shard: str, host: str) -> str:
    return f"{shard}w:{host}"


def priorities(shard: str, key: str, host: str) -> str:
    return f"{shard}p:{key}:{host}"


def queue(shard: str, key: str, priority: int, host: str) -> str:
    return f"{shard}q:{key}:{priority}:{host}"


def history(shard: str, step: str, name: str) -> str:
    """The history of a crawl, or of the fleet beside `store_meta`, by minute or by hour."""
    return f"{shard}h{step[0]}:{name}"


def store_meta(namespace: str) -> str:
    """The key with a store's number of shards, which must be known before their tags.

    Beside it, `beats` and `infos` list the live workers, and `nonowners` those that own no shards.
    """
    return prefix(namespace, "store") + "meta"


def back_offs(prefix: str, host: str) -> str:
    """The last back-offs of a host."""
    return f"{prefix}rests:{host}"


def audit(namespace: str) -> str:
    """The latest changes that were made through the API."""
    return prefix(namespace, "store") + "audit"


def maintenance_lock(namespace: str) -> str:
    """Held by the process that maintains the crawls of the namespace."""
    return prefix(namespace, "store") + "tender"


def channel(namespace: str, worker: str) -> str:
    """The channel on which a script wakes a sleeping worker."""
    return f"{namespace}:wake:{worker}"


def home_of(key: str) -> int:
    """The home shard of a crawl, from its key: seven digits of time, then the shard's number."""
    return int(key[7:], 36)


def _base36(number: int) -> str:
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    out = ""
    while True:
        number, digit = divmod(number, 36)
        out = digits[digit] + out
        if not number:
            return out
