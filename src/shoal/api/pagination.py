"""Cursors: the start of the next page of a list, as opaque text that a client passes back."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any

import msgspec

from shoal.api.problem_details import RequestRefused

MAX_PAGE_SIZE = 500
# A record's key contains its URL, which has 8,192 characters at most.
MAX_CURSOR = 12_000
_CHECKSUM_BYTES = 6


def make_cursor(value: object, *of: str) -> str:
    """A cursor for the position `value`. `of` names the list and its filters."""
    body = msgspec.json.encode(value)
    return base64.urlsafe_b64encode(_checksum(body, of) + body).decode().rstrip("=")


def parse_cursor(text: str, type_: Any, *of: str) -> Any:
    """The position of a cursor, None for ''. RequestRefused for the cursor of another list or other filters."""
    if not text:
        return None
    try:
        raw = base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
        if len(text) <= MAX_CURSOR and raw[:_CHECKSUM_BYTES] == _checksum(raw[_CHECKSUM_BYTES:], of):
            return msgspec.json.decode(raw[_CHECKSUM_BYTES:], type=type_)
    except (msgspec.DecodeError, binascii.Error, ValueError, RecursionError):
        pass
    raise RequestRefused(
        422, "Invalid cursor: pass the `next` of the previous page, or no cursor.", kind="InvalidInput"
    )


def _checksum(body: bytes, of: tuple[str, ...]) -> bytes:
    """Detects cursors that are truncated or belong to another list. It is not a secret."""
    return hashlib.blake2b("\0".join(of).encode() + b"\0" + body, digest_size=_CHECKSUM_BYTES).digest()
