"""What a response for robots.txt means, and how long a copy may be used (RFC 9309 2.3.1 and 2.4).

Owns the meaning of statuses and the age limits. The worker sends the request, follows redirects (each hop under a lease
of its own host) and stores the copy; the rules always belong to the authority that was requested first (2.3.1.2).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, NamedTuple

import msgspec

from shoal.errors import StoreCorrupt
from shoal.model.validation import WIDEST
from shoal.politeness.robots_parser import parse
from shoal.politeness.robots_rules import ALLOW_ALL, DISALLOW_ALL, MAX_PACKED_BYTES, Rules

MAX_HOPS = 5
# 2.4: a copy SHOULD NOT be used for longer than a day, unless robots.txt cannot be reached.
FRESH_SECONDS = 86_400.0
# A worker's reading of the store's clock is off by the time that the call took, which is long if the store is busy.
_CLOCK_SECONDS = 60.0
# 2.3.1.4 names 30 days as reasonably long.
UNREACHABLE_SECONDS = 30 * 86_400.0
MAX_VALIDATOR_CHARACTERS = 1024

REDIRECTS = frozenset((301, 302, 303, 307, 308))
_VERSION = 1


class Meaning(StrEnum):
    """What a response means."""

    RULES = "rules"
    """Parse its body."""
    UNCHANGED = "unchanged"
    """The copy is valid for another day."""
    REDIRECT = "redirect"
    """Request the target of the redirect."""
    UNAVAILABLE = "unavailable"
    """There is no robots.txt: everything is allowed."""
    UNREACHABLE = "unreachable"
    """The rules are unknown: nothing is allowed for now, except what an older copy allows."""


def verdict(status: int | None, *, hops: int = 0, has_copy: bool = False) -> Meaning:
    """What a response means.

    `status` is None if there is no complete response: no DNS, refused, reset, TLS, timeout, truncated, or an address
    that must not be requested. `hops` counts the redirects so far; `has_copy`: the request was conditional.
    """
    if status is None:
        return Meaning.UNREACHABLE
    if 200 <= status <= 299:
        return Meaning.RULES
    if status == 304 and has_copy:
        return Meaning.UNCHANGED
    if status in REDIRECTS:
        # 2.3.1.2: at least five redirects are followed; after them, the file may be treated as unavailable.
        return Meaning.REDIRECT if hops < MAX_HOPS else Meaning.UNAVAILABLE
    if 400 <= status <= 499 and status != 429:
        return Meaning.UNAVAILABLE
    # 5xx closes the host (2.3.1.4). 429 means that the server is busy, not that it has no robots.txt. A status without
    # a meaning in HTTP (999, an unexpected 304) does not allow anything either.
    return Meaning.UNREACHABLE


class RobotsCopy(msgspec.Struct, frozen=True):
    """The rules of one authority as last confirmed by its server, and the validators for the next request (2.4).

    `confirmed_at` is in seconds on the clock of `now`: the store's, so that all workers agree.
    """

    rules: Rules
    confirmed_at: float
    etag: str = ""
    last_modified: str = ""

    def pack(self) -> bytes:
        kept = _KeptCopy(_VERSION, self.confirmed_at, self.etag, self.last_modified, self.rules.pack())
        return msgspec.msgpack.encode(kept)

    @classmethod
    def unpack(cls, data: bytes) -> RobotsCopy:
        """The copy that `pack` made. Another form raises StoreCorrupt: request robots.txt again."""
        try:
            kept = _decode(data)
            if kept.version != _VERSION or not 0 <= kept.confirmed_at < WIDEST:
                raise ValueError(f"form {kept.version}, confirmed at {kept.confirmed_at}")
            # These become request headers: a line break in one would let a server add a header.
            if _validator(kept.etag) != kept.etag or _validator(kept.last_modified) != kept.last_modified:
                raise ValueError("an ETag or date that no server sends")
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            raise StoreCorrupt(
                f"A copy of robots.txt in the store is not this version's: {error}. Fetch robots.txt again."
            ) from None
        return cls(Rules.unpack(kept.rules), kept.confirmed_at, kept.etag, kept.last_modified)


_Validator = Annotated[str, msgspec.Meta(max_length=MAX_VALIDATOR_CHARACTERS)]


class _KeptCopy(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    version: int
    confirmed_at: float
    etag: _Validator
    last_modified: _Validator
    rules: Annotated[bytes, msgspec.Meta(max_length=MAX_PACKED_BYTES)]


_decode = msgspec.msgpack.Decoder(_KeptCopy).decode


def settle(
    meaning: Meaning,
    *,
    now: float,
    copy: RobotsCopy | None = None,
    body: bytes = b"",
    token: str = "",
    etag: str = "",
    last_modified: str = "",
) -> RobotsCopy | None:
    """The copy to keep after the last response of a chain: a new one, the old one confirmed, or the old one."""
    if meaning is Meaning.RULES:
        return RobotsCopy(parse(body, token), now, _validator(etag), _validator(last_modified))
    if meaning is Meaning.UNAVAILABLE:
        return RobotsCopy(ALLOW_ALL, now)
    if meaning is Meaning.UNCHANGED and copy is not None:
        return msgspec.structs.replace(copy, confirmed_at=now)
    return copy


class Standing(NamedTuple):
    """The rules that apply now. If `rules` is None, robots.txt must be fetched before any page."""

    rules: Rules | None
    fetch: bool


def standing(copy: RobotsCopy | None, *, token: str, now: float, unreachable: bool = False) -> Standing:
    """The rules that apply now, and whether to fetch robots.txt. `unreachable`: the last attempt had that verdict.

    A copy that was parsed for another product token does not apply to ours. The host's back-off decides when an
    unreachable robots.txt is requested again.
    """
    if copy is not None and copy.rules.token in ("", token):
        age = now - copy.confirmed_at
        # A copy from the future means that the clock was set back: its age is unknown, so robots.txt is fetched again.
        if -_CLOCK_SECONDS <= age < FRESH_SECONDS:
            return Standing(copy.rules, fetch=False)
        if unreachable and age < UNREACHABLE_SECONDS:
            return Standing(copy.rules, fetch=True)
    return Standing(DISALLOW_ALL if unreachable else None, fetch=True)


def _validator(value: str) -> str:
    """The ETag or date to send back to the server, unchanged; '' if it is too long or not printable."""
    return value if len(value) <= MAX_VALIDATOR_CHARACTERS and value.isprintable() else ""
