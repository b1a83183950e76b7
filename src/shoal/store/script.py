"""A Lua script as the store sends it: its name, its source and the SHA-1 the server knows it by."""

from __future__ import annotations

import hashlib


class Script:
    """One Lua script. Build it once: the SHA-1 is computed here and never again."""

    __slots__ = ("name", "sha", "source")

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.source = source
        # SHA-1 is the name the Redis protocol gives to scripts, not a protection.
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
