"""Failed visits, listed from a cursor on, so that a caller can read them page by page.

A shard has one list of a crawl's failed visits that grows at its end, and one for each queue of a host that was set
aside, which never grows. Only a retry takes from them, from their front, and then an index means another visit: a
place knows the visit before it, and a list that has another one there is begun again.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from shoal.frontier import visit_codec
from shoal.frontier.shards import Shards
from shoal.model.crawl import Crawl
from shoal.model.visit import Visit

# How many lists of hosts that were set aside are read at once.
_LISTS = 100
_Count = Annotated[int, Meta(ge=0, le=2**53)]


class FailureCursor(msgspec.Struct, frozen=True, array_like=True):
    """Behind so many visits (`index`) of a list; list 0 is the one that grows. `mark` is that of the visit before."""

    crawl: str
    shard: _Count = 0
    list: _Count = 0
    index: _Count = 0
    mark: str = ""


async def failures(
    shards: Shards, crawl: Crawl, behind: FailureCursor, at_once: int
) -> AsyncIterator[tuple[FailureCursor, Visit, str]]:
    """Each visit with the cursor behind it and its reason, oldest first in each list. One command reads `at_once`."""
    for shard in range(behind.shard, shards.count):
        first = behind.list if shard == behind.shard else 0
        async for number, key, head in _lists(shards, shard, crawl.key, first):
            index = 0
            if (shard, number) == (behind.shard, behind.list) and behind.index:
                before = await _ask(shards, "LINDEX", key, behind.index - 1)
                index = behind.index if before is not None and _mark(before) == behind.mark else 0
            more = True
            while more:
                lines = await _ask(shards, "LRANGE", key, index, index + at_once - 1)
                more = len(lines) == at_once
                for line in lines:
                    index += 1
                    told = (head, line) if number else line.partition(b"\n")[::2]
                    yield (
                        FailureCursor(crawl.id, shard, number, index, _mark(line)),
                        *visit_codec.failed(*told, crawl=crawl.id),
                    )


async def _lists(shards: Shards, shard: int, crawl: str, first: int) -> AsyncIterator[tuple[int, str, bytes]]:
    """Number, key and head of each list from `first` on. Those set aside are numbered without a gap."""
    prefix = shards.prefixes[shard]
    if first == 0:
        yield 0, f"{prefix}failed:{crawl}", b""
    known = f"{prefix}fi:{crawl}"
    left = await _ask(shards, "HGET", known, "first") or b"1"
    number = max(first, int(left) if left.isdigit() and len(left) < 17 else 1)
    while True:
        for head in await _ask(shards, "HMGET", known, *range(number, number + _LISTS)):
            if head is None:
                return
            yield number, f"{prefix}fq:{crawl}:{number}", head
            number += 1


def _mark(line: bytes) -> str:
    return hashlib.blake2b(line, digest_size=4).hexdigest()


async def _ask(shards: Shards, command: str, key: str, *args: str | int) -> Any:
    return await shards.store.command(command, key, *args, key=key)
