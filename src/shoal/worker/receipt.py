"""The receipt of a batch: what the store was told of it, and which records stand or fall with each lease.

An output that cannot take a line back keeps it until the batch is settled. After a crash the store is asked whether it
was handed in; if it was not, it never will be, and the visits are made again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from shoal.errors import InvalidInput
from shoal.frontier import AckBatch, Frontier
from shoal.sinks.contract import Key


class _Batch(msgspec.Struct, frozen=True, array_like=True):
    receipt: bytes
    keys: dict[str, list[Key]]


def pack(receipt: AckBatch, keys: dict[str, list[Key]]) -> bytes:
    """`keys` are those of the records of each lease, by its token."""
    return msgspec.msgpack.encode(_Batch(receipt.pack(), keys))


def refused(lost: Iterable[str], keys: dict[str, list[Key]]) -> list[Key]:
    """The records whose leases are lost: somebody else makes those visits again.

    That may have been this very worker: a batch can hold a page under the lease it lost and under the one it was given
    after that. The output has one record of it, which stands.
    """
    gone = set(lost)
    standing = {key for token, some in keys.items() if token not in gone for key in some}
    return [key for token in gone for key in keys.get(token, ()) if key not in standing]


async def replay(frontier: Frontier, packed: bytes) -> Collection[Key]:
    """Judge the last batch of a worker that died; returns the keys of records that must not become visible."""
    try:
        batch = msgspec.msgpack.decode(packed, type=_Batch)
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"A receipt beside an output is not this version's: {error}.") from None
    return refused(await frontier.void_batch(AckBatch.unpack(batch.receipt)), batch.keys)
