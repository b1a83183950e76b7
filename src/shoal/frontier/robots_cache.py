"""Stored copies of robots.txt, one per host, authority and product token, and their stored form.

Every write gives the host a new version. Each lease carries that version, so a lease holder knows without a request to
the store whether the rules it remembers are still current. `shoal.leases.robots_gate` decides when to read and write.
"""

from __future__ import annotations

import re

import msgspec

from shoal.errors import InvalidInput, StoreCorrupt, StoreFull
from shoal.frontier.hosts import Hosts
from shoal.frontier.shards import Shards
from shoal.model.validation import milliseconds
from shoal.politeness.robots_policy import RobotsCopy

MAX_COPY_BYTES = 3_000_000
_NAME = re.compile(r"https?://\S+ .*\S\Z")
_FORMAT = 1


class StoredRobots(msgspec.Struct, frozen=True, array_like=True):
    """The stored form. Times are on the store's clock, 0 = never."""

    format: int = _FORMAT
    copy: bytes = b""
    unreachable_at: float = 0.0
    pending_until: float = 0.0


class RobotsEntry(msgspec.Struct, frozen=True):
    """What the fleet knows about one robots.txt. Times are seconds on the store's clock, 0 = never.

    copy            the rules as last confirmed, None before the first response
    unreachable_at  when the last attempt failed
    pending_until   until when a visit of another host, to which robots.txt redirects, is expected to fetch it
    """

    copy: RobotsCopy | None = None
    unreachable_at: float = 0.0
    pending_until: float = 0.0

    def pack(self) -> bytes:
        copy = self.copy.pack() if self.copy is not None else b""
        return msgspec.msgpack.encode(StoredRobots(_FORMAT, copy, self.unreachable_at, self.pending_until))

    @classmethod
    def unpack(cls, data: bytes | None) -> RobotsEntry:
        """Decode what `pack` returned. Data in any other form counts as absent: robots.txt is then fetched again."""
        if data:
            try:
                stored = _decode(data)
                if stored.format == _FORMAT:
                    copy = RobotsCopy.unpack(stored.copy) if stored.copy else None
                    return cls(copy, stored.unreachable_at, stored.pending_until)
            except (msgspec.MsgspecError, StoreCorrupt):
                pass
        return cls()


_decode = msgspec.msgpack.Decoder(StoredRobots).decode


class RobotsCache:
    """Available as `frontier.robots`. The name of a copy is '<scheme>://<authority> <token>'."""

    def __init__(self, shards: Shards, hosts: Hosts) -> None:
        self._shards = shards
        self._hosts = hosts

    async def read(self, host: str, name: str) -> tuple[bytes | None, float]:
        """Return the stored bytes, None if there are none, and the store's clock in seconds since 1970."""
        host = self._hosts.name(host)
        reply = await self._shards.call("read_robots", self._shards.of(host), (host, _name(name)))
        return reply[2] or None, reply[1] / 1000

    async def write(self, host: str, name: str, kept: bytes, *, known: bool, crawl_delay_seconds: float = 0.0) -> None:
        """Store a copy for 30 days. `known`: its rules are known, so more than one connection to the host is allowed.

        A full store rejects the copy but still records the host's crawl delay and that its rules are known.
        """
        host = self._hosts.name(host)
        if not isinstance(kept, bytes) or not 0 < len(kept) <= MAX_COPY_BYTES:
            size = f"{len(kept)} bytes" if isinstance(kept, bytes) else type(kept).__name__
            raise InvalidInput(f"A copy of a robots.txt is {size}: it must be 1 to {MAX_COPY_BYTES} bytes.")
        delay = milliseconds("crawl delay", crawl_delay_seconds, 86400)
        args = (host, _name(name), int(bool(known)), delay)
        shard = self._shards.of(host)
        try:
            await self._shards.call("write_robots", shard, (*args, kept), replicated=True)
        except StoreFull:
            await self._shards.call("write_robots", shard, (*args, b""), replicated=True)


def _name(name: str) -> str:
    if not isinstance(name, str) or len(name) > 400 or not name.isprintable() or not _NAME.match(name):
        shown = repr(name)[:97]
        raise InvalidInput(
            f"{shown} does not name a robots.txt: write '<scheme>://<authority> <token>', up to 400 characters."
        )
    return name
