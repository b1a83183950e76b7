"""Where one URL of a crawl is in the frontier: waiting, leased, due later, failed, set aside, done or unknown.

A query for people. It reads queues in pieces and never blocks the store for long. While workers run, a URL moves on:
the result was true at some time during the call.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Any, NamedTuple

from shoal.errors import StoreCorrupt
from shoal.frontier import keys, visit_codec
from shoal.frontier.frontier import Frontier
from shoal.frontier.scripts import Status
from shoal.model.crawl import Crawl
from shoal.model.visit import Visit
from shoal.urls.canonical import Target
from shoal.urls.fingerprint import fingerprint, host_bits

_PIECE = 1000
# Entries of one queue or list that are read at most: beyond that, a position is not worth the time.
_MOST = 200_000
_REFUSED = {"d": "depth", "h": "pages per host", "l": "URLs per depth"}


class UrlPlace(StrEnum):
    """Where a URL is."""

    UNKNOWN = "unknown"
    """The crawl has not admitted it."""
    WAITING = "waiting"
    LEASED = "leased"
    LATER = "later"
    """It is tried again, or visited again, at a set time."""
    FAILED = "failed"
    SET_ASIDE = "set aside"
    """A limit keeps it out; a higher limit admits it again."""
    DONE = "done"
    """It was visited or excluded."""


class UrlState(NamedTuple):
    """What the frontier knows about a URL.

    place    where it is
    visit    the visit, if the frontier still has it
    reason   why it failed or was set aside
    ahead    waiting: how many visits of the crawl are before it in its host's queue; None if that was not counted
    worker   leased: the worker that has it
    until    leased: when the lease expires; later: when it is due. Seconds since 1970 on the store's clock
    pages    pages of its host that the crawl has stored, if the crawl limits them
    bytes    bytes that the crawl has received from its host, if the crawl limits them
    """

    place: UrlPlace
    visit: Visit | None = None
    reason: str = ""
    ahead: int | None = None
    worker: str = ""
    until: float = 0.0
    pages: int = 0
    bytes: int = 0


async def url_state(frontier: Frontier, crawl: Crawl, target: Target) -> UrlState:
    """Look a URL up in one crawl, without its branches. `target.host` is the host whose queue it would be in."""
    shards = frontier.shards
    mark = fingerprint(host_bits(target.host), target.url, shards.seed)
    reply = await shards.call("find", shards.of(target.host), (crawl.key, target.host, mark))
    if reply[0] == Status.UNKNOWN:
        return UrlState(UrlPlace.UNKNOWN)
    counted = {"pages": reply[3], "bytes": reply[4]}
    # A visit that moves on during the search may be missed: one that was admitted is searched for again.
    for _ in range(2 if reply[2] else 1):
        for find in (_waiting, _leased, _later, _failed, _set_aside):
            if (state := await find(frontier, crawl, target)) is not None:
                return state._replace(**counted)
    return UrlState(UrlPlace.DONE if reply[2] else UrlPlace.UNKNOWN, **counted)


async def _waiting(frontier: Frontier, crawl: Crawl, target: Target) -> UrlState | None:
    prefix = _prefix(frontier, target)
    names = await frontier.shards.command("ZREVRANGE", keys.priorities(prefix, crawl.key, target.host), 0, -1) or [b"0"]
    ahead = 0
    for priority in (int(name) for name in names if name.lstrip(b"-").isdigit()):
        queue = keys.queue(prefix, crawl.key, priority, target.host)
        length = await frontier.shards.command("LLEN", queue)
        async for index, entry in _entries(frontier, queue):
            if (visit := _matching(entry, target, crawl, priority)) is not None:
                before = length - 1 - index if crawl.limits.order == "lifo" else index
                return UrlState(UrlPlace.WAITING, visit, ahead=ahead + max(0, before))
        ahead += length
    return None


async def _leased(frontier: Frontier, crawl: Crawl, target: Target) -> UrlState | None:
    prefix = _prefix(frontier, target)
    flat = await frontier.shards.command("ZRANGE", keys.leases(prefix), 0, -1, "WITHSCORES")
    for token, deadline in zip(flat[::2], flat[1::2], strict=True):
        lease = keys.lease(prefix, token.decode(errors="replace"))
        if await frontier.shards.command("HGET", lease, "host") != target.host.encode():
            continue
        fields = await frontier.shards.command("HGETALL", lease)
        for name, packed in zip(fields[::2], fields[1::2], strict=True):
            key, _, rest = packed.partition(b":")
            if not name.isdigit() or key != crawl.key.encode():
                continue
            priority, _, entry = rest.partition(b":")
            if (visit := _matching(entry, target, crawl, int(priority))) is not None:
                worker = token.decode(errors="replace").split(".", 2)[-1]
                return UrlState(UrlPlace.LEASED, visit, worker=worker, until=float(deadline) / 1000)
    return None


async def _later(frontier: Frontier, crawl: Crawl, target: Target) -> UrlState | None:
    async for _, score, visit in _due_later(frontier, crawl, target):
        reason = "" if visit.found == "revisit" else "a request failed"
        return UrlState(UrlPlace.LATER, visit, reason, until=float(score) / 1000)
    return None


async def _due_later(frontier: Frontier, crawl: Crawl, target: Target) -> AsyncIterator[tuple[bytes, bytes, Visit]]:
    name = f"{_prefix(frontier, target)}later"
    pattern = f"{crawl.key}:*:{_escaped(target.host)} *{_escaped(target.rest)}"
    async for member, score in _scan(frontier, "ZSCAN", name, pattern):
        head, _, entry = member.partition(b" ")
        priority = int(head.split(b":", 2)[1])
        if (visit := _matching(entry, target, crawl, priority)) is not None:
            yield member, score, visit


async def hasten(frontier: Frontier, crawl: Crawl, target: Target) -> bool:
    """Make the visits of a URL that are due later due now. False if there are none."""
    hastened = False
    async for member, _, _ in _due_later(frontier, crawl, target):
        reply = await frontier.shards.call("hasten", frontier.shards.of(target.host), (crawl.key, member))
        hastened |= bool(reply[1])
    return hastened


async def _failed(frontier: Frontier, crawl: Crawl, target: Target) -> UrlState | None:
    prefix = _prefix(frontier, target)
    async for _, line in _entries(frontier, f"{prefix}failed:{crawl.key}"):
        if (state := _of_line(UrlPlace.FAILED, line, target, crawl)) is not None:
            return state
    heads = await frontier.shards.command("HGETALL", f"{prefix}fi:{crawl.key}")
    for number, head in zip(heads[::2], heads[1::2], strict=True):
        where, _, reason = head.decode(errors="replace").partition(" ")
        if number.isdigit() and where.partition(":")[2] == target.host:
            async for _, entry in _entries(frontier, f"{prefix}fq:{crawl.key}:{number.decode()}"):
                if (visit := _matching(entry, target, crawl, int(where.partition(":")[0]))) is not None:
                    return UrlState(UrlPlace.FAILED, visit, reason)
    return None


async def _set_aside(frontier: Frontier, crawl: Crawl, target: Target) -> UrlState | None:
    prefix = _prefix(frontier, target)
    async for _, line in _entries(frontier, keys.dropped(prefix, crawl.key)):
        if (state := _of_line(UrlPlace.SET_ASIDE, line, target, crawl)) is not None:
            return state
    pattern = f"[dh]*:{_escaped(target.host)}\n*{_escaped(target.rest)}"
    async for member, _ in _scan(frontier, "SSCAN", keys.over(prefix, crawl.key), pattern):
        letter, line = member[:1].decode(), member[1:]
        head, _, entry = line.partition(b"\n")
        reason = _REFUSED.get(letter, "")
        if (state := _of_line(UrlPlace.SET_ASIDE, head + b" \n" + entry, target, crawl)) is not None:
            return state._replace(reason=reason)
    return None


def _of_line(place: UrlPlace, line: bytes, target: Target, crawl: Crawl) -> UrlState | None:
    """A line of the lists of failed and excluded visits: priority:host reason, and the entry."""
    head, _, entry = line.partition(b"\n")
    if not entry.endswith(target.rest.encode()):
        return None
    try:
        visit, reason = visit_codec.failed(head, entry, crawl=crawl.id)
    except StoreCorrupt:
        return None
    return UrlState(place, visit, reason) if visit.url == target.url else None


def _matching(entry: bytes, target: Target, crawl: Crawl, priority: int) -> Visit | None:
    if not entry.endswith(target.rest.encode()):
        return None
    try:
        visit = visit_codec.unpack(entry, host=target.host, crawl=crawl.id, priority=priority, number=0)
    except StoreCorrupt:
        return None
    return visit if visit.url == target.url else None


async def _entries(frontier: Frontier, name: str) -> AsyncIterator[tuple[int, bytes]]:
    for start in range(0, _MOST, _PIECE):
        piece = await frontier.shards.command("LRANGE", name, start, start + _PIECE - 1)
        for index, entry in enumerate(piece, start):
            yield index, entry
        if len(piece) < _PIECE:
            return


async def _scan(frontier: Frontier, command: str, name: str, pattern: str) -> AsyncIterator[tuple[bytes, bytes]]:
    """The members that match, with their scores; of a set, with nothing."""
    cursor: Any = b"0"
    for _ in range(_MOST // _PIECE):
        cursor, flat = await frontier.shards.command(command, name, cursor, "MATCH", pattern, "COUNT", _PIECE)
        if command == "ZSCAN":
            for member, score in zip(flat[::2], flat[1::2], strict=True):
                yield member, score
        else:
            for member in flat:
                yield member, b""
        if cursor in (b"0", 0):
            return


def _escaped(text: str) -> str:
    """Text as a glob pattern of the store that matches only itself."""
    return "".join(f"\\{character}" if character in "*?[]\\" else character for character in text)


def _prefix(frontier: Frontier, target: Target) -> str:
    return frontier.shards.prefixes[frontier.shards.of(target.host)]
