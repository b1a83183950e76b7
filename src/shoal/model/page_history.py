"""The history of a page in a perpetual crawl: 23 bytes that its entry in the store carries from visit to visit."""

from __future__ import annotations

import struct

import msgspec

# The scripts read the first byte, the rate, and know the length (lua/include/calendar.lua).
_FORMAT = struct.Struct(">BBHHIII5s")
HISTORY_BYTES = _FORMAT.size
_MOST = 2**16 - 1
_LAST = 2**32 - 1
NO_HASH = bytes(5)


class PageHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The history of one page. Times are whole seconds since 1970."""

    # How often it changes: the bytes of politeness.revisit.Rate.
    rate_mean: int
    rate_precision: int
    # Visits in a row that found no page, up to 3.
    misses: int = 0
    # All visits, and the visits that found a different text than the visit before; 65,535 at most.
    visits: int = 1
    changes: int = 0
    first_seen: int = 0
    last_changed: int = 0
    last_visited: int = 0
    # Hash of the normalised text; NO_HASH if no text was seen yet.
    text_hash: bytes = NO_HASH

    def pack(self) -> bytes:
        return _FORMAT.pack(
            self.rate_mean, self.misses << 6 | self.rate_precision, min(self.visits, _MOST), min(self.changes, _MOST),
            min(self.first_seen, _LAST), min(self.last_changed, _LAST), min(self.last_visited, _LAST), self.text_hash,
        )  # fmt: skip

    @classmethod
    def unpack(cls, packed: bytes) -> PageHistory:
        """Raise ValueError if `packed` has another length."""
        if len(packed) != HISTORY_BYTES:
            raise ValueError("its history is cut")
        mean, mixed, visits, changes, first, changed, visited, text_hash = _FORMAT.unpack(packed)
        return cls(
            rate_mean=mean, rate_precision=mixed & 63, misses=mixed >> 6, visits=visits, changes=changes,
            first_seen=first, last_changed=changed, last_visited=visited, text_hash=text_hash,
        )  # fmt: skip
