"""The stored form of a crawl: its record at the home shard and its copies. Makes no calls."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.errors import InvalidInput
from shoal.model.crawl import STATES, Crawl, State
from shoal.model.crawl_spec import Limits

MAX_SPEC_BYTES = 1_000_000


class _Spec(msgspec.Struct):
    limits: Limits
    spec: dict[str, Any] = {}


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Spec).decode


def packed(limits: Limits, spec: dict[str, Any]) -> bytes:
    try:
        data = _encode(_Spec(limits, spec))
        _decode(data)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"A crawl's specification cannot be stored: {error}.") from None
    if len(data) > MAX_SPEC_BYTES:
        raise InvalidInput(f"A crawl's specification has {len(data)} bytes; the limit is {MAX_SPEC_BYTES}.")
    return data


def limits_of(data: bytes) -> Limits:
    return _decode(data).limits


def copy_fields(crawl: Crawl) -> list[str | int]:
    """A crawl's limits as its copies have them; the names are those of lua/include/crawls.lua."""
    limits = crawl.limits
    fields: list[str | int] = [
        "id", crawl.id, "sp", limits.spider, "pr", limits.priority, "ord", limits.order[0],
        "d", round(limits.delay_seconds * 1000), "n", limits.places, "ph", limits.max_pages_per_host,
        "exp", round(limits.expires_at * 1000), "life", round(limits.dedup_seconds * 1000),
    ]  # fmt: skip
    if limits.max_depth is not None:
        fields += ["md", limits.max_depth]
    if limits.max_pages:
        fields += ["mp", 1]
    return fields


def crawl_of(fields: dict[str, bytes], now_ms: int) -> Crawl:
    """A crawl from the fields of its record. Raises KeyError, ValueError or MsgspecError if they are invalid."""
    spec = _decode(fields["spec"]) if fields.get("spec") else _Spec(Limits())
    state = STATES[fields["st"].decode()]
    expires = spec.limits.expires_at
    if state.open and expires and expires * 1000 <= now_ms:
        state = State.EXPIRED
    return Crawl(
        id=fields["id"].decode(), key=fields["key"].decode(), state=state, version=int(fields["v"]),
        limits=spec.limits, created_at=int(fields["created"]) / 1000,
        ended_at=int(fields.get("ended", 0)) / 1000, why=fields.get("why", b"").decode(), spec=spec.spec,
    )  # fmt: skip
