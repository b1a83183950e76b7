"""The live workers, by heartbeats on the store's clock.

Leases do not depend on heartbeats: they expire by themselves. Workers use the list to share the shards
(shard_owners.py), and the dashboard shows it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.errors import InvalidInput
from shoal.frontier.shards import STORE, Shards
from shoal.model.heartbeat import Heartbeat

MAX_INFO_BYTES = 4096


class WorkerInfo(msgspec.Struct, frozen=True):
    """A worker with a heartbeat in the last 30 seconds, and the information it sent."""

    name: str
    seen_seconds_ago: float
    info: dict[str, Any]

    @property
    def heartbeat(self) -> Heartbeat:
        """The information as typed values."""
        return Heartbeat.of(self.info)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, Any]).decode


class Workers:
    """Reached as `frontier.workers`."""

    def __init__(self, shards: Shards, worker: str) -> None:
        self._shards = shards
        self._worker = worker

    async def beat(self, info: dict[str, Any] | Heartbeat) -> list[str]:
        """Send a heartbeat. Returns the sorted names of all live workers that share the shards.

        A worker that sends `owns: False` shares none: it leases only visits of its own kind.
        """
        packed = _packed(info)
        owns = info.owns if isinstance(info, Heartbeat) else bool(info.get("owns", True))
        reply = await self._shards.call("beat", STORE, (self._worker, int(owns), packed))
        return sorted(name.decode(errors="replace") for name in reply[1:])

    async def alive(self) -> list[WorkerInfo]:
        """Every worker with a heartbeat in the last 30 seconds, by name."""
        reply = await self._shards.call("alive", STORE, ())
        workers = [
            WorkerInfo(name.decode(errors="replace"), ago / 1000, _unpacked(packed))
            for name, ago, packed in zip(reply[1::3], reply[2::3], reply[3::3], strict=True)
        ]
        return sorted(workers, key=lambda worker: worker.name)

    async def leave(self) -> None:
        """Remove this worker at once, without waiting until its heartbeat is missed."""
        await self._shards.call("leave", STORE, (self._worker,))


def fitted(heartbeat: Heartbeat) -> Heartbeat:
    """The heartbeat with as many of its latest pages as there is room for; the oldest are left out first."""
    while heartbeat.latest and len(_encode(heartbeat)) > MAX_INFO_BYTES:
        heartbeat = msgspec.structs.replace(heartbeat, latest=heartbeat.latest[1:])
    return heartbeat


def _packed(info: dict[str, Any] | Heartbeat) -> bytes:
    try:
        packed = _encode(info)
        _decode(packed)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"The information of a worker cannot be stored: {error}.") from None
    if len(packed) > MAX_INFO_BYTES:
        raise InvalidInput(f"The information of a worker has {len(packed)} bytes; the limit is {MAX_INFO_BYTES}.")
    return packed


def _unpacked(packed: bytes) -> dict[str, Any]:
    """Invalid information counts as none."""
    try:
        return _decode(packed) if len(packed) <= MAX_INFO_BYTES else {}
    except (ValueError, RecursionError):
        return {}
