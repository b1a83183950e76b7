"""The stored form of a crawl: its record at the home shard and its copies. Makes no calls."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.errors import InvalidInput
from shoal.model.crawl import STATES, Crawl, State
from shoal.model.limits import Limits
from shoal.model.revisit_schedule import revisit_schedule

MAX_SPEC_BYTES = 1_000_000
# The prefix under which a reason is counted again when its visits are admitted again.
_AGAIN = {"failed": "retried", "excluded": "readmitted"}


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
    """A crawl's limits as its copies store them; lua/include/crawls.lua defines the names."""
    limits = crawl.limits
    fields: list[str | int] = [
        "id", crawl.id, "sp", limits.spider, "pr", limits.priority, "ord", limits.order[0],
        "d", round(limits.delay_seconds * 1000), "n", limits.places, "ph", limits.max_pages_per_host,
        "pd", limits.max_urls_per_depth,
        "exp", round(limits.expires_at * 1000), "life", round(limits.dedup_seconds * 1000),
    ]  # fmt: skip
    schedule = revisit_schedule(limits.every, limits.budget)
    if schedule.perpetual:
        fields += [
            "ev", round(schedule.shortest_seconds * 1000), "bp", round(schedule.share * 1000),
            "bn", round(schedule.slot_seconds * 1000),
        ]  # fmt: skip
    if limits.max_depth is not None:
        fields += ["md", limits.max_depth]
    if limits.max_pages:
        fields += ["mp", 1]
    return fields


def removed_fields(crawl: Crawl) -> list[str]:
    """Limits that a crawl does not have, in the form that removes them from its copies."""
    absent = {"md": crawl.limits.max_depth is None, "mp": not crawl.limits.max_pages}
    return [part for field, is_absent in absent.items() if is_absent for part in (field, "")]


def reasons_now(reasons: dict[str, int], *, all_admissions: bool = False) -> dict[str, int]:
    """Counts by reason, without visits that were admitted again, unless all admissions are counted."""
    now = {}
    for name, count in reasons.items():
        kind, _, reason = name.partition(":")
        if kind in _AGAIN.values():
            continue
        again = 0 if all_admissions else reasons.get(f"{_AGAIN.get(kind)}:{reason}", 0)
        if count > again:
            now[name] = count - again
    return now


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
