"""The slot map of a cluster, combined from the views of its nodes.

Pure functions: the topology queries the nodes. A node that was cut off from the others still returns its old map, so a
single view is not trusted if there is a better one.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from shoal.store.address import Endpoint
from shoal.store.connection import ReplyError, pack

SLOTS = 16384
# The three commands whose replies `parse_view` takes. CLUSTER SLOTS has the addresses that clients use, CLUSTER NODES
# the configuration epochs.
VIEW_COMMANDS = pack(("CLUSTER", "SLOTS")) + pack(("CLUSTER", "NODES")) + pack(("CLUSTER", "INFO"))
VIEW_COMMAND_COUNT = 3


class Claim(NamedTuple):
    """A range of slots, and the primary that holds it according to one node."""

    epoch: int
    first: int
    last: int
    primary: Endpoint


class ClusterView(NamedTuple):
    """The cluster as one node sees it. `healthy`: the node is in touch with most primaries and serves calls."""

    healthy: bool
    claims: list[Claim]


def parse_view(slots: list[Any], nodes: Any, info: Any, host: str) -> ClusterView:
    """The view of a node at `host`. A primary that the node names without an address has the address `host`."""
    epochs: dict[bytes, int] = {}
    if isinstance(nodes, bytes):
        for line in nodes.splitlines():
            fields = line.split()
            if len(fields) > 6 and fields[6].isdigit():
                epochs[fields[0]] = int(fields[6])
    claims = []
    for first, last, primary, *_ in slots:
        address = (primary[0] or b"").decode()
        endpoint = Endpoint(address if address not in ("", "?") else host, int(primary[1]))
        epoch = epochs.get(primary[2], 0) if len(primary) > 2 else 0
        claims.append(Claim(epoch, first, last, endpoint))
    # Where CLUSTER INFO is forbidden, a node counts as healthy.
    return ClusterView(isinstance(info, ReplyError) or b"cluster_state:ok" in info, claims)


def merge_views(views: Sequence[ClusterView]) -> list[Endpoint | None]:
    """The primary of each slot.

    Healthy nodes decide if there are any. Of two claims to a slot, the one with the higher configuration epoch wins, as
    between the nodes themselves: every failover and every move of a slot gives the new holder a higher epoch. Of claims
    with the same epoch, the one that most nodes make wins.
    """
    trusted = [view for view in views if view.healthy] or views
    votes = Counter(claim for view in trusted for claim in view.claims)
    slots: list[Endpoint | None] = [None] * SLOTS
    for claim, _ in sorted(votes.items(), key=lambda item: (item[0].epoch, item[1])):
        slots[claim.first : claim.last + 1] = [claim.primary] * (claim.last - claim.first + 1)
    return slots


def slot_of(key: str) -> int:
    """The cluster slot of a key: CRC-16/XMODEM of its hash tag, or of all of it."""
    start = key.find("{")
    if start >= 0:
        end = key.find("}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key.encode(), 0) % SLOTS
