"""Failed visits: listed page by page after a cursor, and some of them retried.

A shard has one list of a crawl's failed visits that grows at its end, and one for each queue of a host that was given
up, which never grows. Only a retry removes visits, from the front, so that an index then means another visit. A
cursor therefore identifies the visit before it; if the list has another visit there, it is read again from its start.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from shoal.frontier import visit_codec
from shoal.frontier.scripts import Status
from shoal.frontier.shards import Shards
from shoal.model.crawl import Crawl
from shoal.model.validation import Count
from shoal.model.visit import Visit
from shoal.store import Argument

# Calls the script `retry` in a shard, with its arguments after the crawl.
Retry = Callable[[int, tuple[Argument, ...]], Awaitable[Any]]
# How many lists of hosts that were given up are read at once, how many lines of one, and how many are retried.
_LISTS, _LINES, _AT_ONCE = 100, 1000, 100


class FailureCursor(msgspec.Struct, frozen=True, array_like=True):
    """After `index` visits of a list; list 0 is the one that grows. `mark` identifies the visit before the cursor."""

    crawl: str
    shard: Count = 0
    list: Count = 0
    index: Count = 0
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
                before = await shards.command("LINDEX", key, behind.index - 1)
                index = behind.index if before is not None and _mark(before) == behind.mark else 0
            more = True
            while more:
                lines = await shards.command("LRANGE", key, index, index + at_once - 1)
                more = len(lines) == at_once
                for line in lines:
                    index += 1
                    cursor = FailureCursor(crawl.id, shard, number, index, _mark(line))
                    yield cursor, *_visit(crawl, head, line)


class FailureChoice(msgspec.Struct, frozen=True):
    """The failed visits with one of these URLs, in canonical form, and this reason. An empty field matches all."""

    urls: frozenset[str] = frozenset()
    reason: str = ""

    def matches(self, visit: Visit, reason: str) -> bool:
        return (not self.urls or visit.url in self.urls) and self.reason in ("", reason)


async def retry_chosen(shards: Shards, crawl: Crawl, choice: FailureChoice, retry: Retry) -> int:
    """Retry the failed visits that match, by calls of `retry`, and return how many.

    Reads every failed visit of the crawl. Visits that fail during the call are not retried.
    """
    retried = 0
    for shard in range(shards.count):
        async for number, key, head in _lists(shards, shard, crawl.key, 0):
            retried += await _retry_list(shards, crawl, choice, retry, (shard, number, key, head))
    return retried


async def _retry_list(
    shards: Shards, crawl: Crawl, choice: FailureChoice, retry: Retry, failed_list: tuple[int, int, str, bytes]
) -> int:
    shard, number, key, head = failed_list
    index, retried = 0, 0
    end = await shards.command("LLEN", key)
    while index < end:
        lines = await shards.command("LRANGE", key, index, min(index + _LINES, end) - 1)
        if not lines:
            break
        matching = [
            (position, line) for position, line in enumerate(lines, index) if choice.matches(*_visit(crawl, head, line))
        ][:_AT_ONCE]
        if not matching:
            index += len(lines)
            continue
        pairs = [part for pair in matching for part in pair]
        reply = await retry(shard, ("", "f", number, *pairs))
        if reply[0] != Status.OK:
            break
        retried += reply[1]
        end -= reply[1]
        # The list is shorter at its front. If another process has removed visits, it is read again from its start.
        index = matching[-1][0] + 1 - reply[1] if reply[1] == len(matching) else 0
    return retried


def _visit(crawl: Crawl, head: bytes, line: bytes) -> tuple[Visit, str]:
    """A failed visit and its reason. In a list of a host, `head` is the same for every line."""
    return visit_codec.failed(*((head, line) if head else line.partition(b"\n")[::2]), crawl=crawl.id)


async def _lists(shards: Shards, shard: int, crawl: str, first: int) -> AsyncIterator[tuple[int, str, bytes]]:
    """Number, key and head of each list from `first` on. Lists of hosts have numbers without gaps."""
    prefix = shards.prefixes[shard]
    if first == 0:
        yield 0, f"{prefix}failed:{crawl}", b""
    heads_key = f"{prefix}fi:{crawl}"
    lowest = await shards.command("HGET", heads_key, "first") or b"1"
    number = max(first, int(lowest) if lowest.isdigit() and len(lowest) < 17 else 1)
    while True:
        for head in await shards.command("HMGET", heads_key, *range(number, number + _LISTS)):
            if head is None:
                return
            yield number, f"{prefix}fq:{crawl}:{number}", head
            number += 1


def _mark(line: bytes) -> str:
    return hashlib.blake2b(line, digest_size=4).hexdigest()
