"""The stored form of a visit: a flag byte, its depth and its path; more only for visits with more data.

flags   bits 0-1 scheme (3: the whole URL follows), 2 attempts follow, 3 an extension follows, 4-6 how it was found,
        7 a history follows
[retries, expiries, blames]     a byte each; scripts write these
[history]                       23 bytes, of a page in a perpetual crawl (model/page_history.py)
depth                           7 bits a byte, lowest first
[length, extension]             msgpack: method, headers, body, meta
path and query
"""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.errors import InvalidLimit, InvalidVisit, StoreCorrupt
from shoal.model.page_history import HISTORY_BYTES, PageHistory
from shoal.model.validation import headers as check_headers
from shoal.model.visit import FOUND, Visit
from shoal.urls.canonical import SCHEMES, Target, rebuild

# The default limit for the data of a visit, and the highest limit that a caller can set.
MAX_EXTENSION_BYTES = 49152
LARGEST_EXTENSION_BYTES = 16_000_000
_WHOLE, _ATTEMPTS, _EXTENSION, _HISTORY = 3, 4, 8, 128
# Visits with a history wait at a priority that is this much lower: new pages go first (lua/include/calendar.lua).
_LOWER = 10**12
_SCHEME_CODE = {scheme: code for code, scheme in enumerate(SCHEMES)}
_FOUND_CODE = {found: code << 4 for code, found in enumerate(FOUND)}
_encode = msgspec.msgpack.Encoder().encode


class _Extension(msgspec.Struct, array_like=True):
    method: str = "GET"
    headers: dict[str, str] = {}
    body: bytes = b""
    meta: dict[str, Any] = {}


_decode = msgspec.msgpack.Decoder(_Extension).decode


def plain(target: Target, depth: int, found: str) -> bytes:
    """The entry of an ordinary GET."""
    flags = (_WHOLE if target.whole else _SCHEME_CODE[target.scheme]) | _FOUND_CODE[found]
    return (bytes((flags, depth)) if depth < 128 else bytes((flags,)) + _varint(depth)) + target.rest.encode()


def pack(target: Target, visit: Visit, max_bytes: int = MAX_EXTENSION_BYTES) -> bytes:
    """The entry of a visit, with what it carries beyond its URL."""
    if not isinstance(visit.found, str) or visit.found not in _FOUND_CODE:
        raise InvalidVisit(f"found is {visit.found!r}: it must be one of {', '.join(FOUND)}.")
    entry = plain(target, visit.depth, visit.found)
    if visit.method == "GET" and not visit.headers and not visit.body and not visit.meta:
        return entry
    if visit.headers:
        try:
            check_headers(visit.headers)
        except (InvalidLimit, AttributeError) as error:
            raise InvalidVisit(f"A visit of {target.url[:80]!r} cannot be made: {error}") from None
    try:
        extra = _encode(_Extension(visit.method, visit.headers, visit.body, visit.meta))
        _decode(extra)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidVisit(f"A visit of {target.url[:80]!r} carries data that cannot be stored: {error}.") from None
    if len(extra) > max_bytes:
        raise InvalidVisit(
            f"A visit of {target.url[:80]!r} carries {len(extra)} bytes of method, headers, body and meta: "
            f"the limit is {max_bytes}."
        )
    head = 1 + len(_varint(visit.depth))
    return bytes((entry[0] | _EXTENSION,)) + entry[1:head] + _varint(len(extra)) + extra + entry[head:]


def unpack(entry: bytes, *, host: str, crawl: str, priority: int, number: int) -> Visit:
    """The visit of an entry. Nothing in it is trusted: StoreCorrupt is raised if it does not parse."""
    try:
        flags = entry[0]
        at = 1
        retries = expiries = blames = 0
        if flags & _ATTEMPTS:
            retries, expiries, blames = entry[1:4]
            at = 4
        history = None
        if flags & _HISTORY:
            history = PageHistory.unpack(entry[at : at + HISTORY_BYTES])
            at += HISTORY_BYTES
            priority += _LOWER
        depth, at = _read_varint(entry, at)
        code = flags & 3
        found = FOUND[flags >> 4 & 7]
        if not flags & _EXTENSION:
            rest = entry[at:].decode()
            extra = None
        else:
            length, at = _read_varint(entry, at)
            if at + length > len(entry):
                raise ValueError("its extension is truncated")
            extra = _decode(entry[at : at + length])
            rest = entry[at + length :].decode()
    except (IndexError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise StoreCorrupt(f"Invalid queue entry of host {host} in the store: {error}.") from None
    url = rest if code == _WHOLE else rebuild(SCHEMES[code], host, rest)
    if extra is None:
        return Visit(
            url=url, depth=depth, priority=priority, found=found, crawl=crawl, number=number,
            retries=retries, expiries=expiries, blames=blames, history=history,
        )  # fmt: skip
    return Visit(
        url=url, depth=depth, priority=priority, found=found, method=extra.method, headers=extra.headers,
        body=extra.body, meta=extra.meta, crawl=crawl, number=number,
        retries=retries, expiries=expiries, blames=blames, history=history,
    )  # fmt: skip


def scheduled(member: bytes) -> tuple[bytes, int, bytes]:
    """A page in a bucket of the calendar: its host, or '#' and the number of the host; its priority; its entry."""
    host, _, rest = member.partition(b" ")
    # The first byte of an entry with a history is above 127.
    entry = rest.lstrip(b"-0123456789")
    return host, int(rest[: len(rest) - len(entry)] or 0), entry


def history_of(member: bytes) -> PageHistory:
    """The history of a page in the calendar."""
    return PageHistory.unpack(scheduled(member)[2][1 : 1 + HISTORY_BYTES])


def failed(head: bytes, entry: bytes, *, crawl: str) -> tuple[Visit, str]:
    """A failed visit and its reason. `head` precedes it in the lists of failed visits: priority:host reason."""
    try:
        where, _, reason = head.decode().partition(" ")
        priority_text, _, host = where.partition(":")
        priority = int(priority_text)
    except ValueError as error:
        raise StoreCorrupt(f"Invalid failed visit of crawl {crawl} in the store: {error}.") from None
    return unpack(entry, host=host, crawl=crawl, priority=priority, number=0), reason


def brief(reason: str, default: str) -> str:
    """A reason as scripts accept it: one line of at most 64 bytes."""
    if not isinstance(reason, str):
        raise InvalidVisit(f"A reason is {reason!r}: it must be text.")
    plain_text = "".join(c if c.isprintable() else " " for c in reason)
    return plain_text.encode("utf-8", "replace")[:64].decode(errors="ignore").strip() or default


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 56:
            raise ValueError("a number is too long")
