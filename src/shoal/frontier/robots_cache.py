"""Copies of robots.txt, fetched once for the whole fleet and kept in their host's shard.

What a copy says is the worker's business: here it is bytes. Every write gives the host a new version, which comes with
each lease, so that a worker knows without asking whether the rules it remembers are still the ones that hold.
"""

from __future__ import annotations

import re

from shoal.errors import InvalidInput, StoreFull
from shoal.frontier.hosts import Hosts
from shoal.frontier.shards import Shards
from shoal.model.validation import milliseconds

MAX_COPY_BYTES = 3_000_000
_NAME = re.compile(r"https?://\S+ .*\S\Z")


class RobotsCache:
    """Reached as `frontier.robots`. A copy's name is '<scheme>://<authority> <token>'."""

    def __init__(self, shards: Shards, hosts: Hosts) -> None:
        self._shards = shards
        self._hosts = hosts

    async def read(self, host: str, name: str) -> tuple[bytes | None, float]:
        """The kept copy, None when there is none, and the store's clock in seconds since 1970."""
        host = self._hosts.name(host)
        reply = await self._shards.call("read_robots", self._shards.of(host), (host, _name(name)))
        return reply[2] or None, reply[1] / 1000

    async def write(self, host: str, name: str, kept: bytes, *, known: bool, crawl_delay_seconds: float = 0.0) -> None:
        """Keep a copy for 30 days. `known`: its rules are known, so that more than one place may be used.

        A store that is full does not take the copy, but learns what it says of the host.
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
