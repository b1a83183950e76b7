"""Sessions of the dashboard in the store, so that every server of the API knows them, also after a restart.

Owns the keys and their bounds. Only a digest of a session's id is stored: a reader of the store or of a backup cannot
use a session.
"""

from __future__ import annotations

import hashlib

from shoal.frontier.shards import STORE, Shards


class SessionTable:
    """Reached as `frontier.sessions`."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    async def begin(self, session: str, owner: str) -> None:
        """Add a session. If there are too many, the one that was unused for the longest time ends."""
        await self._call("b", session, owner)

    async def owner(self, session: str) -> str:
        """The owner of a session, '' if there is none. A session ends after twelve hours without a look-up."""
        return await self._call("l", session)

    async def end(self, session: str) -> None:
        await self._call("e", session)

    async def _call(self, operation: str, session: str, owner: str = "") -> str:
        digest = hashlib.sha256(session.encode()).hexdigest()
        reply = await self._shards.call("session", STORE, (operation, digest, owner))
        return bytes(reply[1]).decode(errors="replace")
