"""Cursors: where the next page of a list begins, as text that a client passes back unread."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any

import msgspec

from shoal.api.problem_details import RequestRefused

MOST_A_PAGE = 500
# A record's key has its URL in it, of 8,192 characters at most.
MOST_CURSOR = 12_000
_MARK_BYTES = 6


def cursor_of(value: object, *of: str) -> str:
    """Where the next page begins, as text that nobody should look into. `of` names the list and how it was filtered."""
    body = msgspec.json.encode(value)
    return base64.urlsafe_b64encode(_mark(body, of) + body).decode().rstrip("=")


def parse_cursor(text: str, type_: Any, *of: str) -> Any:
    if not text:
        return None
    try:
        raw = base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
        if len(text) <= MOST_CURSOR and raw[:_MARK_BYTES] == _mark(raw[_MARK_BYTES:], of):
            return msgspec.json.decode(raw[_MARK_BYTES:], type=type_)
    except (msgspec.DecodeError, binascii.Error, ValueError, RecursionError):
        pass
    raise RequestRefused(422, "cursor is not one of this list: pass what `next` said, or none.", kind="InvalidInput")


def _mark(body: bytes, of: tuple[str, ...]) -> bytes:
    """Tells a cursor of another list, or one that was cut off, from one that goes on here. It is no secret."""
    return hashlib.blake2b("\0".join(of).encode() + b"\0" + body, digest_size=_MARK_BYTES).digest()
