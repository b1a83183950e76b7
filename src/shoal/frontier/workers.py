"""Workers: who lives, by heartbeats on the store's clock.

Nothing of the frontier depends on it: leases run out by themselves. It tells workers how many share the shards
(owning.py), and people who is there.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.errors import InvalidInput
from shoal.frontier.shards import STORE, Shards

MAX_INFO_BYTES = 4096


class WorkerInfo(msgspec.Struct, frozen=True):
    """A worker that was heard of in the last 30 seconds, and what it said of itself."""

    name: str
    seen_seconds_ago: float
    info: dict[str, Any]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, Any]).decode


class Workers:
    """Reached as `frontier.workers`."""

    def __init__(self, shards: Shards, worker: str) -> None:
        self._shards = shards
        self._worker = worker

    async def beat(self, info: dict[str, Any]) -> list[str]:
        """This worker lives now. Returns the names of all that live and share the shards, sorted.

        One that says `owns: False` of itself is heard of and shares none: it leases visits of its own kind only.
        """
        await self._shards.call("beat", STORE, (self._worker, _packed(info)))
        return [worker.name for worker in await self.alive() if worker.info.get("owns", True)]

    async def alive(self) -> list[WorkerInfo]:
        """Every worker heard of in the last 30 seconds, by name."""
        reply = await self._shards.call("alive", STORE, ())
        workers = [
            WorkerInfo(name.decode(errors="replace"), ago / 1000, _unpacked(packed))
            for name, ago, packed in zip(reply[1::3], reply[2::3], reply[3::3], strict=True)
        ]
        return sorted(workers, key=lambda worker: worker.name)

    async def leave(self) -> None:
        """This worker stops: the others need not wait until it is missed."""
        await self._shards.call("leave", STORE, (self._worker,))


def _packed(info: dict[str, Any]) -> bytes:
    try:
        packed = _encode(info)
        _decode(packed)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"What a worker says of itself cannot be stored: {error}.") from None
    if len(packed) > MAX_INFO_BYTES:
        raise InvalidInput(f"What a worker says of itself has {len(packed)} bytes: it may have {MAX_INFO_BYTES}.")
    return packed


def _unpacked(packed: bytes) -> dict[str, Any]:
    """What is not Shoal's says nothing."""
    try:
        return _decode(packed)
    except (ValueError, RecursionError):
        return {}
