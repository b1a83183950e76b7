"""The names of a shard's keys, and the hash tags that spread shards over a cluster.

Scripts get one name, the shard's `meta`, and build the others from its prefix; they are listed here so that a reader
and the dump know them all.
"""

from __future__ import annotations

from functools import cache

from shoal.store import SLOTS, slot_of

# Per shard, after the prefix `<namespace>{<tag>}`:
SINGLE = (
    "meta",
    "leases",
    "later",
    "workers",
    "acks",
    "idle",
    "expiring",
    "dry",
    "unparking",
    "trash",
    "keys",
    "crawls",
)
FAMILIES = (
    "ready:",  # <class>:<spider>         zset   host -> first moment it may be asked
    "w:",  #      <host>                   zset   crawl -> whose turn it is
    "q:",  #      <crawl>:<prio>:<host>    list   entries
    "p:",  #      <crawl>:<host>           zset   priorities present
    "h:",  #      <host>                   hash   delay, places, gates, back-off
    "l:",  #      <token>                  hash   a lease and its visits
    "c:",  #      <crawl>                  hash   the shard's copy of a crawl, its counts
    "s:",  #      <crawl>:<generation>:<n> set    fingerprints
    "hp:",  #     <crawl>                  hash   pages per host
    "parked:",  # <crawl>                  set    hosts whose visits cannot be made now
    "failed:",  # <crawl>                  list   failed visits
    "fi:",  #     <crawl>                  hash   index of failed lists
    "fq:",  #     <crawl>:<number>         list   a failed list
    "reasons:",  # <crawl>                 hash   why visits failed or were excluded
    "v:",  #      <crawl>:<n>              hash   validators by fingerprint
    "robots:",  # <host>:<name>            string a copy of a robots.txt
    "crawl:",  #  <id>                     hash   a crawl's record, at its home shard
    "forced:",  # <request>                string the reply to a call that forced visits in
    "grants:",  # <crawl>                  hash   allowance given to shards
    "tally:",  #  <crawl>                  hash   its statistics, at its home shard
    "facts:",  #  <crawl>                  hash   its facts, at its home shard
    "counted:",  # <crawl>                 hash   the last count of bytes of each worker, at its home shard
)


@cache
def tags(shards: int) -> tuple[str, ...]:
    """A short hash tag for each shard, in the middle of its share of the slots.

    >>> [slot_of(tag) * 4 // SLOTS for tag in tags(4)]
    [0, 1, 2, 3]
    """
    width = SLOTS / shards
    found: dict[int, tuple[float, str]] = {}
    # The best of a fixed number of candidates: near enough to the middle, and the same on every machine.
    for number in range(max(4096, shards * 16)):
        tag = _base36(number)
        slot = slot_of(tag)
        shard = int(slot / width)
        off = abs(slot - (shard + 0.5) * width)
        if shard not in found or off < found[shard][0]:
            found[shard] = (off, tag)
    return tuple(found[shard][1] for shard in range(shards))


def prefix(namespace: str, tag: str) -> str:
    return f"{namespace}{{{tag}}}"


def store_meta(namespace: str) -> str:
    """Where a store says how many shards it has, before anybody can know their tags.

    Beside it, `beats` and `infos` say which workers live.
    """
    return prefix(namespace, "store") + "meta"


def channel(namespace: str, worker: str) -> str:
    """Where a script tells a worker that sleeps that there is work."""
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
