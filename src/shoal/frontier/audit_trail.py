"""The audit trail: the last thousand changes that people and programs made through the API, for the dashboard.

Complete records are in the log of `shoal serve`. Owns the list in the store, which is bounded.
"""

from __future__ import annotations

import msgspec

from shoal.frontier import keys
from shoal.frontier.shards import STORE, Shards

MAX_ENTRIES = 1000
_MAX_TEXT = 500


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One change.

    at       time of the change, in seconds since 1970 on the store's clock
    who      name of the token
    role     role of the token
    event    name of the event, as in docs/reference/logs.md
    text     the change as a sentence
    """

    at: float = 0.0
    who: str
    role: str
    event: str
    text: str


class AuditTrail:
    """Reached as `frontier.audit_trail`."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    async def add(self, record: AuditRecord) -> None:
        entry = msgspec.json.encode(msgspec.structs.replace(record, text=record.text[:_MAX_TEXT]))
        await self._shards.call("audit", STORE, (entry,))

    async def read(self, limit: int = MAX_ENTRIES) -> list[AuditRecord]:
        """The latest changes, newest first."""
        key = keys.audit(self._shards.namespace)
        records = []
        for line in await self._shards.command("LRANGE", key, 0, limit - 1):
            at, _, entry = line.partition(b" ")
            try:
                record = msgspec.json.decode(entry, type=AuditRecord)
                records.append(msgspec.structs.replace(record, at=int(at) / 1000))
            except (msgspec.MsgspecError, ValueError):
                # An entry of another version is skipped.
                continue
        return records
